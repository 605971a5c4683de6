"""When attempts begin and end, and what lies between them: DESIGN's words, rules 2, 8 and 9."""

from __future__ import annotations

import pytest
from few_events import (
    CUSTOM,
    EXCLUDED,
    GOOD,
    OTHER,
    PREP,
    RECOVERY,
    RESTORE,
    SAVE,
    T0,
    WASTED,
    S,
    alive,
    all_logged,
    at,
    during,
    end,
    foreign,
    is_,
    life,
    log,
    logged,
    report,
    saved,
    spent,
    step,
    steps,
    timeline,
)

from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.runlog import Life, RunLog

# --- Attempts, resumes, generations, disruptions (section 1) ----------------------------------------------------------


def test_a_process_that_took_no_step_and_ended_well_is_no_attempt() -> None:
    check = life(0, during(Activity.DEVICE_INIT, 1, 3), end(4))
    evaluation = life(300, end(400))
    training = life(100, steps(110, 3), end(116))
    found = report(log(check, training, evaluation))
    assert (found.start, found.end, len(found.attempts)) == (at(100), at(116), 1)
    assert found.disruptions == 0


def test_a_process_that_took_no_step_and_failed_is_an_attempt() -> None:
    failed = life(0, during(Activity.PREPARATION, 1, 9), end(10, "exception:ValueError"))
    found = report(log(failed, life(50, steps(60, 3), end(66))))
    assert found.disruptions == 1
    assert found.breakdown[RECOVERY] == 40 * S
    assert found.breakdown[PREP] == 20 * S


@pytest.mark.parametrize(
    ("lives", "told"),
    [
        ([life(0, steps(10, 30), end(71, "exception:ValueError"))], "was not started again"),
        ([life(0, steps(10, 30), alive(70)), life(80, steps(90, 30), end(151))], "between attempts (1 disruption)"),
        ([life(0, steps(10, 30), alive(70)), life(80, steps(90, 30), alive(150))], "between attempts (2 disruptions)"),
    ],
)
def test_the_gap_after_a_failure_is_told_as_what_it_is(lives: list[Life], told: str) -> None:
    found = report(log(*lives), as_of=at(200))
    assert [told in finding.text for finding in found.findings if finding.id == "restart-gap"] == [True]


def test_a_process_that_was_killed_before_its_first_step_is_a_disruption() -> None:
    killed = life(0, during(Activity.DEVICE_INIT, 1, 3), alive(5))
    found = report(log(killed, life(50, steps(60, 3), end(66))))
    assert found.disruptions == 1
    assert found.breakdown[RECOVERY] == 45 * S


def test_a_start_after_a_completion_is_a_generation_of_its_own() -> None:
    twice = log(life(0, steps(10, 3), end(16)), life(100, steps(105, 4), end(113)))
    is_(spent(twice, generation=0), {PREP: 10, GOOD: 6})
    is_(spent(twice, generation=1), {PREP: 5, GOOD: 8})
    assert report(twice).generation == 1
    assert report(twice).disruptions == report(twice, generation=0).disruptions == 0


def test_a_start_after_a_completion_that_shows_no_step_yet_is_a_new_generation() -> None:
    assert len(timeline(log(life(0, steps(10, 3), end(16)), life(100, alive(105))))) == 2


def test_a_completion_that_is_resumed_leaves_its_gap_out() -> None:
    first = life(0, steps(10, 3), saved(2, 16, 17), end(18))
    second = life(100, during(Activity.RESTORE, 101, 104, step=2), steps(105, 3, number=3), end(111))
    is_(spent(log(first, second)), {PREP: 10 + 2, GOOD: 12, SAVE: 1, OTHER: 1, EXCLUDED: 82, RESTORE: 3})
    assert report(log(first, second)).disruptions == 0


def test_the_step_after_the_last_is_a_resume_without_a_restore_too() -> None:
    extended = log(life(0, steps(10, 3), end(16)), life(100, steps(105, 3, number=3), end(111)))
    assert len(timeline(extended)) == 1
    assert len(timeline(log(life(0, steps(10, 3), end(16)), life(100, steps(105, 3, number=4), end(111))))) == 2


def test_a_start_from_nothing_after_a_crash_wastes_everything_before() -> None:
    again = log(life(0, steps(10, 4), alive(17)), life(100, steps(110, 3), end(116)))
    is_(spent(again), {PREP: 20, WASTED: 7, RECOVERY: 83, GOOD: 6})
    assert report(again).disruptions == 1


