"""Reading entries of Cloud Logging: payloads of Google's library and of Orbax's cloud logger.

Takes what ``gcloud logging read --format=json`` prints, already parsed, and makes the same run logs
that journals make. Such entries name no process, so here they are put into lives: a job start
begins one, unless another host is telling of the same start; so does an accelerator-init or
preparation start that follows a step, when the job start was lost. See INTEROP for the payloads.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from goodput_plugins.core.attribution.observe import sorted_events
from goodput_plugins.core.events import Activity, Event, Kind, is_number
from goodput_plugins.core.runlog import Life, RunLog

COPY_NS = 5_000_000_000
"""A start equal in kind to one still open, this soon after it, is another process's copy."""

_LATEST = 2**63 / 1e9
"""Times beyond it (year 2262) are no times."""

_PAIRS = {
    "tpu_init": Activity.DEVICE_INIT,
    "training_prep": Activity.PREPARATION,
    "data_loading": Activity.DATA,
    "elastic_reinit": Activity.REINITIALIZATION,
}


class NotUnderstood(ValueError):
    """A payload that tells nothing we know."""


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
        log.lives, copies = split(sorted_events(self._events()), name)
        if copies:
            text = f"{copies} starts were told by more than one process; each is counted once."
            log.notes.append(("foreign-copies", text))
        if self.skipped:
            what = ", ".join(f"{n} x {reason}" for reason, n in sorted(self.skipped.items()))
            text = f"{self.skipped.total()} entries were not understood ({what})."
            log.notes.append(("not-understood-entries", text))
        return log

    def _events(self) -> list[Event]:
        events: list[Event] = []
        for payload, written in self.told.values():
            try:
                events.extend(translate(payload, written))
            except NotUnderstood as reason:
                self.skipped[str(reason)] += 1
        return events


def translate(payload: Mapping[str, Any], written: str = "") -> Iterator[Event]:
    """The events that one payload tells.

    Raises:
        NotUnderstood: it tells nothing we know, or its times are no times.
    """
    if "event_type" in payload:
        yield from _orbax(payload, written)
    elif "step_start_time" in payload:
        yield Event(Kind.STEP, _time(payload["step_start_time"]), 0, _step(payload.get("step_count")))
    elif "job_start_time" in payload:
        yield Event(Kind.START, _time(payload["job_start_time"]))
    elif "job_end_time" in payload:
        yield Event(Kind.END, _time(payload["job_end_time"]), name="completed")
    elif "custom_badput_event_type" in payload:
        yield _edge(payload, "custom_badput_event", Activity.CUSTOM, str(payload["custom_badput_event_type"]).upper())
    elif "elastic_wait_event_type" in payload:
        scaling = "scale_up" in str(payload["elastic_wait_event_type"]).lower()
        yield _edge(payload, "elastic_wait", Activity.SCALE_UP if scaling else Activity.SLICE_DOWN, None)
    elif "elastic_slice_counts_timestamp" in payload:
        yield Event(Kind.HEARTBEAT, _time(payload["elastic_slice_counts_timestamp"]))
    else:
        for prefix, activity in _PAIRS.items():
            if f"{prefix}_start_time" in payload or f"{prefix}_end_time" in payload:
                yield _edge(payload, prefix, activity, None)
                return
        raise NotUnderstood("unknown payload")


def _edge(payload: Mapping[str, Any], prefix: str, activity: Activity, name: str | None) -> Event:
    """The begin or the end of an activity."""
    start = payload.get(f"{prefix}_start_time")
    if start is not None:
        return Event(Kind.BEGIN, _time(start), activity=activity, name=name)
    return Event(Kind.FINISH, _time(payload.get(f"{prefix}_end_time")), activity=activity, name=name)


def _orbax(payload: Mapping[str, Any], written: str) -> Iterator[Event]:
    """A save or restore: where its blocking part lies, as far as it was told."""
    kind = payload["event_type"]
    if kind not in ("save", "restore", "emergency_restore"):
        raise NotUnderstood("unknown event_type")
    blocking = ("checkpoint_manager_blocking", "checkpointer_blocking")
    pairs = blocking if kind == "save" else ("checkpoint_manager", "checkpointer")
    step = _step(payload.get("step"))
    activity = Activity.SAVE if kind == "save" else Activity.RESTORE
    for prefix in pairs:
        start, took = payload.get(f"{prefix}_start_time"), payload.get(f"{prefix}_duration_secs")
        if start is not None and took is not None:
            begin, duration = _time(start), max(0, _time(took))
            break
    else:
        begin, duration = _written(written), 0
    yield Event(Kind.SPAN, begin, 0, step, activity, None, duration)
    if kind == "save":
        # The log does not tell when an async save was durable: it counts as such when it was told.
        yield Event(Kind.COMMIT, begin + duration, 0, step)
        if payload.get("reached_preemption") is True:
            yield Event(Kind.NOTICE, begin, name="preemption")


