"""Reading journals: what a file's bytes tell, and one run out of many files.

A journal that was cut short by a crash, or whose last line is torn, is normal: what can be read is
read, and what cannot is told in the log's notes. What is no journal at all is
:class:`~goodput_plugins.core.errors.UnusableData`, in one sentence.
"""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from pathlib import Path
from typing import Any

from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import LATEST, SCHEMA, Event, Kind, event_of
from goodput_plugins.core.processes import is_gone
from goodput_plugins.core.runlog import Life, RunLog

MOST_SEGMENTS = 100_000
HEAD = 4096
"""A journal's first line is hardly longer, bytes."""
MANY = 100_000
"""With fewer bytes to parse it does not pay to load a faster parser."""
BACKWARDS_NS = 1_000_000_000
"""Events of a kind that step back by more than this were not written by one process's clock."""
STEPS = frozenset({Kind.STEP, Kind.RUN, Kind.STEPS})
AS_IT_HAPPENS = STEPS | {Kind.BEGIN, Kind.FINISH, Kind.HEARTBEAT}
"""Kinds of events that are told as they happen."""


def by_segment(path: Path) -> tuple[str, str]:
    """An attempt's first segment has no number, the others do: ``x.jsonl``, ``x.001.jsonl``."""
    attempt, dot, number = path.stem.rpartition(".")
    return (attempt, number.zfill(9)) if dot and number.isdigit() else (path.stem, "")


@dataclass
class JournalFile:
    """One file, read.

    Attributes:
        header: its first line.
        events: of all other lines.
        torn: how many lines could not be understood.
        lost: how many pieces could not be written.
        gone: whether the process that wrote it had ended before it was read.
    """

    header: Mapping[str, Any]
    events: list[Event]
    torn: int
    lost: int = 0
    gone: bool = False


def contents(path: Path, offset: int = 0, header: Mapping[str, Any] | None = None) -> tuple[bytes, bool]:
    """What a journal holds from ``offset`` on, and whether the process that wrote it had ended before that was read.

    Args:
        path: the journal.
        offset: bytes.
        header: its first line, if that is known.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb", 0) as file:
        header = header or first_line(file.read(HEAD))
        gone = header is not None and is_gone(header)
        file.seek(offset)
        return file.readall(), gone


def first_line(data: bytes) -> Mapping[str, Any] | None:
    """The first line of a journal of ours; None if this is none."""
    try:
        header = json.loads(data[: data.find(b"\n") + 1 or None].strip(b"\0 \r\n"))
    except (ValueError, RecursionError):
        return None
    ours = isinstance(header, dict) and str(header.get("schema", "")).startswith("goodput-journal/")
    return header if ours else None


def header_of(path: Path, data: bytes) -> Mapping[str, Any]:
    """The first line of a journal: its ``data``, read from ``path``.

    Raises:
        UnusableData: it is no journal, or one of another version.
    """
    header = first_line(data)
    if header is None:
        raise UnusableData(f"{path}: is no goodput journal (its first line is no header of one).")
    if header["schema"] != SCHEMA:
        raise UnusableData(
            f"{path}: was written by another version of goodput-plugins "
            f"({str(header['schema'])[:60]}; this one reads {SCHEMA}); upgrade to read it."
        )
    start = header.get("start")
    if type(start) is not int or not 0 <= start <= LATEST or not isinstance(header.get("run"), str):
        raise UnusableData(f"{path}: its header tells no run or no start.")
    return header


def read_journal(path: Path, data: bytes, *, gone: bool = False) -> JournalFile:
    """What a journal holds: its ``data``, read from ``path``; ``gone`` as :class:`JournalFile` has it.

    Raises:
        UnusableData: it is no journal, one of another version, or one whose times go backwards.
    """
    header = header_of(path, data)
    data = data.replace(b"\0", b"")
    if not data.endswith(b"]\n"):
        before, end, last = data.rstrip(b"\n").rpartition(b"\n")
        data = before + end + mended(last)
    events, torn = parse(data, data.find(b"\n") + 1 or len(data))
    if not in_order(events):
        check_order(path, events, {})
    return journal_of(header, events, torn, gone=gone)


def journal_of(header: Mapping[str, Any], events: list[Event], torn: int, *, gone: bool = False) -> JournalFile:
    """What a journal with this header and these events holds, of which so many lines were torn."""
    lost = sum(event.step or 0 for event in events if event.kind is Kind.LOST)
    return JournalFile(header, [event for event in events if event.kind is not Kind.LOST], torn, lost, gone)


def parse(data: bytes, start: int = 0) -> tuple[list[Event], int]:
    """The events of the lines from ``start`` on, and how many are none; msgspec parses many lines, if it is there."""
    if len(data) > MANY:
        with contextlib.suppress(ImportError, ValueError, RecursionError):
            from goodput_plugins.core.fast_journals import read

            return read(data, start), 0
    lines = list(filter(None, data[start:].split(b"\n")))
    with contextlib.suppress(ValueError, RecursionError):
        return [event_of(row) for row in json.loads(b"".join((b"[", b",".join(lines), b"]")))], 0
    events: list[Event] = []
    torn = 0
    for line in lines:
        try:
            events.append(event_of(json.loads(mended(line))))
        except (ValueError, RecursionError):
            torn += 1
    return events, torn


def mended(line: bytes) -> bytes:
    """The line of a run that was growing when the process was killed; a number without its comma may be torn."""
    line = line.rstrip()
    if line.startswith(b'["r",') and not line.endswith(b"]"):
        return line.rpartition(b",")[0] + b"]]"
    return line


def in_order(events: list[Event]) -> bool:
    """Whether neither steps nor other events step back on any thread; then :func:`check_order` finds nothing."""
    for kinds in (STEPS, AS_IT_HAPPENS - STEPS):
        times = [event.time for event in events if event.kind in kinds]
        if max(map(sub, accumulate(times, max), times), default=0) > BACKWARDS_NS:
            return False
    return True


def check_order(path: Path, events: list[Event], newest: dict[tuple[Kind, int], int]) -> None:
    """Within a thread, events of a kind that are told as they happen never step back.

    Args:
        path: what they were read from.
        events: in the order in which they were told.
        newest: the last time of each kind and thread; kept up to date.

    Raises:
        UnusableData: they do.
    """
    for event in events:
        if event.kind in AS_IT_HAPPENS:
            key = (event.kind, event.thread)
            before = newest.get(key, 0)
            if event.time < before - BACKWARDS_NS:
                raise UnusableData(
                    f"{path}: its times go backwards by {(before - event.time) / 1e9:.1f} s, "
                    "so it was not written by one process's clock; it cannot be used."
                )
            newest[key] = max(before, event.time)


def runs_of(journals: Iterable[JournalFile]) -> dict[str, Run]:
    """These journals' runs, by name."""
    runs: dict[str, Run] = {}
    for journal in journals:
        name = journal.header["run"]
        runs.setdefault(name, Run(name)).add(journal)
    return runs


