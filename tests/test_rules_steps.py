"""What a step is worth: rules 5, 6, 7, 10 and 11, and the ideal step time."""

from __future__ import annotations

import pytest
from few_events import (
    GOOD,
    OTHER,
    PREP,
    RECOVERY,
    RESTORE,
    SAVE,
    STARTUP,
    WASTED,
    Answer,
    S,
    alive,
    at,
    done,
    during,
    end,
    is_,
    life,
    log,
    report,
    saved,
    span,
    spent,
    step,
    steps,
    window,
)

from goodput_plugins.core.events import Activity, Event, Kind

# --- Rule 5: the first step -------------------------------------------------------------------------------------------


def test_the_first_steps_unexplained_excess_is_its_own_source() -> None:
    compiled = [span(Activity.TRACE, 10, 1), span(Activity.COMPILE, 11, 4)]
    is_(
        spent(log(life(0, compiled, step(10, 0), steps(20, 3, number=1), end(26)))),
        {PREP: 10, STARTUP: 8, (STARTUP, "TRACE"): 1, (STARTUP, "COMPILE"): 4, (STARTUP, "FIRST_STEP"): 3, GOOD: 8},
    )


def test_where_every_fifth_step_is_logged_the_first_interval_holds_five() -> None:
    is_(spent(log(life(0, step(10, 0), steps(27, 4, 10, 5, 5), end(67)))), {PREP: 10, STARTUP: 7, GOOD: 50})


def test_a_first_step_that_was_not_logged_begins_where_preparation_ended() -> None:
    crashed = life(0, step(5, 0), steps(15, 5, 10, 5, 5), during(Activity.SAVE, 61, 62, step=27), alive(62))
    crashed.events.append(Event(Kind.COMMIT, at(62), step=27, duration=0))
    prepared = [*during(Activity.PREPARATION, 101, 105), *during(Activity.RESTORE, 102, 104, step=27)]
    resumed = life(100, prepared, steps(109, 3, 10, 30, 5), end(139))
    answer = spent(log(crashed, resumed))
    first, ideal = 109 - 105, 2 * 2  # steps 28 and 29
    assert answer[PREP] == 5 + 5 - 2
    assert answer.get(STARTUP, 0) == first - ideal
    assert answer[GOOD] == pytest.approx(5 * 10 + 3 * 2 + ideal + 30)


def test_other_activities_before_the_first_logged_step_do_not_end_the_preparation() -> None:
    crashed = life(0, step(5, 0), steps(15, 5, 10, 5, 5), saved(27, 61, 62))
    compiled = [span(Activity.COMPILE, 105, 20), *during(Activity.SAVE, 127, 128, step=28)]
    resumed = life(100, during(Activity.RESTORE, 101, 105, step=27), compiled, steps(132, 3, 10, 30, 5), end(162))
    answer = spent(log(crashed, resumed))
    assert answer[PREP] == 5 + 1
    assert answer[STARTUP] == 20 + (132 - 105 - 20 - 1 - 2 * 2)


def test_an_attempt_of_one_step_is_judged_as_a_first_step() -> None:
    killed = life(0, step(10, 0), alive(25))
    is_(
        spent(log(killed, life(40, steps(45, 3), end(51)))),
        {PREP: 15, STARTUP: 13, (STARTUP, "FIRST_STEP"): 13, WASTED: 2, RECOVERY: 15, GOOD: 6},
    )


# --- Rule 6: the last step --------------------------------------------------------------------------------------------


def test_the_last_step_owns_the_ideal_and_the_rest_up_to_the_end_is_teardown() -> None:
    is_(spent(log(life(0, steps(10, 3), end(50)))), {PREP: 10, GOOD: 6, OTHER: 34, (OTHER, "TEARDOWN"): 34})


def test_the_last_step_owns_nothing_past_the_last_sign_of_life() -> None:
    is_(spent(log(life(0, steps(10, 3), alive(14.5)), life(40, steps(45, 3), end(51)))), {
        PREP: 15, WASTED: 4.5, RECOVERY: 25.5, GOOD: 6})  # fmt: skip


def test_a_hang_is_recovery_from_the_ideal_on() -> None:
    hung = life(0, steps(10, 3), alive(*range(15, 316, 5)))
    is_(
        spent(log(hung, life(400, steps(405, 3), end(411)))),
        {PREP: 15, WASTED: 6, RECOVERY: 384, (RECOVERY, "HANG"): 315 - 16, GOOD: 6},
    )


