"""A run whose report the tests of exporters send."""

from __future__ import annotations

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Life, RunLog

S = 10**9
T0 = 1_780_000_000 * S


def report(until: int = 100, *, events: int = 1, window: tuple[int, int] | None = None) -> Report:
    """Of 2 s steps from second 10 on, with evaluations of 10 ms, and a hook that saves can be seen by."""
    told = [
        Event(Kind.START, T0),
        Event(Kind.PLUGIN, T0, name="orbax", data={"version": "1", "sees": [Bucket.SAVE.value]}),
    ]
    for number in range(until // 2):
        told.append(Event(Kind.STEP, T0 + (10 + 2 * number) * S, step=number))
    for number in range(events):
        at = T0 + 12 * S + 20_000_000 * number
        told.append(Event(Kind.SPAN, at, activity=Activity.CUSTOM, name=f"EVAL_{number}", duration=10_000_000))
    log = RunLog("r", [Life("a", T0, sorted(told, key=lambda event: event.time))])
    return calculate(log, now=T0 + (10 + until) * S, window=window)