class Run:
    """The journals of one run, as they come; rotated files of one life are joined.

    A journal's events are put into columns before the next is read: they take a tenth of the memory.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lives: dict[str, Life] = {}
        self.others: set[str] = set()
        """The lives of processes that are not the primary one."""
        self.segments: defaultdict[str, set[int]] = defaultdict(set)
        self.torn = self.lost = 0

    def add(self, journal: JournalFile) -> None:
        """Take in a journal."""
        key = str(journal.header.get("attempt", len(self.lives)))
        number = journal.header.get("segment", 0)
        self.segments[key].add(number if type(number) is int and 0 <= number < MOST_SEGMENTS else 0)
        self.torn += journal.torn
        self.lost += journal.lost
        if any(event.kind is Kind.RANK and event.step for event in journal.events):
            self.others.add(key)
        life = self.lives.setdefault(key, Life(key, journal.header["start"], []))
        life.add(journal.events)
        life.gone |= journal.gone

    def join(self, other: Run) -> bool:
        """Take in the journals of other attempts; False if they are none."""
        if self.lives.keys() & other.lives.keys():
            return False
        self.lives |= other.lives
        self.others |= other.others
        self.segments.update(other.segments)
        self.torn += other.torn
        self.lost += other.lost
        return True

    def log(self) -> RunLog:
        """The primary process's lives, and what could not be read of them."""
        log = RunLog(self.name)
        primary = [life for key, life in self.lives.items() if key not in self.others]
        log.lives = sorted(primary, key=lambda life: (life.start, life.id))
        if self.torn:
            text = f"{_lines(self.torn)} could not be read and left out; a crash can tear a journal's last one."
            log.note("torn-lines", text)
        if self.lost:
            text = f"{self.lost} pieces could not be written when they were told: the disk was full or refused them."
            log.note("lost-lines", text)
        missing = sum(max(found) + 1 - len(found) for key, found in self.segments.items() if key not in self.others)
        if missing:
            text = f"{missing} segments of journals were deleted; what they told counts as preparation."
            if missing == 1:
                text = "1 segment of a journal was deleted; what it told counts as preparation."
            log.note("missing-segments", text)
        return log


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
