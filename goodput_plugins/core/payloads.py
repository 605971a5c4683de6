"""What each payload of Google's library and of Orbax's cloud logger says, as events of ours (see INTEROP)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from goodput_plugins.core.columns import UNKNOWN
from goodput_plugins.core.events import Activity, Event, Kind, is_number

LATEST = 2**63 / 1e9
"""Times beyond it (year 2262) are no times, s."""

_PAIRS = {
    "tpu_init": Activity.DEVICE_INIT,
    "training_prep": Activity.PREPARATION,
    "data_loading": Activity.DATA,
    "elastic_reinit": Activity.REINITIALIZATION,
}


class NotUnderstood(ValueError):
    """A payload that tells nothing we know."""


def translate(payload: Mapping[str, Any], written: int = UNKNOWN) -> Iterator[Event]:
    """The events that one payload tells.

    Args:
        payload: what an entry told.
        written: when the entry was written, ns since the epoch; UNKNOWN if it does not say.

    Raises:
        NotUnderstood: it tells nothing we know, or its times are no times.
    """
    if "event_type" in payload:
        yield from _orbax(payload, written)
    elif "step_start_time" in payload:
        yield Event(Kind.STEP, _time(payload["step_start_time"]), 0, step_number(payload.get("step_count")))
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


def _orbax(payload: Mapping[str, Any], written: int) -> Iterator[Event]:
    """A save or restore: where its blocking part lies, as far as it was told."""
    kind = payload["event_type"]
    if kind not in ("save", "restore", "emergency_restore"):
        raise NotUnderstood("unknown event_type")
    blocking = ("checkpoint_manager_blocking", "checkpointer_blocking")
    pairs = blocking if kind == "save" else ("checkpoint_manager", "checkpointer")
    step = step_number(payload.get("step"))
    activity = Activity.SAVE if kind == "save" else Activity.RESTORE
    for prefix in pairs:
        start, took = payload.get(f"{prefix}_start_time"), payload.get(f"{prefix}_duration_secs")
        if start is not None and took is not None:
            begin, duration = _time(start), max(0, _time(took))
            break
    else:
        if written == UNKNOWN:
            raise NotUnderstood("a checkpoint event without a time")
        begin, duration = written, 0
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
    if not 0 <= value < LATEST:
        raise NotUnderstood("a time that no clock shows")
    whole = int(value)
    return whole * 1_000_000_000 + round((value - whole) * 1_000_000_000)


def step_number(value: Any) -> int | None:
    """A step's number, which some clients tell as a float; None if it is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and is_number(value) else None
