"""What is told of steps, and windows."""

from __future__ import annotations

import pytest
from few_events import (
    GOOD,
    OTHER,
    WASTED,
    S,
    alive,
    at,
    during,
    end,
    life,
    log,
    report,
    saved,
    spent,
    step,
    steps,
    window,
)

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Activity, Event, Kind

# --- step_time_deviation, max_productive, preserved -------------------------------------------------------------------


def deviation(durations: list[float]) -> float:
    starts = [10 + sum(durations[:i]) for i in range(len(durations) + 1)]
    told = [step(8, 0), *(step(when, i + 1) for i, when in enumerate(starts))]
    found = report(log(life(0, told, end(starts[-1] + 2))))
    assert found.steps.deviation is not None
    return found.steps.deviation / S


def test_a_step_time_of_nothing_is_unknown() -> None:
    told = [event for n in range(50) for event in (step(10 + n / 1e6, n), Event(Kind.DEVICE, at(10), step=n))]
    found = report(log(life(0, [*told, step(20, 50)], end(22))), ideal=None)
    assert (found.steps.ideal, found.steps.p50, found.steps.deviation) == (None, None, None)


def test_deviation_is_the_mean_with_fewer_than_100_steps() -> None:
    assert deviation([2.0, 3.0, 1.5, 2.0]) == pytest.approx((0 + 1 + 0.5 + 0) / 4)


def test_deviation_is_the_90th_percentile_of_the_last_100() -> None:
    assert deviation([9.0] * 20 + [2.0] * 80 + [2.5] * 20) == pytest.approx(0.5)


def test_deviation_is_measured_against_the_thousand_steps_before() -> None:
    assert deviation([2.25] * 1_000 + [2.0] * 80 + [2.75] * 20) == pytest.approx(0.75 - 0.25)


def test_max_productive_is_the_highest_preserved_step() -> None:
    running = log(life(0, steps(10, 10), saved(3, 17.5, 18, durable=25), saved(7, 25.5, 26, durable=999), alive(30)))
    assert report(running, as_of=at(24)).steps.max_productive is None
    assert report(running, as_of=at(30)).steps.max_productive == 3
    assert report(log(life(0, steps(10, 10), end(30)))).steps.max_productive == 9


def test_a_failed_commit_preserves_nothing() -> None:
    failed = Event(Kind.COMMIT_FAILED, at(18), step=3, name="OSError")
    found = report(log(life(0, steps(10, 10), during(Activity.SAVE, 17.5, 18, step=3), failed, alive(30))))
    assert found.preserved == 0
    assert found.steps.max_productive is None


def test_preserved_goodput_counts_preserved_steps_only() -> None:
    lost = log(life(0, steps(10, 10), saved(3, 17.5, 18), alive(30)))
    assert report(lost).preserved == (3 * 2 + 1.5) * S
    assert report(log(life(0, steps(10, 10), end(30)))).preserved == 20 * S


# --- Windows ----------------------------------------------------------------------------------------------------------


def test_a_window_is_judged_by_everything_that_is_known() -> None:
    killed = life(0, steps(10, 5), alive(20))
    restarted = life(50, during(Activity.RESTORE, 51, 52, step=1), steps(55, 3, number=2), end(61))
    assert window(log(killed, restarted), 10, 20)[WASTED] == 6 * S
    assert window(log(killed, restarted), 10, 20)[GOOD] == 4 * S


def test_overlapped_work_is_in_the_window_that_it_ran_in() -> None:
    commit = Event(Kind.COMMIT, at(19), thread=2, step=1, duration=4 * S)
    found = log(life(0, steps(10, 2), during(Activity.SAVE, 14, 15, step=1), steps(15, 3, number=2), commit, end(21)))
    assert window(found, 0, 21)[Bucket.SAVE_ASYNC] == 4 * S
    assert window(found, 16, 18)[Bucket.SAVE_ASYNC] == 2 * S
    assert window(found, 0, 12)[Bucket.SAVE_ASYNC] == 0


def test_a_window_holds_one_generation_the_newest_in_it() -> None:
    twice = log(life(0, steps(10, 3), end(16)), life(100, steps(105, 4), end(113)))
    assert report(twice, window=(at(0), at(50))).generation == 0
    assert report(twice, window=(at(0), at(110))).generation == 1
    assert window(twice, 0, 110)[GOOD] == 5 * S


def test_a_single_hang_is_no_burst_however_long_it_was() -> None:
    told = [*steps(10, 150), step(10 + 300 + 3_000, 150), *steps(10 + 300 + 3_002, 150, number=151)]
    answer = spent(log(life(0, told, end(10 + 3_602 + 2))), ideal=None)
    assert answer[OTHER, "SLOW_STEP"] == pytest.approx(3_000, abs=5)
