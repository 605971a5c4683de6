"""One claim for each rule of the attribution, each on a log of a few events.

Times are seconds after ``T0``; the answer is computed in the test from the log's own numbers. Where a
rule judges by the ideal step time it is given, unless the claim is about the ideal itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from goodput_plugins.core.attribution import Segment, attribute
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
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


# Writing logs


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


# Reading answers

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


# Attempts, resumes, generations, disruptions (section 1)


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


# Rule 1: the sweep


def test_the_innermost_activity_owns_the_time() -> None:
    prep = [*during(Activity.PREPARATION, 1, 9), *during(Activity.RESTORE, 3, 6), *during(Activity.DATA, 4, 5)]
    is_(spent(log(life(0, prep, steps(10, 3), end(16)))), {PREP: 7, RESTORE: 2, DATA: 1, GOOD: 6})


def test_a_save_inside_a_step_is_the_saves() -> None:
    is_(
        spent(log(life(0, steps(10, 2), during(Activity.SAVE, 13, 16), step(17, 2), end(19)))),
        {PREP: 10, GOOD: 2 + 2 + 2, SAVE: 3},
    )


def test_what_other_threads_do_owns_no_time() -> None:
    beside = [*during(Activity.SAVE, 11, 15, thread=1), *during(Activity.CUSTOM, 12, None, "EVAL", thread=2)]
    is_(spent(log(life(0, steps(10, 3), beside, end(16)))), {PREP: 10, GOOD: 6})


def test_the_training_thread_is_the_one_that_steps() -> None:
    trained_elsewhere = [step(10 + 2 * i, i, thread=3) for i in range(3)]
    own, beside = during(Activity.SAVE, 13, 14, thread=3), during(Activity.SAVE, 11, 15)
    is_(spent(log(life(0, trained_elsewhere, own, beside, end(16)))), {PREP: 10, GOOD: 5, SAVE: 1})


def test_a_steps_start_ends_what_is_open_in_the_step_before() -> None:
    lost = life(0, steps(10, 2), during(Activity.CUSTOM, 13, None, "EVAL"), steps(15, 3, number=2), end(21))
    is_(spent(log(lost)), {PREP: 10, GOOD: 2 + 1 + 6, CUSTOM: 2, (CUSTOM, "EVAL"): 2})


def test_an_activity_whose_end_arrives_before_the_following_step_owns_its_whole_time() -> None:
    straddling = life(0, steps(10, 2), during(Activity.SAVE, 13, 14.5), steps(14, 3, number=2), end(20))
    is_(spent(log(straddling)), {PREP: 10, GOOD: 2 + 1 + 1.5 + 4, SAVE: 1.5})


def test_an_end_that_arrives_after_the_following_step_is_not_believed() -> None:
    late = life(0, steps(10, 2), during(Activity.SAVE, 13, 17), steps(14, 3, number=2), end(20))
    is_(spent(log(late)), {PREP: 10, GOOD: 2 + 1 + 6, SAVE: 1})


def test_an_end_belongs_to_the_innermost_begin_of_its_kind() -> None:
    lost, whole = during(Activity.SAVE, 13, None), during(Activity.SAVE, 17, 18)
    is_(
        spent(log(life(0, steps(10, 2), lost, steps(14, 2, number=2), whole, steps(19, 2, number=4), end(23)))),
        {PREP: 10, GOOD: 2 + 1 + 2 + 2 + 4, SAVE: 1 + 1},
    )


def test_what_is_told_afterwards_owns_its_stretch() -> None:
    told = life(0, steps(10, 2), span(Activity.SAVE, 12.5, 3), steps(17, 3, number=2), end(23))
    is_(spent(log(told)), {PREP: 10, GOOD: 2 + 2 + 6, SAVE: 3})


def test_an_activity_that_is_open_at_a_crash_owns_the_time_to_the_last_sign_of_life() -> None:
    killed = life(0, steps(10, 2), during(Activity.SAVE, 14, None), alive(16, 21))
    restarted = life(31, steps(36, 3), end(42))
    is_(spent(log(killed, restarted)), {PREP: 15, WASTED: 4, SAVE: 7, RECOVERY: 10, GOOD: 6})


def test_at_equal_times_an_end_comes_before_a_start() -> None:
    both = [*during(Activity.CUSTOM, 12, 13, "EVAL"), *during(Activity.CUSTOM, 13, 14, "EVAL")]
    is_(spent(log(life(0, steps(10, 2), both, steps(14, 3, number=2), end(20)))), {PREP: 10, GOOD: 2 + 6, CUSTOM: 2})


def test_activities_have_their_own_buckets() -> None:
    told = [
        (Activity.IMPORT, (PREP, "IMPORTS")),
        (Activity.TRACE, (STARTUP, "TRACE")),
        (Activity.LOWER, (STARTUP, "LOWER")),
        (Activity.COMPILE, (STARTUP, "COMPILE")),
        (Activity.CACHE_LOAD, (STARTUP, "CACHE_LOAD")),
        (Activity.DATA_REPLAY, (RESTORE, "DATA_REPLAY")),
    ]
    spans = [span(activity, i, 0.5) for i, (activity, _) in enumerate(told)]
    answer = spent(log(life(0, spans, steps(10, 3), end(16))))
    assert {source: answer.get(source) for _, source in told} == {source: 0.5 for _, source in told}
    assert answer[PREP] == 10 - 5 * 0.5


# Rule 2: gaps and overlaps


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


# Rule 3: data waits


def test_where_the_device_is_the_host_every_wait_stalls() -> None:
    waits = [during(Activity.DATA, 11.5 + 2 * i, 12 + 2 * i) for i in range(4)]
    is_(spent(log(life(0, HOST, steps(10, 5), *waits, end(20)))), {PREP: 10, GOOD: 8, DATA: 2})


def test_where_nothing_is_known_the_first_wait_stalls_and_a_later_one_for_what_exceeds_the_ideal() -> None:
    found = foreign(
        ("job_start_time", 0), ("data_loading_start_time", 7), ("data_loading_end_time", 10),
        *all_logged(10, 3),
        ("data_loading_start_time", 14.5), ("data_loading_end_time", 16), logged(17, 3),
        ("data_loading_start_time", 18), ("data_loading_end_time", 19), logged(19, 4), ("job_end_time", 21),
    )  # fmt: skip
    partly, overlapped = 17 - 14 - 2, 1
    is_(spent(found), {PREP: 7, DATA: 3 + partly, GOOD: 6 + 2 + 2})
    assert report(found).breakdown[Bucket.DATA_LOADING_ASYNC] == round((1.5 - partly + overlapped) * S)


# Rule 4: device time


def ahead(count: int, first: float, took: float) -> list[Event]:
    """Steps that are dispatched 0.1 s apart and take ``took`` each on the device."""
    return [e for i in range(count) for e in (step(first + 0.1 * i, i), done(i, first + took * (i + 1)))]


def test_where_the_host_runs_ahead_a_step_is_where_the_device_works_on_it() -> None:
    found = log(life(0, ahead(4, 10, 2), end(20)))
    is_(spent(found), {PREP: 10, GOOD: 8, OTHER: 2, (OTHER, "TEARDOWN"): 2})
    where = [(s.start, s.end, s.step) for s in timeline(found)[0] if s.bucket is GOOD]
    assert where == [(at(10 + 2 * i), at(12 + 2 * i), i) for i in range(4)]


def test_a_wait_while_the_device_is_busy_is_overlapped() -> None:
    found = log(life(0, ahead(2, 10, 2), during(Activity.DATA, 10.2, 13), ahead_from(2, 13.5), end(15.5)))
    is_(spent(found), {PREP: 10, GOOD: 5.5})
    assert report(found).breakdown[Bucket.DATA_LOADING_ASYNC] == round(2.8 * S)


def ahead_from(ordinal: int, when: float) -> list[Event]:
    """One more step, dispatched at ``when``, done 2 s after the device was free (at 14 s at the earliest)."""
    return [step(when, ordinal), done(ordinal, max(when, 14) + 1.5)]


def test_only_device_idle_time_goes_to_what_the_host_does() -> None:
    found = log(life(0, ahead(2, 10, 2), during(Activity.DATA, 12, 17), ahead_from(2, 17), end(18.5)))
    is_(spent(found), {PREP: 10, GOOD: 4 + 1.5, DATA: 3})
    assert report(found).breakdown[Bucket.DATA_LOADING_ASYNC] == 2 * S


def test_device_idle_that_nothing_explains_is_a_host_gap_with_a_finding() -> None:
    found = log(life(0, ahead(2, 10, 2), ahead_from(2, 17), end(18.5)))
    is_(spent(found), {PREP: 10, GOOD: 4 + 1.5, OTHER: 3, (OTHER, "HOST_GAP"): 3})
    assert [f for f in report(found).findings if f.cost == 3 * S]


def test_a_step_that_was_not_sampled_counts_as_busy() -> None:
    sampled = [step(10, 0), done(0, 12), step(12, 1), step(14, 2), done(2, 16), step(17, 3), done(3, 19)]
    is_(spent(log(life(0, sampled, end(19)))), {PREP: 10, GOOD: 2 + 4 + 2, OTHER: 1, (OTHER, "HOST_GAP"): 1})


def test_compiling_is_not_hidden_by_the_step_whose_call_compiles() -> None:
    calls = [step(10, 0), span(Activity.COMPILE, 10, 5), done(0, 17), step(15.1, 1), done(1, 19)]
    recompiled = [step(15.2, 2), span(Activity.COMPILE, 15.2, 8.8), done(2, 26)]
    is_(spent(log(life(0, calls, recompiled, end(26)))), {PREP: 10, STARTUP: 5 + 5, GOOD: 2 + 2 + 2})


# Rule 5: the first step


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


# Rule 6: the last step


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


# Rule 7: stuck steps


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


# Rule 8: the rewind


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


# Rule 9: the end


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


# Rule 10: steps logged every n-th


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


# Rule 11: placement


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


# Foreign logs


def test_a_copy_of_a_start_by_another_process_is_ignored_with_a_finding() -> None:
    def both(payload: dict[str, Any]) -> list[dict[str, Any]]:
        return [payload, {k: v + 0.1 if k.endswith("_time") else v for k, v in payload.items()}]

    one = [{"job_start_time": 0.0}, {"tpu_init_start_time": 1.0}, {"tpu_init_end_time": 3.0}, *all_logged(10.0, 5)]
    two = [copy for payload in one for copy in both(payload)]
    single, double = foreign(*one, ("job_end_time", 20)), foreign(*two, ("job_end_time", 20))
    assert spent(double)[GOOD] == spent(single)[GOOD] == 10
    assert report(double).disruptions == 0
    assert report(double).findings


def test_an_init_that_follows_a_step_begins_an_attempt_though_its_job_start_was_lost() -> None:
    for late in ([], [("job_start_time", 50.5)]):
        found = foreign(
            ("job_start_time", 0), *all_logged(10, 3), ("tpu_init_start_time", 50), *late, ("tpu_init_end_time", 54),
            *all_logged(55, 3, number=1), ("job_end_time", 61),
        )  # fmt: skip
        assert report(found).disruptions == 1
        is_(spent(found), {PREP: 10 + 1, GOOD: 2 + 6, WASTED: 2, RECOVERY: 36, INIT: 4})


SAVE_PAYLOAD = {
    "event_type": "save",
    "step": 1,
    "checkpoint_manager_blocking_start_time": 13,
    "checkpoint_manager_blocking_duration_secs": 1.0,
    "checkpointer_blocking_start_time": 13,
    "checkpointer_blocking_duration_secs": 0.5,
}


def with_save(**changed: Any) -> Answer:
    before, after = all_logged(10, 2), all_logged(15, 3, number=2)
    return spent(foreign(("job_start_time", 0), *before, SAVE_PAYLOAD | changed, *after, ("job_end_time", 21)))


def test_a_save_lasts_what_the_checkpoint_manager_says_else_what_the_checkpointer_says() -> None:
    assert with_save()[SAVE] == 1
    nulls: dict[str, Any] = {"checkpoint_manager_blocking_start_time": None}
    nulls["checkpoint_manager_blocking_duration_secs"] = None
    assert with_save(**nulls)[SAVE] == 0.5
    nulls |= {"checkpointer_blocking_start_time": None, "checkpointer_blocking_duration_secs": None}
    assert SAVE not in with_save(**nulls)


def test_with_as_of_a_foreign_log_is_alive_for_a_while_and_its_tail_is_the_open_activitys() -> None:
    evaluating = {"custom_badput_event_type": "eval", "custom_badput_event_start_time": 17}
    found = foreign(("job_start_time", 0), *all_logged(10, 3), evaluating)
    is_(spent(found, as_of=70), {PREP: 10, GOOD: 7, CUSTOM: 53, (CUSTOM, "EVAL"): 53})
    assert report(found, as_of=at(70)).status == "running"
    assert spent(found, as_of=200)[RECOVERY] >= 180
    assert report(found, as_of=at(200)).status == "lost"


def test_without_as_of_a_foreign_log_ends_at_its_last_entry() -> None:
    assert report(foreign(("job_start_time", 0), *all_logged(10, 3))).end == at(14)


def test_as_of_a_moment_only_entries_up_to_then_count() -> None:
    whole = foreign(("job_start_time", 0), *all_logged(10, 30), ("job_end_time", 70))
    is_(spent(whole, as_of=21), {PREP: 10, GOOD: 11})


@pytest.mark.parametrize("back", [5, 3600])
def test_a_clock_that_steps_back_loses_no_more_than_that_stretch(back: float) -> None:
    before, after = all_logged(10, 30), all_logged(70 - back, 30, number=30)
    written = entries(("job_start_time", 0), *before, *after, ("job_end_time", 130 - back))
    for number, entry in enumerate(written):
        entry["timestamp"] = f"2026-05-28T20:{27 + number // 60:02}:{number % 60:02}Z"
    (found,) = read_entries(written)
    answer = spent(found)
    assert answer[GOOD] == pytest.approx(29 * 2 + 30 * 2, abs=2)
    assert WASTED not in answer
    assert report(found).disruptions == 0
    assert len(timeline(found)) == 1


# The ideal step time


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


# step_time_deviation, max_productive, preserved


def deviation(durations: list[float]) -> float:
    starts = [10 + sum(durations[:i]) for i in range(len(durations) + 1)]
    told = [step(8, 0), *(step(when, i + 1) for i, when in enumerate(starts))]
    found = report(log(life(0, told, end(starts[-1] + 2))))
    assert found.steps.deviation is not None
    return found.steps.deviation / S


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


# Windows


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
