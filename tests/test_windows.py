"""Any stretch of time can be asked for: also inside gaps, before the first step, after a death, rolling."""

from __future__ import annotations

from collections import Counter

import pytest

from goodput_plugins.core.attribution.tally import Window
from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Life, RunLog

SECOND = 1_000_000_000
T0 = 1_780_000_000 * SECOND
LATER = T0 + 10**6 * SECOND


def at(seconds: float) -> int:
    return T0 + round(seconds * SECOND)


def attempt(start: float, first_step: int, end: str | None) -> Life:
    """10 s of preparation (3 of them accelerator init), 100 steps of 1 s, a save after 50 of them."""
    life = Life(f"life-{start}", at(start), [])
    events = [Event(Kind.SPAN, at(start + 2), activity=Activity.DEVICE_INIT, duration=3 * SECOND)]
    events += [Event(Kind.STEP, at(start + 10 + step + 2 * (step >= 50)), 0, first_step + step) for step in range(100)]
    events.append(Event(Kind.SPAN, at(start + 60), 0, first_step + 49, Activity.SAVE, None, 2 * SECOND))
    events.append(Event(Kind.COMMIT, at(start + 62), 0, first_step + 49))
    if end is not None:
        events.append(Event(Kind.END, at(start + 112), name=end))
    life.add(events)
    return life


JOURNAL = RunLog("r", [attempt(0, 0, "exception:OSError"), attempt(162, 50, "completed")])
"""From 0 to 112 s, a crash, 50 s of outage, from 162 to 274 s; of the first attempt steps 50 to 99 are lost."""


def foreign() -> RunLog:
    """The same as entries of Google's library."""
    entries: list[dict[str, object]] = []
    for life in JOURNAL.lives:
        start = life.start / 1e9
        entries.append({"job_start_time": start})
        entries += [{"tpu_init_start_time": start + 2}, {"tpu_init_end_time": start + 5}]
        for time, number in zip(life.steps.times, life.steps.numbers, strict=True):
            entries.append({"step_count": number, "step_start_time": time / 1e9})
        entries.append(
            {
                "event_type": "save",
                "step": life.steps.numbers[49],
                "checkpoint_manager_blocking_start_time": start + 60,
                "checkpoint_manager_blocking_duration_secs": 2.0,
            }
        )
    entries.append({"active_slices": 1, "elastic_slice_counts_timestamp": at(112) / 1e9})  # the last sign of life
    entries.append({"job_end_time": at(274) / 1e9})
    (log,) = read_entries([{"job_name": "r", **entry} for entry in entries])
    return log


LOGS = {"journal": JOURNAL, "entries": foreign()}


def ask(log: RunLog, window: Window | None, **asked: int) -> Report:
    return calculate(log, now=asked.pop("now", LATER), window=window, **asked)


def spent(report: Report) -> dict[str, float]:
    """Seconds by bucket, those that are 0 left out."""
    found = {b.value: report.breakdown[b] / SECOND for b in (Bucket.PRODUCTIVE, *BADPUT) if report.breakdown[b]}
    return {name: pytest.approx(seconds, abs=1e-3) for name, seconds in found.items()}


PREPARATION, INIT, SAVE = "TRAINING_PREP", "TPU_INITIALIZATION", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"
RECOVERY, LOST = "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "WASTED_PROGRESS_FROM_DISRUPTION"


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (-100, -50, {}),
        (-50, 1, {PREPARATION: 1}),
        (1, 4, {PREPARATION: 1, INIT: 2}),
        (4, 12.5, {INIT: 1, PREPARATION: 5, "PRODUCTIVE": 2.5}),
        (12.25, 12.5, {"PRODUCTIVE": 0.25}),
        (59.5, 61, {"PRODUCTIVE": 0.5, SAVE: 1}),
        (60.5, 62.5, {SAVE: 1.5, LOST: 0.5}),
        (100, 102, {LOST: 2}),
        (110, 120, {LOST: 2, RECOVERY: 8}),
        (120, 160, {RECOVERY: 40}),
        (150, 165, {RECOVERY: 12, PREPARATION: 2, INIT: 1}),
        (173, 174, {"PRODUCTIVE": 1}),
        (273, 400, {"PRODUCTIVE": 1}),
        (400, 500, {}),
        (50, 50, {}),
    ],
)
def test_a_window_holds_what_lies_in_it(kind: str, start: float, end: float, expected: dict[str, float]) -> None:
    report = ask(LOGS[kind], (at(start), at(end)))
    assert spent(report) == expected
    assert report.to_json()["goodput_percent"] == (
        pytest.approx(100 * expected.get("PRODUCTIVE", 0) / sum(expected.values()), abs=1e-3) if expected else None
    )


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("length", [0.3, 7, 60, 3600])
def test_rolling_windows_add_up_to_the_whole(kind: str, length: float) -> None:
    total: Counter[Bucket] = Counter()
    begin, disruptions = T0, 0
    while begin < at(274):
        end = min(at(274), begin + round(length * SECOND))
        report = ask(LOGS[kind], (begin, end))
        assert report.breakdown.elapsed == end - begin
        total.update({bucket: report.breakdown[bucket] for bucket in (Bucket.PRODUCTIVE, *BADPUT)})
        disruptions += report.disruptions
        begin = end
    whole = ask(LOGS[kind], None)
    assert +total == +Counter({b: whole.breakdown[b] for b in (Bucket.PRODUCTIVE, *BADPUT)})
    assert disruptions == whole.disruptions == 1


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("end", [5, 30.5, 61, 100.25, 130, 166, 250.75])
def test_a_window_up_to_now_is_asked_for_while_it_happens(kind: str, end: float) -> None:
    """As the rolling window of a monitor: what comes later is not known yet."""
    report = ask(LOGS[kind], (at(end - 20), at(end)), as_of=at(end), now=at(end))
    assert report.breakdown.elapsed == at(end) - max(T0, at(end - 20))
    assert report.breakdown[Bucket.WASTED_PROGRESS] == 0 or end > 162
    if end == 130 and kind == "journal":
        assert spent(report) == {"PRODUCTIVE": 2, RECOVERY: 18}


@pytest.mark.parametrize("kind", LOGS)
def test_a_window_after_a_death_is_outage_until_somebody_starts_again(kind: str) -> None:
    died = RunLog("r", LOGS[kind].lives[:1])
    for length in (10, 3600):
        report = ask(died, (at(1000), at(1000 + length)), now=at(1000 + length))
        assert report.to_json()["goodput_percent"] == 0.0
        assert spent(report) == {RECOVERY: length}


def test_a_window_after_a_stop_by_the_user_is_left_out() -> None:
    stopped = RunLog("r", [attempt(0, 0, "user")])
    report = ask(stopped, (at(1000), at(1010)), now=at(1010))
    assert report.breakdown.elapsed == 0 and report.breakdown[Bucket.EXCLUDED] == 10 * SECOND
    assert report.to_json()["goodput_percent"] is None