def _time(value: Any) -> int:
    """POSIX seconds as nanoseconds, whole seconds and fraction scaled apart."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NotUnderstood("a time that is no number")
    if not 0 <= value < _LATEST:
        raise NotUnderstood("a time that no clock shows")
    whole = int(value)
    return whole * 1_000_000_000 + round((value - whole) * 1_000_000_000)


def _step(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and is_number(value) else None


def _written(written: str) -> int:
    """The entry's own timestamp."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise NotUnderstood("a checkpoint event without a time") from None
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000


def split(events: list[Event], name: str) -> tuple[list[Life], int]:
    """Put a job's events, in order of time, into lives.

    Returns:
        The lives, and how many starts were copies of another process.
    """
    splitter = _Splitter(name, _ends_of_preparations(events))
    for event in events:
        splitter.put(event)
    return splitter.lives, splitter.copies


def _ends_of_preparations(events: list[Event]) -> dict[int, int]:
    """For the time of each preparation's begin, when it ended; nothing if its end was lost."""
    ends: dict[int, int] = {}
    open_at: int | None = None
    for event in events:
        if event.kind is Kind.START:
            open_at = None
        elif event.activity is Activity.PREPARATION:
            if event.kind is Kind.BEGIN:
                open_at = event.time
            elif event.kind is Kind.FINISH and open_at is not None:
                ends[open_at] = event.time
                open_at = None
    return ends


class _Splitter:
    """Goes through a job's events once; a life at a time is open."""

    def __init__(self, name: str, preparations: dict[int, int]) -> None:
        self.name = name
        self.preparations = preparations
        self.lives: list[Life] = []
        self.copies = 0
        self.stepped = False
        self.started = False
        self.prepared_at = 0
        self.open: dict[tuple[Activity | None, str | None], int] = {}
        self.last_step: Event | None = None

    def put(self, event: Event) -> None:
        if self._begins_life(event):
            self._new_life(event.time)
        elif event.kind is Kind.START and self.started:
            self.copies += 1
            return
        self.started |= event.kind is Kind.START
        if self._is_copy(event) or self._is_of_the_old_life(event):
            return
        if not self.lives:
            self._new_life(event.time)
        self.lives[-1].events.append(event)

    def _new_life(self, at: int) -> None:
        self.lives.append(Life(f"{self.name}-{len(self.lives)}", at, [], foreign=True))
        self.stepped = self.started = False
        self.open.clear()
        self.last_step = None
        self.prepared_at = 0

    def _begins_life(self, event: Event) -> bool:
        if event.kind is Kind.START:
            if not self.lives:
                return True
            return self.stepped or event.time - self.lives[-1].start > COPY_NS
        begins = event.kind is Kind.BEGIN and event.activity in (Activity.DEVICE_INIT, Activity.PREPARATION)
        return begins and self.stepped

    def _is_copy(self, event: Event) -> bool:
        if event.kind is Kind.BEGIN:
            if event.activity is Activity.PREPARATION:
                self.prepared_at = max(self.prepared_at, self.preparations.get(event.time, 0))
            key = (event.activity, event.name)
            opened = self.open.get(key)
            if opened is not None and event.time - opened <= COPY_NS:
                self.copies += 1
                return True
            self.open[key] = event.time
        elif event.kind is Kind.FINISH:
            self.open.pop((event.activity, event.name), None)
        elif event.kind is Kind.STEP:
            last = self.last_step
            if last is not None and last.step == event.step and event.time - last.time <= COPY_NS:
                self.copies += 1
                return True
        return False

    def _is_of_the_old_life(self, event: Event) -> bool:
        """A step before the new life's preparation has ended: the old process is still at work."""
        if event.kind is not Kind.STEP:
            return False
        if len(self.lives) > 1 and event.time < self.prepared_at:
            return True
        self.stepped = True
        self.last_step = event
        self.open.clear()
        return False

