"""Reading entries of Cloud Logging: payloads of Google's library, of Orbax's cloud logger, and ours.

Takes entries a piece at a time, in any order, and makes the same run logs that journals make:
``payloads`` says what each entry means, ``told`` keeps it, ``straight`` mends clocks, ``waits`` and
``lives`` say whose it is.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from goodput_plugins.core import straight
from goodput_plugins.core.attribution import Each
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.exports import Column, entry_of, halves, pieces
from goodput_plugins.core.lives import COPY_NS, split
from goodput_plugins.core.runlog import Life, RunLog
from goodput_plugins.core.told import Told
from goodput_plugins.core.waits import pair


def read_entries(entries: Iterable[Any]) -> list[RunLog]:
    """The run logs in these entries, one a job name, by name.

    Args:
        entries: parsed log entries (or bare payloads), in any order; duplicates (equal payloads) are
            one. What cannot be understood is counted in the log's notes.
    """
    jobs = Jobs()
    jobs.add(map(entry_of, entries))
    return jobs.logs()


def read_export(file: BufferedReader[Any], path: Path, each: Each = map) -> list[RunLog]:
    """The same for a file that was opened in binary mode; it is never held in whole.

    Args:
        file: it, or what is packed in it.
        path: where it is.
        each: by what its halves are read; ``map``: it is read from the beginning to the end, as is one of a clock
            that was set.

    Raises:
        UnusableData: these are no log entries at all.
    """
    if not _is_text(file.peek()):
        raise UnusableData(f"{path}: is a binary file, neither a journal nor exported log entries.")
    halved = _in_halves(path, each) if each is not map else None
    if halved is not None and not halved.empty:
        with suppress(ClockWasSet):
            return halved.logs()
    jobs = _read(file, Jobs())
    if jobs.empty:
        raise UnusableData(
            f"{path}: is neither a journal nor log entries as `gcloud logging read --format=json` prints them."
        )
    return jobs.logs()


class ClockWasSet(Exception):
    """Of a job whose waits do not tell when they were written."""


def _read(file: BinaryIO, jobs: Jobs, part: tuple[int, int | None] = (0, None)) -> Jobs:
    """Take in what a file tells, or a part of it."""
    for piece in pieces(file, part):
        jobs.add(piece.entries)
        jobs.add_columns(piece.columns)
        jobs.skip(piece.broken, "no JSON")
        jobs.plain &= piece.plain
    return jobs


def _in_halves(path: Path, each: Each) -> Jobs | None:
    """What both halves of a file tell; None if it cannot be cut there."""

    def read(part: tuple[int, int | None]) -> Jobs:
        with path.open("rb") as own:
            return _read(own, Jobs(tells_when_written=False), part)

    with path.open("rb") as file:
        parts = halves(file, path.stat().st_size)
    told: list[Jobs] = list(each(read, parts))
    if not told or not all(half.plain for half in told):
        return None
    told[0].join(told[1])
    return told[0]


def _is_text(data: bytes) -> bool:
    try:
        getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return True


class Jobs:
    """Takes in entries, and makes a log of each job that they tell of.

    Args:
        tells_when_written: of waits, too; they need twice the memory.
    """

    def __init__(self, *, tells_when_written: bool = True) -> None:
        self.empty = True
        """Nothing with a payload has been seen."""
        self.plain = True
        """What was read was nothing but entries."""
        self._new = partial(Told, tells_when_written=tells_when_written)
        self._jobs: dict[str, Told] = defaultdict(self._new)
        self._nameless = self._new()

    def add(self, entries: Iterable[Any]) -> None:
        """Take in entries as :mod:`~goodput_plugins.core.exports` makes them."""
        shapes: dict[tuple[str, ...], _Shape] = defaultdict(_Shape)
        for entry in entries:
            payload = entry.jsonPayload
            if payload is None:
                self._nameless.skipped["no payload"] += 1
                continue
            shape = shapes[tuple(payload)]
            shape.payloads.append(payload)
            shape.written.append(entry.timestamp)
        for shape in shapes.values():
            self._add(shape)

    def add_columns(self, columns: Iterable[Column]) -> None:
        """Take in entries that were put into columns."""
        for column in columns:
            self.empty = False
            self._job(column.job).add_column(column)

    def told(self, name: str) -> Told:
        """What was told of a job; if it is the only one, also by entries that name none."""
        told = self._jobs[name]
        if len(self._jobs) == 1:
            told.join(self._nameless)
            self._nameless = self._new()
        return told

    def skip(self, count: int, reason: str) -> None:
        """Count entries that could not be read at all."""
        if count:
            self._nameless.skipped[reason] += count

    def join(self, other: Jobs) -> None:
        """Take in all that another one holds."""
        self.empty &= other.empty
        self._nameless.join(other._nameless)
        for name, told in other._jobs.items():
            self._jobs[name].join(told)

    def logs(self) -> list[RunLog]:
        """The logs of all jobs, by name.

        Raises:
            ClockWasSet: and it was not to be told when waits were written.
        """
        if len(self._jobs) == 1:
            self.told(next(iter(self._jobs)))
        logs = [log_of(name, told) for name, told in sorted(self._jobs.items())]
        return [log for log in logs if log.lives]

    def _add(self, shape: _Shape) -> None:
        self.empty = False
        names = [payload.get("job_name") for payload in shape.payloads]
        if names.count(names[0]) == len(names):
            self._job(names[0]).add(shape.payloads, shape.written)
            return
        for name, payload, written in zip(names, shape.payloads, shape.written, strict=True):
            self._job(name).add([payload], [written])

    def _job(self, name: Any) -> Told:
        return self._jobs[name] if isinstance(name, str) else self._nameless


class _Shape:
    """Payloads of equal keys, and when each was written."""

    __slots__ = ("payloads", "written")

    def __init__(self) -> None:
        self.payloads: list[Mapping[str, Any]] = []
        self.written: list[datetime | None] = []


def log_of(name: str, told: Told) -> RunLog:
    """The log of what was told of one job; it may raise ClockWasSet."""
    log = RunLog(name)
    ours = told.ours.log(name)
    if ours.lives:
        told.leave_out([(life.start - COPY_NS, _last_sign(life)) for life in ours.lives])
    times, numbers, written = straight.by_time(told.steps.times, told.numbers, told.steps.written)
    shifts = straight.shifts(times, numbers, written)
    if shifts:
        if not told.tells_when_written:
            raise ClockWasSet
        times, numbers = straight.by_time(straight.moved(times, written, shifts), numbers)
    times, numbers = straight.each_once(times, numbers)
    begins = straight.once(straight.moved(told.begins.times, told.begins.written, shifts))
    ends = straight.once(straight.moved(told.ends.times, told.ends.written, shifts))
    others = list(told.others)
    if shifts:
        others = [event._replace(time=straight.moved_one(event.time, told.others[event], shifts)) for event in others]
    starts, stops, odd = pair(begins, ends, times, others)
    log.lives, copies = split(name, (times, numbers), (starts, stops), others + odd, follows=told.follows)
    told.found, told.clock_is_sound = copies, not shifts
    copies += told.copies
    log.lives = sorted([*log.lives, *ours.lives], key=lambda life: (life.start, life.id))
    log.notes += ours.notes
    lost = sum(shift.lost for shift in shifts)
    if lost:
        text = f"The clock stepped back by {lost / 1e9:.1f} s in all; as much time of the run is not accounted for."
        log.note("clock-stepped-back", text)
    if not all(shift.lost for shift in shifts):
        log.note("clock-set-ahead", "The clock was set ahead; what came after it is placed by when it was written.")
    if copies:
        text = f"{copies} starts were told by more than one process; each is counted once."
        log.note("foreign-copies", text)
    if told.skipped:
        what = ", ".join(f"{n} x {reason}" for reason, n in sorted(told.skipped.items()))
        text = f"{told.skipped.total()} entries were not understood ({what})."
        log.note("not-understood-entries", text)
    return log


def _last_sign(life: Life) -> int:
    """When a life of ours last told something."""
    return max([life.start, *life.steps.times[-1:], *(event.time for event in life.events)])