def test_an_attempt_that_saw_a_notice_and_was_resumed_is_a_disruption_whatever_its_exit_code() -> None:
    noticed = life(0, steps(10, 3), Event(Kind.NOTICE, at(15), name="preemption"), saved(2, 16, 17), end(17))
    resumed = life(100, during(Activity.RESTORE, 101, 104, step=2), steps(105, 3, number=3), end(111))
    assert report(log(noticed, resumed)).disruptions == 1
    assert report(log(noticed, resumed)).breakdown[RECOVERY] == 83 * S
    assert report(log(noticed)).disruptions == 0


def test_a_stop_by_the_user_is_no_disruption_and_its_gap_is_left_out() -> None:
    stopped = life(0, steps(10, 3), saved(1, 13.5, 14), end(15, "user"))
    resumed = life(100, during(Activity.RESTORE, 101, 104, step=1), steps(105, 3, number=2), end(111))
    is_(
        spent(log(stopped, resumed)),
        {PREP: 12, GOOD: 3.5 + 6, SAVE: 0.5, WASTED: 1, EXCLUDED: 85, RESTORE: 3},
    )
    assert report(log(stopped, resumed)).disruptions == 0


# --- Rule 2: gaps and overlaps ----------------------------------------------------------------------------------------


def test_a_gap_after_a_crash_is_recovery_up_to_the_next_process_start() -> None:
    crashed = life(0, steps(10, 3), end(15.5, "exception:ValueError"))
    resumed = life(40, during(Activity.RESTORE, 42, 43, step=0), steps(45, 3, number=1), end(51))
    is_(spent(log(crashed, resumed)), {PREP: 14, GOOD: 2 + 6, WASTED: 3.5, RECOVERY: 24.5, RESTORE: 1})


def test_a_restart_that_repeats_no_step_is_a_disruption_all_the_same() -> None:
    crashed = life(0, steps(10, 3), saved(2, 16, 17))
    found = report(log(crashed, life(40, during(Activity.RESTORE, 41, 42, step=2), steps(45, 3, number=3), end(51))))
    assert found.disruptions == 1
    assert found.breakdown[RECOVERY] == 23 * S
    assert found.breakdown[WASTED] == 0


def test_where_two_attempts_overlap_the_newer_owns_the_time() -> None:
    old = life(0, steps(10, 10), alive(30))
    new = life(15, during(Activity.PREPARATION, 16, 20), steps(21, 3), end(27))
    is_(spent(log(old, new)), {PREP: 10 + 6, WASTED: 5, GOOD: 6})


def test_foreign_steps_before_the_new_preparation_has_ended_belong_to_the_old_attempt() -> None:
    found = foreign(
        ("job_start_time", 0), *all_logged(10, 3), ("job_start_time", 15), ("training_prep_start_time", 16),
        logged(17, 3), ("training_prep_end_time", 20), *all_logged(21, 3, number=2), ("job_end_time", 27),
    )  # fmt: skip
    answer = spent(found)
    assert (answer[PREP], answer[GOOD]) == pytest.approx((10 + 6, 4 + 6))
    assert answer.get(WASTED, 0) + answer.get(RECOVERY, 0) == pytest.approx(1)


def test_in_a_foreign_log_an_end_followed_by_a_resume_is_a_disruption_with_its_gap() -> None:
    found = foreign(
        ("job_start_time", 0), *all_logged(10, 3), ("job_end_time", 16),
        ("job_start_time", 50), *all_logged(55, 3, number=3), ("job_end_time", 61),
    )  # fmt: skip
    is_(spent(found), {PREP: 15, GOOD: 12, RECOVERY: 34})
    assert report(found).disruptions == 1
    assert report(found).findings


# --- Rule 8: the rewind -----------------------------------------------------------------------------------------------


def test_a_step_that_starts_again_takes_back_every_step_from_it_on() -> None:
    killed = life(0, steps(10, 5), alive(20))
    restarted = life(50, during(Activity.RESTORE, 51, 52, step=1), steps(55, 3, number=2), end(61))
    is_(spent(log(killed, restarted)), {PREP: 14, GOOD: 4 + 6, WASTED: 6, RECOVERY: 30, RESTORE: 1})


def test_only_the_productive_part_of_a_rolled_back_step_is_wasted() -> None:
    killed = life(
        0, step(10, 0), during(Activity.CUSTOM, 12, 15, "EVAL"), step(15, 1), during(Activity.SAVE, 17, 18), alive(18)
    )
    is_(
        spent(log(killed, life(50, steps(55, 3), end(61)))),
        {PREP: 15, CUSTOM: 3, SAVE: 1, WASTED: 4, RECOVERY: 32, GOOD: 6},
    )


