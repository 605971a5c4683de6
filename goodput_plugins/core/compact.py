"""Our own log entries: stretches of a journal's bytes, many lines in one entry.

A payload holds a stretch as text, and says where in which segment of the attempt's journal it lies::

    {"job_name": "r", "schema": "goodput-journal/1", "attempt": "20261129T...-3f2a", "start": "1780000000000000000",
     "segment": 0, "first": 4096, "lines": "[\\"h\\",1780000000000000000]\\n..."}

or, where that is shorter, in place of ``lines`` as ``packed``: deflated (RFC 1951), in base 64.

So whatever is sent twice, cut as it may be, is read once: the places tell what is the same. A line may
be cut anywhere; a run of steps that still grows is sent as far as it has grown. ``start`` is text, since
numbers of Cloud Logging are floats and would lose nanoseconds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import SCHEMA
from goodput_plugins.core.journal_reading import Run, mended, read_journal
from goodput_plugins.core.report import iso
from goodput_plugins.core.runlog import RunLog

LARGEST = 100_000
"""How many bytes of a journal go into one entry; Cloud Logging takes 256 KB."""
MOST_PACKED = 10 * LARGEST
"""What is packed is not longer, bytes."""

_TIME = re.compile(rb'^\["[a-z-]+",(\d{1,19})[,\]]', re.M)


class Stretch(NamedTuple):
    """Some bytes of a journal.

    Attributes:
        run: the run's name.
        attempt: the journal's attempt.
        start: when its process began, ns since the epoch.
        segment: which file of the attempt, from 0.
        first: where in it the bytes begin.
        data: they; no NUL among them.
    """

    run: str
    attempt: str
    start: int
    segment: int
    first: int
    data: bytes


def entries(stretch: Stretch) -> Iterator[dict[str, Any]]:
    """The log entries of a stretch, in order; equal bytes give equal entries."""
    first, data = stretch.first, stretch.data
    for part in _parts(data):
        end = first + len(part)
        entry: dict[str, Any] = {
            "insertId": _name(f"{stretch.run}/{stretch.attempt}/{stretch.segment}/{first}/{end}"),
            "severity": "INFO",
            "jsonPayload": {
                "job_name": stretch.run,
                "schema": SCHEMA,
                "attempt": stretch.attempt,
                "start": str(stretch.start),
                "segment": stretch.segment,
                "first": first,
                **_packed(part),
            },
        }
        if times := _TIME.findall(part):
            entry["timestamp"] = iso(int(times[-1]))
        yield entry
        first = end


def _parts(data: bytes) -> Iterator[bytes]:
    """The data in parts, each as many whole lines as go into an entry."""
    begin = 0
    while begin < len(data):
        end = begin + LARGEST
        if end < len(data):
            end = data.rfind(b"\n", begin, end) + 1 or end
        yield data[begin:end]
        begin = end


def _name(place: str) -> str:
    return hashlib.sha256(place.encode()).hexdigest()[:20]


def _packed(part: bytes) -> dict[str, str]:
    """The bytes, as short as they can be put."""
    deflating = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = base64.b64encode(deflating.compress(part) + deflating.flush())
    return {"packed": packed.decode()} if len(packed) < len(part) else {"lines": part.decode(errors="replace")}


def _lines(payload: Mapping[str, Any]) -> str | None:
    """The text that a payload holds; None if it holds none."""
    if "packed" not in payload:
        lines = payload.get("lines")
        return lines if isinstance(lines, str) else None
    inflating = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflating.decompress(base64.b64decode(payload["packed"], validate=True), MOST_PACKED)
        return data.decode()
    except (TypeError, ValueError, zlib.error):
        return None


class Attempts:
    """Puts entries of ours together again."""

    def __init__(self) -> None:
        self._starts: dict[tuple[str, str], int] = {}
        self._parts: defaultdict[tuple[str, str], dict[tuple[int, int], str]] = defaultdict(dict)

    def add(self, payload: Mapping[str, Any]) -> bool:
        """Take in a payload; False if it is none of ours, or of another version."""
        run, attempt, start = (payload.get(key) for key in ("job_name", "attempt", "start"))
        lines = _lines(payload) if payload.get("schema") == SCHEMA else None
        if lines is None or not isinstance(attempt, str):
            return False
        try:
            segment, first, began = int(payload["segment"]), int(payload["first"]), int(str(start))
        except (TypeError, ValueError, KeyError, OverflowError):
            return False
        if min(segment, first, began) < 0:
            return False
        self._starts[str(run), attempt] = began
        self._put((str(run), attempt), (segment, first), lines)
        return True

    def _put(self, attempt: tuple[str, str], place: tuple[int, int], lines: str) -> None:
        """Keep the lines of a stretch, if they are more than those that are known of it."""
        parts = self._parts[attempt]
        if len(lines) > len(parts.get(place, "")):
            parts[place] = lines

    def __bool__(self) -> bool:
        return bool(self._parts)

    def join(self, other: Attempts) -> None:
        """Take in all that another one holds."""
        self._starts |= other._starts
        for attempt, parts in other._parts.items():
            for place, lines in parts.items():
                self._put(attempt, place, lines)

    def log(self, run: str) -> RunLog:
        """What the entries tell of the primary process."""
        read, holes = Run(run), 0
        faults: list[str] = []
        for (name, attempt), parts in self._parts.items():
            for segment, data, missing in segments(parts):
                holes += missing
                if missing and not data.startswith(b"{"):
                    data = self._header(name, attempt, segment) + data
                try:
                    read.add(read_journal(Path(attempt), data))
                except UnusableData as fault:
                    faults.append(str(fault))
        log = read.log()
        if holes:
            log.note("missing-entries", f"{holes} stretches of the run's log entries are missing.")
        for left_out in faults:
            log.note("unusable-journal", f"Left out: {left_out}")
        return log

    def files(self) -> Iterator[tuple[str, int, bytes]]:
        """The journals: of each attempt its name, and each of its segments with what it held."""
        for (run, attempt), parts in self._parts.items():
            for segment, data, _ in segments(parts):
                whole = data.startswith(b"{")
                yield attempt, segment, data if whole else self._header(run, attempt, segment) + data

    def _header(self, run: str, attempt: str, segment: int) -> bytes:
        """The first line of a segment of which it is missing."""
        start = self._starts[run, attempt]
        header = {"schema": SCHEMA, "run": run, "attempt": attempt, "start": start, "segment": segment}
        return json.dumps(header).encode() + b"\n"


def segments(parts: Mapping[tuple[int, int], str]) -> Iterator[tuple[int, bytes, int]]:
    """Each segment's number, its bytes as far as they are known, and how many stretches of it are missing."""
    by_segment: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for (segment, first), lines in sorted(parts.items()):
        by_segment[segment].append((first, lines.encode()))
    for segment, told in by_segment.items():
        data, end, holes = bytearray(), 0, 0
        for first, part in told:
            if first > end:
                holes += 1
                _end_line(data)
                data += _from_line(part)
            else:
                data += part[end - first :]
            end = max(end, first + len(part))
        yield segment, bytes(data), holes


def _end_line(data: bytearray) -> None:
    """What follows is not what followed: mend the last line, or leave it out."""
    begin = data.rfind(b"\n") + 1
    last = mended(bytes(data[begin:]))
    del data[begin:]
    if last.endswith(b"]"):
        data += last + b"\n"


def _from_line(part: bytes) -> bytes:
    """The part from the beginning of a line on."""
    return part if part[:2] in (b'["', b'{"') else part[part.find(b"\n") + 1 or len(part) :]
