"""Activities, waits and device time inside an attempt: rules 1, 3 and 4."""

from __future__ import annotations

from few_events import (
    CUSTOM,
    DATA,
    GOOD,
    HOST,
    OTHER,
    PREP,
    RECOVERY,
    RESTORE,
    SAVE,
    STARTUP,
    WASTED,
    S,
    alive,
    all_logged,
    at,
    done,
    during,
    end,
    foreign,
    idle,
    is_,
    life,
    log,
    logged,
    report,
    span,
    spent,
    step,
    steps,
    timeline,
)

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Activity, Event

# --- Rule 1: the sweep ------------------------------------------------------------------------------------------------


def test_the_innermost_activity_owns_the_time() -> None:
    prep = [*during(Activity.PREPARATION, 1, 9), *during(Activity.RESTORE, 3, 6), *during(Activity.DATA, 4, 5)]
    is_(spent(log(life(0, prep, steps(10, 3), end(16)))), {PREP: 7, RESTORE: 2, DATA: 1, GOOD: 6})


def test_a_save_inside_a_step_is_the_saves() -> None:
    is_(
        spent(log(life(0, steps(10, 2), during(Activity.SAVE, 13, 16), step(17, 2), end(19)))),
        {PREP: 10, GOOD: 2 + 2 + 2, SAVE: 3},
    )


def test_what_took_no_time_was_seen_all_the_same() -> None:
    """The clock of a log may be coarse: a save that ends in the moment in which it began is a save of 0 s."""
    told = report(log(life(0, steps(10, 3), during(Activity.SAVE, 13, 13), end(16))))
    assert Bucket.SAVE not in told.unknown
    assert Bucket.RESTORE in told.unknown
    assert told.breakdown[Bucket.SAVE] == 0


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


# --- Rule 3: data waits -----------------------------------------------------------------------------------------------


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


# --- Rule 4: device time ----------------------------------------------------------------------------------------------


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


def test_device_idle_inside_a_step_is_the_hosts() -> None:
    between = [*during(Activity.DATA, 11, 12), *during(Activity.SAVE, 12, 13.5), *during(Activity.DATA, 17, 17.5)]
    pieces = [step(10, 0), idle(11, 14), done(0, 11), done(0, 15), idle(15, 16), step(16, 1), idle(17, 18), done(1, 20)]
    found = log(life(0, pieces, between, end(20)))
    is_(
        spent(found),
        {PREP: 10, GOOD: 2 + 3, DATA: 1 + 0.5, SAVE: 1.5, OTHER: 2, (OTHER, "HOST_GAP"): 0.5 + 1 + 0.5},
    )
    assert Bucket.DATA_LOADING_ASYNC not in report(found).breakdown.spent


def test_a_wait_inside_a_step_stalls_for_as_long_as_the_device_is_idle() -> None:
    pieces = [step(10, 0), done(0, 11), idle(11, 13), done(0, 14), step(14, 1), done(1, 18)]
    found = log(life(0, pieces, during(Activity.DATA, 10.5, 12), end(18)))
    is_(spent(found), {PREP: 10, GOOD: 2 + 4, DATA: 1, OTHER: 1, (OTHER, "HOST_GAP"): 1})
    assert report(found).breakdown[Bucket.DATA_LOADING_ASYNC] == S // 2


def test_idle_time_told_twice_or_outside_of_steps_counts_once() -> None:
    pieces = [step(10, 0), done(0, 14), step(16, 1), done(1, 18), step(18, 2), done(2, 20)]
    told = [idle(5, 11), idle(10.5, 11), idle(13, 16.5), idle(15, 15.5), idle(19.5, 30)]
    expected = {PREP: 10, GOOD: 2 + 1.5 + 1.5, OTHER: 5, (OTHER, "HOST_GAP"): 1 + 1 + 2 + 0.5 + 0.5}
    is_(spent(log(life(0, pieces, told, end(20)))), expected)


def test_compiling_is_not_hidden_by_the_step_whose_call_compiles() -> None:
    calls = [step(10, 0), span(Activity.COMPILE, 10, 5), done(0, 17), step(15.1, 1), done(1, 19)]
    recompiled = [step(15.2, 2), span(Activity.COMPILE, 15.2, 8.8), done(2, 26)]
    is_(spent(log(life(0, calls, recompiled, end(26)))), {PREP: 10, STARTUP: 5 + 5, GOOD: 2 + 2 + 2})
