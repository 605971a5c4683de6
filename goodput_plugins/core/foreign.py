"""Reading entries of Cloud Logging: payloads of Google's library and of Orbax's cloud logger.

Takes what ``gcloud logging read --format=json`` prints, already parsed, and makes the same run logs
that journals make: ``payloads`` says what each entry means, ``lives`` whose it is.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from goodput_plugins.core.attribution.observe import sorted_events
from goodput_plugins.core.events import Event, Kind, in_order
from goodput_plugins.core.lives import split
from goodput_plugins.core.payloads import NotUnderstood, translate
from goodput_plugins.core.runlog import RunLog

SKEW_NS = 1_000_000_000
"""Clocks of the hosts of one job differ by less."""


def read_entries(entries: Iterable[Mapping[str, Any]]) -> list[RunLog]:
    """The run logs in these entries, one a job name, by name.

    Args:
        entries: parsed log entries (or bare payloads), in any order; duplicates (same insert id or
            equal payload) are one. What cannot be understood is counted in the log's notes.
    """
    jobs: dict[str, _Job] = defaultdict(_Job)
    nameless = _Job()
    for entry in entries:
        payload = entry.get("jsonPayload", entry) if isinstance(entry, Mapping) else None
        if not isinstance(payload, Mapping):
            nameless.skipped["no payload"] += 1
            continue
        name = payload.get("job_name")
        job = jobs[name] if isinstance(name, str) else nameless
        job.add(payload, entry)
    if len(jobs) == 1:
        next(iter(jobs.values())).join(nameless)
    logs = [job.log(name) for name, job in sorted(jobs.items())]
    return [log for log in logs if log.lives]


@dataclass
class _Job:
    """What was told of one job: each payload once, with the earliest time at which it was written."""

    told: dict[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, payload: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
        key = json.dumps(payload, sort_keys=True, default=str)
        written = str(entry.get("timestamp", ""))
        before = self.told.get(key)
        self.told[key] = (payload, written if before is None else min(before[1], written))

    def join(self, other: _Job) -> None:
        self.told = other.told | self.told
        self.skipped += other.skipped

    def log(self, name: str) -> RunLog:
        log = RunLog(name)
        events, lost = straightened(self._events())
        log.lives, copies = split(sorted_events(events), name)
        if lost:
            text = f"The clock stepped back by {lost / 1e9:.1f} s in all; as much time of the run is not accounted for."
            log.note("clock-stepped-back", text)
        if copies:
            text = f"{copies} starts were told by more than one process; each is counted once."
            log.note("foreign-copies", text)
        if self.skipped:
            what = ", ".join(f"{n} x {reason}" for reason, n in sorted(self.skipped.items()))
            text = f"{self.skipped.total()} entries were not understood ({what})."
            log.note("not-understood-entries", text)
        return log

    def _events(self) -> list[tuple[str, Event]]:
        """Each event with the time at which its entry was written."""
        events: list[tuple[str, Event]] = []
        for payload, written in self.told.values():
            try:
                events.extend((written, event) for event in translate(payload, written))
            except NotUnderstood as reason:
                self.skipped[str(reason)] += 1
        return events


def straightened(written: list[tuple[str, Event]]) -> tuple[list[Event], int]:
    """Events on a clock that does not step back.

    In the order in which the entries were written, a higher step that began before a lower one shows
    that the clock was set back: it and what follows are moved on to where the clock had been.

    Returns:
        The events, and by how much the clock stepped back in all, ns.
    """
    straight: list[Event] = []
    offset = 0
    highest: Event | None = None
    for _, event in sorted(written, key=lambda entry: (entry[0], in_order(entry[1]))):
        moved = event._replace(time=event.time + offset) if offset else event
        if event.kind is Kind.STEP and event.step is not None:
            if highest is not None and event.step > (highest.step or 0) and moved.time < highest.time - SKEW_NS:
                offset += highest.time - moved.time
                moved = event._replace(time=highest.time)
            highest = moved
        straight.append(moved)
    return straight, offset