def test_a_crash_with_a_recorded_end_is_no_teardown() -> None:
    timed_out = life(0, steps(10, 3), alive(20), end(60, "exception:TimeoutError"))
    is_(spent(log(timed_out, life(90, steps(95, 3), end(101)))), {PREP: 15, WASTED: 6, RECOVERY: 74, GOOD: 6})


def test_if_the_next_attempt_resumes_above_it_the_last_step_completed() -> None:
    killed = life(0, steps(10, 4))
    resumed = life(100, steps(105, 3, number=4), end(111))
    is_(spent(log(killed, resumed)), {PREP: 15, GOOD: 6 + 2 + 6, RECOVERY: 82})
    later = life(100, steps(105, 3, number=6), end(111))
    is_(spent(log(killed, later)), {PREP: 15, GOOD: 6 + 3 * 2 + 6, RECOVERY: 78})


def test_a_restore_tells_where_the_next_attempt_resumes_though_its_first_steps_are_not_logged() -> None:
    killed = life(0, step(5, 0), steps(15, 2, 10, 5, 5), saved(14, 35, 36))
    resumed = life(100, during(Activity.RESTORE, 101, 105, step=14), steps(115, 3, 10, 20, 5), end(145))
    is_(spent(log(killed, resumed)), {PREP: 6, RESTORE: 4, SAVE: 1, GOOD: 30 + 10 + 30, RECOVERY: 64})


def test_the_next_attempt_tells_how_many_steps_were_done_where_not_every_step_is_logged() -> None:
    noticed = Event(Kind.NOTICE, at(27), name="preemption")
    stopped = life(0, step(5, 0), steps(15, 2, 10, 5, 5), noticed, saved(11, 29, 30), end(36))
    resumed = life(100, during(Activity.RESTORE, 101, 105, step=11), steps(105, 3, 10, 12, 5), end(135))
    is_(spent(log(stopped, resumed)), {
        PREP: 6, RESTORE: 4, SAVE: 1, GOOD: 20 + 2 * 2 + 30, OTHER: 6, RECOVERY: 64})  # fmt: skip


# --- Rule 7: stuck steps ----------------------------------------------------------------------------------------------


def one_slow(excess: float, ideal: float = 2) -> Answer:
    slow = [step(10, 0), step(10 + ideal, 1), *steps(10 + 2 * ideal + excess, 40, ideal, 2)]
    return spent(log(life(0, slow, end(10 + 42 * ideal + excess))), ideal=ideal)


def test_the_excess_of_a_stuck_step_is_its_own_source() -> None:
    is_(one_slow(10), {PREP: 10, GOOD: 84, OTHER: 10, (OTHER, "SLOW_STEP"): 10})


def test_an_excess_of_two_ideals_is_ordinary() -> None:
    is_(one_slow(4), {PREP: 10, GOOD: 88})
    is_(one_slow(4.001), {PREP: 10, GOOD: 84, OTHER: 4.001})


def test_an_excess_of_a_tenth_of_a_second_is_ordinary() -> None:
    is_(one_slow(0.1, 0.01), {PREP: 10, GOOD: 0.42 + 0.1})
    is_(one_slow(0.11, 0.01), {PREP: 10, GOOD: 0.42, OTHER: 0.11})


def test_where_most_step_time_would_be_excess_the_host_is_bursty() -> None:
    bursts = [step(10 + 20 * burst + 0.001 * i, 10 * burst + i) for burst in range(5) for i in range(10)]
    last = [step(110, 50)]
    answer = spent(log(life(0, bursts, last, end(112))), ideal=None)
    assert (OTHER, "SLOW_STEP") not in answer
    assert answer[GOOD] == pytest.approx(102, abs=0.1)


# --- Rule 10: steps logged every n-th ---------------------------------------------------------------------------------


def test_what_an_interval_has_left_is_spread_evenly_over_its_steps() -> None:
    killed = life(0, step(10, 0), steps(20, 3, 10, 5, 5), alive(50))
    restarted = life(100, during(Activity.RESTORE, 101, 103, step=11), steps(109, 3, 10, 15, 5), end(139))
    kept = 10 + 10 + 2 * 2  # step 10 and 11 of the interval from 10
    is_(
        spent(log(killed, restarted)),
        {PREP: 11, GOOD: kept + 3 * 2 + 30, WASTED: 3 * 2 + 10, RECOVERY: 50, RESTORE: 2},
    )


def test_numbers_may_skip() -> None:
    is_(spent(log(life(0, step(10, 0), step(12, 1), step(14, 3), step(16, 7), end(18)))), {PREP: 10, GOOD: 8})


