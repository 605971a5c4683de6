"""Logs of a few events, and what attribution makes of them: for tests that hold one claim of a rule each.

Times are seconds after ``T0``. Where a rule judges by the ideal step time it is given (2 s), unless the claim is
about the ideal itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from goodput_plugins.core.attribution import Segment, attribute
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.report import Breakdown, Report
from goodput_plugins.core.runlog import Life, RunLog

S = 1_000_000_000
T0 = 1_780_000_000 * S
LATER = T0 + 10**9 * S

GOOD, PREP, INIT = Bucket.PRODUCTIVE, Bucket.TRAINING_PREP, Bucket.TPU_INITIALIZATION
STARTUP, DATA, SAVE = Bucket.PROGRAM_STARTUP, Bucket.DATA_LOADING_SYNC, Bucket.SAVE
RESTORE, WASTED, RECOVERY = Bucket.RESTORE, Bucket.WASTED_PROGRESS, Bucket.INFRASTRUCTURE_RECOVERY
CUSTOM, OTHER, EXCLUDED = Bucket.CUSTOM, Bucket.OTHER, Bucket.EXCLUDED


# --- writing logs ---------------------------------------------------------------------------------------------------


def at(seconds: float) -> int:
    return T0 + round(seconds * S)


def step(when: float, number: int | None = None, thread: int = 0) -> Event:
    return Event(Kind.STEP, at(when), thread, number)


def steps(first: float, count: int, every: float = 2, number: int | None = 0, stride: int = 1) -> list[Event]:
    """``count`` step starts, ``every`` seconds apart."""
    return [step(first + every * i, None if number is None else number + stride * i) for i in range(count)]


def during(
    activity: Activity,
    start: float,
    end: float | None,
    name: str | None = None,
    thread: int = 0,
    step: int | None = None,
) -> list[Event]:
    """An activity's begin, and its end unless that was lost."""
    begin = Event(Kind.BEGIN, at(start), thread, step, activity, name)
    return [begin] if end is None else [begin, Event(Kind.FINISH, at(end), thread, step, activity, name)]


def span(activity: Activity, start: float, seconds: float) -> Event:
    return Event(Kind.SPAN, at(start), activity=activity, duration=round(seconds * S))


def end(when: float, how: str = "completed") -> Event:
    return Event(Kind.END, at(when), name=how)


def alive(*whens: float) -> list[Event]:
    return [Event(Kind.HEARTBEAT, at(when), thread=9) for when in whens]


def done(ordinal: int, when: float) -> Event:
    return Event(Kind.DEVICE, at(when), step=ordinal)


def idle(start: float, end: float) -> Event:
    return Event(Kind.IDLE, at(start), duration=round((end - start) * S))


def saved(number: int, start: float, end: float, durable: float | None = None) -> list[Event]:
    commit = at(end if durable is None else durable)
    return [*during(Activity.SAVE, start, end, step=number), Event(Kind.COMMIT, commit, step=number, duration=0)]


HOST = Event(Kind.PLUGIN, T0, name="torch", data={"version": "2", "sees": [], "device": "host"})
"""Says that the device is the host."""


def life(start: float, *events: Event | Iterable[Event]) -> Life:
    told = [Event(Kind.START, at(start))]
    for e in events:
        told.extend([e] if isinstance(e, Event) else e)
    return Life(f"life-{start}", at(start), sorted(told, key=lambda e: e.time))


def log(*lives: Life) -> RunLog:
    return RunLog("r", list(lives))


def entries(*payloads: tuple[str, float] | dict[str, Any]) -> list[dict[str, Any]]:
    """Log entries: ``(key, seconds)`` or a payload whose times are in seconds after T0."""
    written = []
    for number, given in enumerate(payloads):
        payload = {given[0]: given[1]} if isinstance(given, tuple) else given
        seconds = {k: v + T0 / S if k.endswith("_time") and v is not None else v for k, v in payload.items()}
        written.append({"insertId": str(number), "jsonPayload": {"job_name": "r", **seconds}})
    return written


def foreign(*payloads: tuple[str, float] | dict[str, Any]) -> RunLog:
    (found,) = read_entries(entries(*payloads))
    return found


def logged(when: float, number: int) -> dict[str, Any]:
    return {"step_count": number, "step_start_time": when}


def all_logged(first: float, count: int, every: float = 2, number: int = 0) -> list[dict[str, Any]]:
    return [logged(first + every * i, number + i) for i in range(count)]


# --- reading answers ------------------------------------------------------------------------------------------------

Answer = dict[Any, float]


def spent(found: RunLog, *, ideal: float | None = 2, generation: int = -1, as_of: float | None = None) -> Answer:
    """Seconds by bucket, and by (bucket, sub-source) where there is one."""
    chosen = timeline(found, ideal=ideal, as_of=as_of)[generation]
    total: Counter[Any] = Counter()
    for s in chosen:
        total[s.bucket] += s.end - s.start
        if s.sub is not None:
            total[s.bucket, s.sub] += s.end - s.start
    return {source: ns / S for source, ns in total.items()}


def timeline(found: RunLog, *, ideal: float | None = 2, as_of: float | None = None) -> list[list[Segment]]:
    when = None if as_of is None else at(as_of)
    judged_by = None if ideal is None else round(ideal * S)
    return [list(g.segments()) for g in attribute(found, as_of=when, ideal=judged_by).generations]


def report(found: RunLog, *, now: float | None = None, ideal: float | None = 2, **query: Any) -> Report:
    judged_by = None if ideal is None else round(ideal * S)
    return calculate(found, now=LATER if now is None else at(now), ideal=judged_by, **query)


def window(found: RunLog, low: float, high: float) -> Breakdown:
    return report(found, window=(at(low), at(high))).breakdown


def is_(answer: Answer, expected: Answer) -> None:
    """The answer is exactly this, to the microsecond; sub-sources are compared where they are named."""
    buckets = {k: v for k, v in answer.items() if isinstance(k, Bucket)}
    assert buckets == pytest.approx({k: v for k, v in expected.items() if isinstance(k, Bucket) and v}, abs=1e-6)
    subs = {k: v for k, v in expected.items() if not isinstance(k, Bucket)}
    assert {k: answer.get(k, 0) for k in subs} == pytest.approx(subs, abs=1e-6)
