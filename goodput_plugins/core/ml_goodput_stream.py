"""A run in the payloads of Google's library while it is being recorded, an entry for each event.

What is told is what the process told, as the library's own recorder would: no attribution stands behind
it (see :mod:`~goodput_plugins.core.ml_goodput` for what does). Equal journals give equal entries, however
they are cut into stretches, so what is sent twice is the same twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from goodput_plugins.core.columns import UNKNOWN
from goodput_plugins.core.compact import Stretch
from goodput_plugins.core.events import Activity, Event, Kind, event_of
from goodput_plugins.core.journal_reading import mended
from goodput_plugins.core.orbax_payloads import checkpoint
from goodput_plugins.core.report import iso
from goodput_plugins.core.runlog import Steps

Payload = dict[str, Any]
Told = tuple[int, Payload]
"""When an entry's event was (ns since the epoch), and its payload."""

_PAIRS = {
    Activity.DEVICE_INIT: "tpu_init",
    Activity.DATA: "data_loading",
    Activity.REINITIALIZATION: "elastic_reinit",
}
_WAITS = {Activity.SLICE_DOWN: "slice_down", Activity.SCALE_UP: "scale_up"}
_COMPILING = (Activity.TRACE, Activity.LOWER, Activity.COMPILE, Activity.CACHE_LOAD)


class Stream:
    """Makes the entries of one run; takes its journals' whole lines, each attempt's in order."""

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempt] = {}
        self._next_number = 0

    def entries(self, stretch: Stretch) -> Iterator[Payload]:
        """The log entries of the lines of a stretch."""
        attempt = self._attempts.get(stretch.attempt)
        if attempt is None:
            attempt = self._attempts[stretch.attempt] = _Attempt(self._next_number)
        for line in stretch.data.split(b"\n"):
            for at, payload in attempt.line(line):
                yield {
                    "insertId": f"{stretch.attempt}-{attempt.count:09}",
                    "severity": "INFO",
                    "timestamp": iso(at),
                    "jsonPayload": {"job_name": stretch.run, **payload},
                }
                attempt.count += 1
        self._next_number = max(self._next_number, attempt.next_number)


class _Attempt:
    """One attempt, as far as it was told.

    Attributes:
        count: how many entries it has given.
        next_number: one more than its highest step.
    """

    def __init__(self, first: int) -> None:
        self.count = 0
        self.next_number = first
        self._first = first
        self._start: int | None = None
        self._prepared: list[tuple[int, int]] = []
        self._stepped = False
        self._told = 0
        self._thread = 0
        self._open: dict[tuple[Activity | None, str | None], Event] = {}

    def line(self, line: bytes) -> Iterator[Told]:
        """What one line of the journal tells."""
        try:
            event = event_of(json.loads(mended(line)))
        except (ValueError, RecursionError):  # the journal's header, a torn line
            return
        if event.kind is Kind.START and self._start is None:
            self._start = event.time
            yield event.time, {"job_start_time": _seconds(event.time)}
        elif event.kind in (Kind.STEP, Kind.RUN, Kind.STEPS):
            yield from self._steps(event)
        elif event.kind is Kind.END:
            if event.name in ("completed", "user"):
                yield event.time, {"job_end_time": _seconds(event.time)}
        elif event.thread == self._thread:
            yield from self._activity(event)

    def _steps(self, event: Event) -> Iterator[Told]:
        """Steps, and the waits between them."""
        steps = Steps(thread=self._thread if self._stepped else None, told=self._told)
        steps.add(event)
        self._told = steps.told
        if not self._stepped:
            yield from self._preparation(event.time)
            self._stepped, self._thread = True, event.thread
        told: list[Told] = []
        for at, number in zip(steps.times, steps.numbers, strict=True):
            number = self.next_number if number == UNKNOWN else number
            self.next_number = max(self.next_number, number + 1)
            told.append((at, {"step_count": number, "step_start_time": _seconds(at)}))
        for start, end in zip(steps.wait_starts, steps.wait_ends, strict=True):
            told += _pair("data_loading", start, end)
        yield from sorted(told, key=lambda one: one[0])

    def _preparation(self, until: int) -> Iterator[Told]:
        """From the process's start to the first step everything prepares that is nothing else."""
        at = until if self._start is None else self._start
        for begin, end in sorted(self._prepared):
            if at < begin:
                yield from _pair("training_prep", at, begin)
            at = max(at, end)
        if at < until:
            yield from _pair("training_prep", at, until)

    def _activity(self, event: Event) -> Iterator[Told]:
        key = (event.activity, event.name)
        if event.kind is Kind.BEGIN:
            self._open[key] = event
        elif event.kind is Kind.FINISH and (begun := self._open.pop(key, None)) is not None:
            yield from self._stretch(begun, begun.time, event.time)
        elif event.kind is Kind.SPAN:
            yield from self._stretch(event, event.time, event.time + (event.duration or 0))

    def _stretch(self, event: Event, begin: int, end: int) -> Iterator[Told]:
        """An activity that is over."""
        activity = event.activity
        if not self._stepped and activity in (Activity.DEVICE_INIT, Activity.RESTORE, Activity.DATA, Activity.CUSTOM):
            self._prepared.append((begin, end))
        if activity is Activity.SAVE:
            yield end, checkpoint("save", event.step, begin, end)
        elif activity is Activity.RESTORE:
            yield end, checkpoint("restore", event.step, begin, end)
        elif activity in _WAITS:
            kind = {"elastic_wait_event_type": _WAITS[activity]}
            yield begin, {**kind, "elastic_wait_start_time": _seconds(begin)}
            yield end, {**kind, "elastic_wait_end_time": _seconds(end)}
        elif activity in _COMPILING and self._stepped:
            yield from _pair("custom_badput_event", begin, end, {"custom_badput_event_type": "PROGRAM_STARTUP"})
        elif activity is Activity.CUSTOM:
            yield from _pair("custom_badput_event", begin, end, {"custom_badput_event_type": event.name or "unknown"})
        elif activity in _PAIRS and not (activity is Activity.DEVICE_INIT and self._stepped):
            yield from _pair(_PAIRS[activity], begin, end)  # after a step, an initialisation would begin an attempt


def _pair(what: str, begin: int, end: int, kind: Payload | None = None) -> list[Told]:
    return [
        (begin, {**(kind or {}), f"{what}_start_time": _seconds(begin)}),
        (end, {**(kind or {}), f"{what}_end_time": _seconds(end)}),
    ]


def _seconds(ns: int) -> float:
    return ns / 1e9