# --- Rule 11: placement -----------------------------------------------------------------------------------------------


def test_the_first_steps_excess_comes_first_and_then_its_ideal_time() -> None:
    found = log(life(0, step(10, 0), steps(20, 3, number=1), end(26)))
    assert window(found, 10, 18)[STARTUP] == 8 * S
    assert window(found, 18, 20)[GOOD] == 2 * S


def test_the_ideal_time_comes_before_slow_and_teardown() -> None:
    found = log(life(0, step(10, 0), step(12, 1), *steps(24, 40, 2, 2), end(124)))
    assert window(found, 12, 14)[GOOD] == 2 * S
    assert window(found, 14, 24)[OTHER] == 10 * S
    assert window(found, 102, 104)[GOOD] == 2 * S
    assert window(found, 104, 124)[OTHER] == 20 * S


# --- The ideal step time ----------------------------------------------------------------------------------------------


def test_the_ideal_is_the_mean_of_the_steps_that_are_not_far_above_the_median() -> None:
    durations = [1.9, 2.0, 2.1] * 8 + [2.6, 2.9] + [2.0]
    starts = [10 + sum(durations[:i]) for i in range(len(durations) + 1)]
    told = [step(5, 0), *(step(when, i + 1) for i, when in enumerate(starts))]
    answer = spent(log(life(0, told, end(starts[-1] + 30))), ideal=None)
    usual = (8 * (1.9 + 2.0 + 2.1) + 2.0) / 25
    assert answer[OTHER, "TEARDOWN"] == pytest.approx(30 - usual, abs=1e-6)
    assert answer[STARTUP] == pytest.approx(5 - usual, abs=1e-6)


def test_the_ideal_is_frozen_at_the_thousandth_step() -> None:
    quick = [*steps(10, 1, number=0), *steps(15, 1_000, number=1)]
    slower = steps(15 + 2_000, 2_000, every=3, number=1_001)
    now = spent(log(life(0, quick, end(2_015))), ideal=None)
    later = spent(log(life(0, quick, slower, end(15 + 2_000 + 6_000))), ideal=None)
    assert now[STARTUP] == later[STARTUP] == pytest.approx(3)


def test_a_short_attempt_is_judged_by_the_run_so_far_else_by_a_later_attempt() -> None:
    short, long = life(0, steps(10, 3), alive(40)), life(100, steps(105, 40), end(185))
    assert spent(log(short, long), ideal=None)[RECOVERY, "HANG"] == pytest.approx(40 - 16)
    after = life(300, step(310, 40), step(317, 41), end(319))
    long_killed = life(100, steps(105, 40), saved(39, 185, 186))
    assert spent(log(long_killed, after), ideal=None)[STARTUP, "FIRST_STEP"] == pytest.approx(5)


def test_with_fewer_than_three_steps_there_is_no_ideal() -> None:
    few = log(life(0, step(10, 0), step(17, 1), step(19, 2), end(30)))
    is_(spent(few, ideal=None), {PREP: 10, STARTUP: 7, GOOD: 13})
    assert report(few, ideal=None).steps.ideal is None


def test_the_reports_ideal_is_right_within_a_percent_and_a_configured_one_wins() -> None:
    found = log(life(0, steps(10, 100), end(210)))
    assert report(found, ideal=None).steps.ideal == pytest.approx(2 * S, rel=0.01)
    assert report(found, ideal=3).steps.ideal == 3 * S


def test_waits_and_other_buckets_are_subtracted_from_the_ideal_in_full() -> None:
    told: list[Event] = []
    for i in range(30):
        told += [step(10 + 3 * i, i), *during(Activity.SAVE, 12 + 3 * i, 13 + 3 * i, step=i)]
    assert report(log(life(0, told, end(100))), ideal=None).steps.ideal == pytest.approx(2 * S, rel=0.01)


def test_steps_that_the_device_never_did_are_no_sample_of_the_ideal() -> None:
    told = [e for i in range(20) for e in (step(10 + 0.1 * i, i), done(i, 15 + 2 * i))]
    in_flight = [step(12 + 0.1 * i, 20 + i) for i in range(15)]
    killed = log(life(0, told, in_flight, alive(54)))
    assert report(killed, ideal=None).steps.ideal == pytest.approx(2 * S, rel=0.01)
    assert spent(killed, ideal=None)[STARTUP, "FIRST_STEP"] == pytest.approx(3)
