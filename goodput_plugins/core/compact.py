"""Our own log entries: lines of a journal, many in one entry.

A payload holds the lines as text, since numbers of Cloud Logging are floats and would lose nanoseconds::

    {"job_name": "r", "schema": "goodput-journal/1", "attempt": "20261129T...-3f2a", "start": "1780000000000000000",
     "first": 40, "lines": "[\\"h\\",1780000000000000000]\\n..."}

``first`` counts the attempt's lines; an entry that comes twice is read once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from goodput_plugins.core.events import SCHEMA, Event, Kind, decode, event_of
from goodput_plugins.core.report import iso
from goodput_plugins.core.runlog import Life

LARGEST = 100_000
"""How many characters of lines go into one entry; Cloud Logging takes 256 KB."""


def entries(header: Mapping[str, Any], lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """The log entries of an attempt: its journal's header, and the lines after it."""
    attempt = str(header["attempt"])
    for first, some in _parts([line.decode() for line in lines]):
        yield {
            "insertId": f"{attempt}-{first:012}",
            "severity": "INFO",
            "timestamp": iso(decode(some[-1]).time),
            "jsonPayload": {
                "job_name": header["run"],
                "schema": SCHEMA,
                "attempt": attempt,
                "start": str(header["start"]),
                "first": first,
                "lines": "\n".join(some),
            },
        }


def _parts(lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """The lines in parts, each with the place of its first."""
    begin = size = 0
    for at, line in enumerate(lines):
        if size + len(line) > LARGEST and at > begin:
            yield begin, lines[begin:at]
            begin, size = at, 0
        size += len(line) + 1
    if begin < len(lines):
        yield begin, lines[begin:]


class Attempts:
    """Puts entries of ours together again."""

    def __init__(self) -> None:
        self.torn = 0
        """Lines that could not be read."""
        self._starts: dict[str, int] = {}
        self._parts: defaultdict[str, dict[int, str]] = defaultdict(dict)

    def add(self, payload: Mapping[str, Any]) -> bool:
        """Take in a payload; False if it is none of ours, or of another version."""
        attempt, start, first, lines = (payload.get(key) for key in ("attempt", "start", "first", "lines"))
        if payload.get("schema") != SCHEMA or not isinstance(attempt, str) or not isinstance(lines, str):
            return False
        try:
            self._starts[attempt] = int(str(start))
            self._parts[attempt][int(first)] = lines  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return False
        return True

    def __bool__(self) -> bool:
        return bool(self._parts)

    def join(self, other: Attempts) -> None:
        """Take in all that another one holds."""
        self._starts |= other._starts
        for attempt, parts in other._parts.items():
            self._parts[attempt] |= parts

    def lives(self) -> list[Life]:
        """The lives of the primary process, by start."""
        lives = []
        for attempt, parts in self._parts.items():
            events = [event for _, lines in sorted(parts.items()) for event in self._events(lines)]
            if not any(event.kind is Kind.RANK and event.step for event in events):
                life = Life(attempt, self._starts[attempt], [])
                life.add(event for event in events if event.kind is not Kind.LOST)
                lives.append(life)
        return sorted(lives, key=lambda life: (life.start, life.id))

    def _events(self, lines: str) -> Iterator[Event]:
        for line in lines.splitlines():
            try:
                yield event_of(json.loads(line))
            except (ValueError, RecursionError):
                self.torn += 1
