"""Reading a run's journals as they grow.

A journal lies in a mapping, so what is not written yet is NUL: its bytes up to the first NUL are final.
They are taken as far as they go, in the middle of a line too (see :mod:`~goodput_plugins.core.compact`).

A process that finds out that it is not the primary one deletes its journal. So an attempt is left alone
until it shows a step, a save, a rank or an end, or has fallen silent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from goodput_plugins.agent.position import NOTHING, Position, Positions
from goodput_plugins.core.compact import Stretch
from goodput_plugins.core.journal_reading import by_segment, first_line
from goodput_plugins.core.rundir import SUFFIX

AT_ONCE = 1024 * 1024
"""How much of a journal is taken at a time, bytes; its header and first lines are in it."""
OVER = 8.0
"""A line that has not grown for so long is as long as it gets: a heartbeat ends it within 5 s."""
SILENT = 60.0
"""A journal that has not grown for so long is that of an attempt, whatever it holds, s."""

_SURE = re.compile(rb'^\["(?:s|r|a|commit|rank|end)"|^\["[bx]",[^\n]*"save"', re.M)


class Tail:
    """Follows the journals of one run.

    Args:
        folder: the run's directory.
        positions: from where on each journal is to be read.
        whole_lines: leave a line that is not complete for later.
    """

    def __init__(self, folder: Path, positions: Positions, *, whole_lines: bool = False) -> None:
        self._folder = folder
        self._positions = positions
        self._whole_lines = whole_lines
        self._headers: dict[str, tuple[str, int]] = {}
        self._sure: set[str] = set()
        self._sizes: dict[str, tuple[int, float]] = {}
        self._ends: dict[Path, tuple[int, float]] = {}

    def stretches(self, now: float) -> Iterator[tuple[Stretch, Position]]:
        """What is new, each stretch with the position after it; the next is read when it is asked for.

        Args:
            now: seconds of a clock that never steps back.
        """
        for attempt, files in sorted(self._attempts().items()):
            if attempt in self._positions.received or not self._is_sure(attempt, files, now):
                continue
            header = self._header(attempt, files)
            if header is not None:
                yield from self._of_attempt(attempt, header, files, now)

    def journals(self, now: float) -> Iterator[Path]:
        """The files of all attempts that will stay."""
        for attempt, files in sorted(self._attempts().items()):
            if self._is_sure(attempt, files, now):
                yield from files.values()

    def sent(self) -> Iterator[Stretch]:
        """What was sent before, again, for a format that builds on it."""
        for attempt, files in sorted(self._attempts().items()):
            header, until = self._header(attempt, files), self._positions[attempt]
            if header is None:
                continue
            run, start = header
            for number, path in files.items():
                offset = 0
                while number <= until.segment and (data := _read(path, offset)):
                    if number == until.segment:
                        data = data[: until.offset - offset]
                    cut = data[: data.rfind(b"\n") + 1] or data
                    if not cut:
                        break
                    yield Stretch(run, attempt, start, number, offset, cut)
                    offset += len(cut)

    def unsent(self) -> int:
        """How many bytes are still to be read, at most."""
        total = 0
        for attempt, files in self._attempts().items():
            position = self._positions[attempt]
            if attempt not in self._positions.received:
                sizes = {number: filled(path) for number, path in files.items() if number >= position.segment}
                total += sum(sizes.values()) - min(position.offset, sizes.get(position.segment, 0))
        return total

    def _attempts(self) -> dict[str, dict[int, Path]]:
        """Each attempt's segments, by number."""
        found: dict[str, dict[int, Path]] = {}
        for path in self._folder.glob(f"*{SUFFIX}"):
            attempt, number = by_segment(path)
            found.setdefault(attempt, {})[int(number or 0)] = path
        return {attempt: dict(sorted(files.items())) for attempt, files in found.items()}

    def _is_sure(self, attempt: str, files: dict[int, Path], now: float) -> bool:
        """Whether this journal will stay."""
        if attempt in self._sure or self._positions[attempt] != NOTHING or max(files) > 0:
            return True
        data = _read(files[0], 0)
        size, since = self._sizes.setdefault(attempt, (len(data), now))
        if size != len(data):
            self._sizes[attempt] = len(data), now
        elif now - since >= SILENT:
            self._sure.add(attempt)
        if _SURE.search(data):
            self._sure.add(attempt)
        return attempt in self._sure

    def _header(self, attempt: str, files: dict[int, Path]) -> tuple[str, int] | None:
        """The run's name and the start of its process; None while they are not written."""
        if attempt not in self._headers:
            for path in files.values():
                header = first_line(_read(path, 0))
                if header and isinstance(header.get("run"), str) and isinstance(header.get("start"), int):
                    self._headers[attempt] = header["run"], header["start"]
                    break
        return self._headers.get(attempt)

    def _of_attempt(
        self, attempt: str, header: tuple[str, int], files: dict[int, Path], now: float
    ) -> Iterator[tuple[Stretch, Position]]:
        run, start = header
        position = self._positions[attempt]
        for number, path in files.items():
            if number < position.segment:
                continue
            if number > position.segment:
                position = Position(number, 0)
            follows = any(later > number and filled(files[later]) for later in files)
            while data := self._next(path, position.offset, now, last=follows):
                stretch = Stretch(run, attempt, start, number, position.offset, data)
                position = Position(number, position.offset + len(data))
                yield stretch, position
            if not follows:
                return

    def _next(self, path: Path, offset: int, now: float, *, last: bool) -> bytes:
        """What follows in a file; ``last``: nothing will be written to it any more."""
        data = _read(path, offset)
        if self._whole_lines and not last and not data.endswith(b"\n"):
            end, since = self._ends.get(path, (-1, now))
            if end != offset + len(data):
                self._ends[path] = offset + len(data), now
            elif now - since >= OVER:
                return data
            whole = data.rfind(b"\n") + 1
            return data if not whole and len(data) == AT_ONCE else data[:whole]
        return data


def _read(path: Path, offset: int) -> bytes:
    """The bytes from a place on, as far as they are final; none where the file is gone."""
    try:
        with path.open("rb", 0) as file:
            if os.fstat(file.fileno()).st_size <= offset:
                return b""
            file.seek(offset)
            data = file.read(AT_ONCE)
    except OSError:
        return b""
    return data.partition(b"\0")[0]


def newest(folder: Path) -> tuple[str, int]:
    """The journal that was begun last, and how much it holds."""
    path = max(folder.glob(f"*{SUFFIX}"), key=by_segment, default=None)
    return ("", 0) if path is None else (path.name, filled(path))


def filled(path: Path) -> int:
    """How much a file holds: what a mapping reserved behind it is NUL."""
    try:
        with path.open("rb", 0) as file:
            low, high = 0, file.seek(0, os.SEEK_END)
            while low < high:  # NULs are at the end only
                middle = (low + high) // 2
                file.seek(middle)
                if file.read(1) in (b"\0", b""):
                    high = middle
                else:
                    low = middle + 1
            return low
    except OSError:
        return 0