def test_going_back_inside_a_process_wastes_steps_but_is_no_disruption() -> None:
    went_back = life(0, steps(10, 5), during(Activity.RESTORE, 20, 22, step=1), steps(22, 3, number=2), end(28))
    is_(spent(log(went_back)), {PREP: 10, GOOD: 4 + 6, WASTED: 6, RESTORE: 2})
    assert report(log(went_back)).disruptions == 0


def test_to_save_more_often_is_advised_where_something_was_restored() -> None:
    restored = log(life(0, steps(10, 5), during(Activity.RESTORE, 20, 22, step=1), steps(22, 3, number=2), end(28)))
    killed = log(life(0, steps(10, 5), alive(20)), life(50, steps(55, 3), end(61)))
    made_again = log(life(0, steps(10, 5), steps(20, 3, number=4), end(26)))
    advised = [
        "Saving more often" in finding.text
        for found in (restored, killed, made_again)
        for finding in report(found).findings
        if finding.id == "wasted-progress"
    ]
    assert advised == [True, True, False]


def test_a_restore_after_which_no_step_starts_takes_nothing_back() -> None:
    trained = [*steps(10, 2), *saved(1, 14, 15), *steps(15, 3, number=2)]
    best = life(0, trained, during(Activity.RESTORE, 22, 24, step=1), end(25))
    is_(spent(log(best)), {PREP: 10, GOOD: 10, SAVE: 1, RESTORE: 2, OTHER: 2})


def test_a_step_that_starts_with_the_last_sign_of_life_takes_back_too() -> None:
    killed = life(0, steps(10, 4), alive(18))
    died_at_once = life(50, step(55, 0))
    is_(spent(log(killed, died_at_once)), {PREP: 15, WASTED: 8, RECOVERY: 32})


def test_a_restore_of_step_r_means_that_the_next_step_is_r_plus_1() -> None:
    killed = life(0, steps(10, 3), saved(2, 16, 17), steps(17, 2, number=3), alive(21))
    unnumbered = [step(55 + 2 * i) for i in range(3)]
    restarted = life(50, during(Activity.RESTORE, 51, 52, step=2), unnumbered, end(61))
    is_(spent(log(killed, restarted)), {PREP: 14, GOOD: 6 + 6, WASTED: 4, SAVE: 1, RECOVERY: 29, RESTORE: 1})


def test_where_step_numbers_are_unknown_wasted_progress_is_null() -> None:
    unnumbered = life(0, steps(10, 3, number=None), alive(16))
    found = report(log(unnumbered, life(50, steps(55, 3, number=None), end(61))))
    assert found.to_json()["badput_seconds"][WASTED.value] is None
    assert found.breakdown[WASTED] == 0


# --- Rule 9: the end --------------------------------------------------------------------------------------------------


def test_a_completed_run_ends_at_its_completion() -> None:
    assert report(log(life(0, steps(10, 3), end(16)))).end == at(16)


def test_a_lost_run_ends_at_its_last_sign_of_life_and_says_since_when_it_is_down() -> None:
    found = report(log(life(0, steps(10, 3), alive(15))))
    assert (found.status, found.end, found.down_since) == ("lost", at(15), at(15))


def test_with_as_of_the_time_since_a_loss_is_recovery() -> None:
    lost = log(life(0, steps(10, 3), alive(16)))
    is_(spent(lost, as_of=500), {PREP: 10, GOOD: 6, RECOVERY: 484})
    stopped = log(life(0, steps(10, 3), end(16, "user")))
    assert report(stopped, as_of=at(500)).breakdown.elapsed == 16 * S


def test_a_window_of_pure_outage_is_no_goodput_and_not_no_data() -> None:
    lost = log(life(0, steps(10, 3), alive(16)))
    outage = report(lost, window=(at(100), at(200)))
    assert outage.breakdown.elapsed == outage.breakdown[RECOVERY] == 100 * S
    assert outage.to_json()["goodput_percent"] == 0


def test_no_time_is_no_percentage() -> None:
    found = report(log(life(0, step(0, 0))))
    assert found.breakdown.elapsed == 0
    assert found.to_json()["goodput_percent"] is None


def test_a_run_is_alive_while_its_heartbeat_is_younger_than_30_s() -> None:
    beating = log(life(0, steps(10, 3), alive(16)))
    assert report(beating, now=45).status == "running"
    assert report(beating, now=47).status == "lost"


def test_nothing_to_report_on_is_one_sentence() -> None:
    with pytest.raises(UnusableData):
        calculate(RunLog("r"), now=T0)
