"""Where the existing library goes wrong, the truth: each case in its payloads, with what really happened.

Steps take a second unless a test says otherwise, so seconds can be counted by reading.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from running import Runner

from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.report import Report

T0 = 1_780_000_000.0
HOUR = 3600.0
SECOND = 1_000_000_000
YEARS_LATER = 4_000_000_000 * SECOND

Entries = list[dict[str, Any]]


def told(at: float, written: float | None = None, **payload: Any) -> dict[str, Any]:
    moment = datetime.fromtimestamp(at if written is None else written, UTC)
    return {"timestamp": moment.isoformat(), "jsonPayload": {"job_name": "job", **payload}}


def job_start(at: float) -> dict[str, Any]:
    return told(at, job_start_time=at)


def job_end(at: float) -> dict[str, Any]:
    return told(at, job_end_time=at)


def steps(numbers: Iterable[int], at: float, every: float = 1.0) -> Entries:
    return [told(at + i * every, step_count=number, step_start_time=at + i * every) for i, number in enumerate(numbers)]


def pair(name: str, begin: float, end: float) -> Entries:
    return [told(begin, **{f"{name}_start_time": begin}), told(end, **{f"{name}_end_time": end})]


def custom(name: str, begin: float, end: float | None) -> Entries:
    kind = {"custom_badput_event_type": name}
    started = told(begin, **kind, custom_badput_event_start_time=begin)
    return [started] if end is None else [started, told(end, **kind, custom_badput_event_end_time=end)]


def save(step: int, at: float, seconds: float | None) -> dict[str, Any]:
    return told(
        at,
        event_type="save",
        step=step,
        checkpoint_manager_blocking_start_time=at,
        checkpoint_manager_blocking_duration_secs=seconds,
    )


def restore(step: int, at: float, seconds: float) -> dict[str, Any]:
    return told(
        at, event_type="restore", step=step, checkpoint_manager_start_time=at, checkpoint_manager_duration_secs=seconds
    )


def report(entries: Entries, **asked: Any) -> Report:
    """The report; in it goodput and badput are the whole."""
    (log,) = read_entries(entries)
    found = calculate(log, **{"now": YEARS_LATER, **asked})
    spent = found.breakdown
    assert spent.goodput + sum(spent[bucket] for bucket in BADPUT) == spent.elapsed
    return found


def percent(found: Report) -> float:
    share: float = found.to_json()["goodput_percent"]
    return share


def seconds(found: Report, bucket: Bucket, name: str | None = None) -> float:
    spent = found.breakdown
    return (spent[bucket] if name is None else spent.detail(bucket).get(name, 0)) / SECOND


def window(start: float, end: float) -> tuple[int, int]:
    return round(start * SECOND), round(end * SECOND)


# --- disruptions --------------------------------------------------------------------------------------


def test_a_restart_at_the_next_step_after_an_hours_outage() -> None:
    entries = [job_start(T0), *steps(range(1000), T0)]
    entries += [job_start(T0 + 1000 + HOUR), *steps(range(1000, 1904), T0 + 1000 + HOUR), job_end(T0 + 1904 + HOUR)]
    found = report(entries)
    assert percent(found) == pytest.approx(34.6, abs=0.1)
    assert found.disruptions == 1
    assert seconds(found, Bucket.INFRASTRUCTURE_RECOVERY) == pytest.approx(HOUR, abs=1)


def test_a_restart_at_a_higher_step_is_a_disruption() -> None:
    entries = [job_start(T0), *steps(range(100), T0), job_start(T0 + 200), *steps(range(103, 200), T0 + 200)]
    assert report([*entries, job_end(T0 + 297)]).disruptions == 1


def test_a_crash_before_the_first_step_is_a_disruption() -> None:
    entries = [job_start(T0), *pair("tpu_init", T0, T0 + 30)]
    entries += [job_start(T0 + 100), *steps(range(100), T0 + 130), job_end(T0 + 230)]
    found = report(entries)
    assert found.disruptions == 1
    assert seconds(found, Bucket.INFRASTRUCTURE_RECOVERY) == pytest.approx(70, abs=0.1)


def test_two_restarts_in_a_row_are_recovered_from_twice() -> None:
    entries = [job_start(T0), *steps(range(500), T0)]
    entries += [job_start(T0 + 600), *pair("training_prep", T0 + 600, T0 + 610)]
    entries += [job_start(T0 + 710), *steps(range(500, 1000), T0 + 720), job_end(T0 + 1220)]
    found = report(entries)
    assert found.disruptions == 2
    assert seconds(found, Bucket.INFRASTRUCTURE_RECOVERY) == pytest.approx(200, abs=1)
    assert found.breakdown.elapsed == 1220 * SECOND


def test_a_restart_from_step_0_wastes_all_before_it() -> None:
    entries = [job_start(T0), *steps(range(5000), T0), job_start(T0 + 5100), *steps(range(6000), T0 + 5100)]
    found = report([*entries, job_end(T0 + 11100)])
    assert seconds(found, Bucket.WASTED_PROGRESS) == pytest.approx(5000, abs=1)
    assert found.breakdown.goodput / SECOND == pytest.approx(6000, abs=1)


def test_two_hosts_that_log_the_same_disrupt_nothing() -> None:
    entries = [job_start(T0), job_start(T0 + 0.01)]
    for host in (0.0, 0.01):
        entries += steps(range(1000), T0 + 10 + host)
    found = report([*entries, job_end(T0 + 1010)])
    assert found.disruptions == 0
    assert found.breakdown.goodput / SECOND == pytest.approx(1000, abs=0.1)


# --- steps --------------------------------------------------------------------------------------------


def test_steps_logged_every_tenth_are_all_steps() -> None:
    found = report([job_start(T0), *steps(range(0, 5000, 10), T0, every=10), job_end(T0 + 5000)])
    assert percent(found) == pytest.approx(100, abs=0.5)


def test_one_lost_step_entry_in_a_hundred_loses_no_time() -> None:
    entries = [entry for entry in steps(range(5000), T0) if entry["jsonPayload"]["step_count"] % 100 != 57]
    found = report([job_start(T0), *entries, job_end(T0 + 5000)])
    assert percent(found) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize("every", [0.4, 0.05])
def test_short_steps_have_a_short_ideal(every: float) -> None:
    found = report([job_start(T0), *steps(range(2000), T0, every=every), job_end(T0 + 2000 * every)])
    assert (found.steps.ideal or 0) / SECOND == pytest.approx(every, rel=0.01)
    assert percent(found) == pytest.approx(100, abs=0.5)


# --- events -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "lasts"),
    [(100.5, 20.0), (-30.0, 20.0), (999.2, 20.0)],
    ids=["over a step's start", "before the first step", "in the last step"],
)
def test_an_event_owns_its_time_wherever_it_lies(begin: float, lasts: float) -> None:
    after = [at + (lasts if at > begin > 0 else 0) for at in range(1000)]
    if 0 < begin < 998:  # it began in a step, and the following one started in the middle of it
        after[int(begin) + 1] = begin + lasts / 2
    entries = [told(T0 + at, step_count=number, step_start_time=T0 + at) for number, at in enumerate(after)]
    entries += custom("eval", T0 + begin, T0 + begin + lasts)
    found = report([job_start(T0 - 40), *entries, job_end(T0 + 1020)])
    assert seconds(found, Bucket.CUSTOM, "EVAL") == pytest.approx(lasts, abs=0.001)


def test_an_event_open_at_a_crash_owns_its_time_to_the_last_sign_of_life() -> None:
    entries = [job_start(T0), *steps(range(1000), T0), *custom("eval", T0 + 1000, None)]
    entries += [told(T0 + 1060, event_type="save", step=999)]  # the last sign: no times, but its own timestamp
    entries += [job_start(T0 + 1100), *steps(range(1000, 1100), T0 + 1110), job_end(T0 + 1210)]
    found = report(entries)
    assert seconds(found, Bucket.CUSTOM, "EVAL") == pytest.approx(60, abs=0.001)


def test_nested_events_count_once() -> None:
    entries = [job_start(T0), *steps(range(1000), T0), *steps(range(1000, 1500), T0 + 1080)]
    entries += custom("eval", T0 + 1000, T0 + 1080) + custom("sdc", T0 + 1010, T0 + 1070)
    found = report([*entries, job_end(T0 + 1580)])
    assert seconds(found, Bucket.CUSTOM) == pytest.approx(80, abs=0.001)
    assert seconds(found, Bucket.CUSTOM, "SDC") == pytest.approx(60, abs=0.001)


# --- checkpoints --------------------------------------------------------------------------------------


def test_saves_inside_wasted_work_are_saves() -> None:
    entries = [job_start(T0), *steps(range(100), T0), save(99, T0 + 100, 50), *steps(range(100, 200), T0 + 150)]
    entries += [job_start(T0 + 300), *steps(range(50, 300), T0 + 300), job_end(T0 + 550)]
    found = report(entries)
    assert seconds(found, Bucket.SAVE) == pytest.approx(50, abs=0.001)
    assert seconds(found, Bucket.WASTED_PROGRESS) == pytest.approx(150, abs=1)


def test_the_same_step_restored_five_times_is_five_restores() -> None:
    entries = [job_start(T0), *steps(range(101), T0), save(99, T0 + 100, 0.1)]
    at = T0 + 101
    for _ in range(5):
        entries += [job_start(at), restore(99, at, 300.0), *steps(range(100, 103), at + 300)]
        at += 303
    found = report([*entries, job_end(at)])
    assert seconds(found, Bucket.RESTORE) == pytest.approx(1500, abs=0.001)
    assert found.disruptions == 5


def test_fields_that_orbax_leaves_null_break_nothing() -> None:
    nulls = dict.fromkeys(
        ("directory", "checkpoint_manager_blocking_start_time", "checkpoint_manager_blocking_duration_secs", "step")
    )
    entries = [job_start(T0), *steps(range(100), T0), told(T0 + 50, event_type="save", **nulls)]
    slow = {"checkpointer_start_time": T0 + 100.0, "checkpointer_duration_secs": None}
    entries += [told(T0 + 100, event_type="emergency_restore", step=None, directory=None, **slow)]
    found = report([*entries, *steps(range(100, 200), T0 + 100), job_end(T0 + 200)])
    assert percent(found) == pytest.approx(100, abs=1)


# --- data ---------------------------------------------------------------------------------------------


def test_a_blocking_load_at_each_of_four_starts() -> None:
    entries, at = [], T0
    for attempt in range(4):
        entries += [job_start(at), *pair("data_loading", at, at + 100)]
        entries += steps(range(100 * attempt, 100 * attempt + 100), at + 100)
        at += 250
    found = report([*entries, job_end(at - 50)])
    assert seconds(found, Bucket.DATA_LOADING_SYNC) == pytest.approx(400, abs=0.1)


def test_half_of_the_time_spent_waiting_for_input() -> None:
    rng = Random(5)
    entries, at = [job_start(T0)], T0
    for step in range(2000):
        entries += steps([step], at)
        waits = rng.random() < 0.5
        at += 1.0
        if waits:
            entries += pair("data_loading", at, at + 2.0)
            at += 2.0
    found = report([*entries, job_end(at)])
    assert percent(found) == pytest.approx(100 * 2000 / (at - T0), abs=1)
    assert percent(found) == pytest.approx(50, abs=3)


# --- clocks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "ahead"])
def test_a_clock_that_is_set_an_hour_back_or_ahead(jump: float) -> None:
    entries = [job_start(T0), *steps(range(2000), T0)]
    for step in range(2000, 4000):
        at = T0 + step
        entries.append(told(at + jump, written=at, step_count=step, step_start_time=at + jump))
    entries.append(told(T0 + 4000 + jump, written=T0 + 4000, job_end_time=T0 + 4000 + jump))
    found = report(entries)
    assert percent(found) == pytest.approx(100, abs=0.1)
    assert found.disruptions == 0
    assert found.breakdown.elapsed / SECOND == pytest.approx(4000, abs=2)


# --- the end ------------------------------------------------------------------------------------------


def test_a_dead_job_without_an_end_does_not_grow() -> None:
    entries = [job_start(T0), *steps(range(1000), T0)]
    day, year = (report(entries, now=round((T0 + 1000 + at) * SECOND)) for at in (24 * HOUR, 365 * 24 * HOUR))
    assert day.breakdown == year.breakdown and day.status == year.status == "lost"
    assert day.breakdown.elapsed / SECOND == pytest.approx(999, abs=1)


def test_an_end_in_a_finally_does_not_end_a_job_that_is_resumed() -> None:
    entries = [job_start(T0), *steps(range(1000), T0), job_end(T0 + 1000)]
    entries += [job_start(T0 + 1500), *steps(range(1000, 2000), T0 + 1500), job_end(T0 + 2500)]
    found = report(entries)
    assert found.disruptions == 1
    assert found.breakdown.elapsed == 2500 * SECOND
    assert percent(found) == pytest.approx(80, abs=0.1)


def test_a_teardown_of_ten_minutes_is_not_productive() -> None:
    found = report([job_start(T0), *steps(range(1000), T0), job_end(T0 + 1600)])
    assert found.breakdown.goodput / SECOND == pytest.approx(1000, abs=0.1)
    assert seconds(found, Bucket.OTHER, "TEARDOWN") == pytest.approx(600, abs=0.1)


# --- windows and exclusions ---------------------------------------------------------------------------


def test_a_window_of_ten_minutes_of_work_and_fifty_of_a_hang() -> None:
    entries = [job_start(T0), *steps(range(3600), T0), *steps(range(3600, 7200), T0 + 3600 + 3000)]
    found = report([*entries, job_end(T0 + 7200 + 3000)], window=window(T0 + 3000, T0 + 6600))
    assert percent(found) == pytest.approx(16.7, abs=0.1)


def test_a_window_of_pure_outage_is_0_percent() -> None:
    entries = [job_start(T0), *steps(range(1000), T0), job_start(T0 + 9000), *steps(range(1000, 2000), T0 + 9000)]
    found = report([*entries, job_end(T0 + 10000)], window=window(T0 + 2000, T0 + 3000))
    assert percent(found) == 0.0
    assert found.breakdown.elapsed == 1000 * SECOND
    ongoing = report(entries[:1001], window=window(T0 + 2000, T0 + 3000))
    assert percent(ongoing) == 0.0


# --- elastic ------------------------------------------------------------------------------------------


def test_an_elastic_pause_counts_once() -> None:
    entries = [job_start(T0), *steps(range(500), T0)]
    kind = {"elastic_wait_event_type": "slice_down"}
    entries += [told(T0 + 500, **kind, elastic_wait_start_time=T0 + 500)]
    entries += [told(T0 + 700, **kind, elastic_wait_end_time=T0 + 700)]
    entries += pair("elastic_reinit", T0 + 700, T0 + 800) + custom("eval", T0 + 550, T0 + 600)
    entries += [*steps(range(500, 1000), T0 + 800), job_end(T0 + 1300)]
    found = report(entries)
    assert seconds(found, Bucket.ELASTIC_SLICE_DOWN) + seconds(found, Bucket.CUSTOM) == pytest.approx(200, abs=0.01)
    assert seconds(found, Bucket.ELASTIC_REINITIALIZATION) == pytest.approx(100, abs=0.01)
    assert percent(found) == pytest.approx(100 * 1000 / 1300, abs=0.1)


# --- logs ---------------------------------------------------------------------------------------------


def test_late_entries_change_nothing_once_they_are_there() -> None:
    entries = [job_start(T0), *steps(range(1000), T0), *custom("eval", T0 + 1000, T0 + 1050)]
    entries += [*steps(range(1000, 2000), T0 + 1050), job_end(T0 + 2050)]
    late = [{**e, "timestamp": f"{datetime.fromisoformat(e['timestamp']).isoformat()}"} for e in entries]
    for at, entry in enumerate(late):
        if at % 7 == 3:
            entry["timestamp"] = datetime.fromtimestamp(
                datetime.fromisoformat(entry["timestamp"]).timestamp() + 3, UTC
            ).isoformat()
    late.sort(key=lambda entry: str(entry["timestamp"]))
    assert report(late) == report(entries)


def test_a_job_that_is_months_old_has_its_report() -> None:
    found = report([job_start(T0), *steps(range(1000), T0), job_end(T0 + 1000)], now=round((T0 + 1e7) * SECOND))
    assert percent(found) == pytest.approx(100, abs=0.1)


# --- recording ----------------------------------------------------------------------------------------

RECORD = """
import logging, logging.config, os
from goodput_plugins import goodput
recorder = goodput.GoodputRecorder("team/job", "goodput_job", logging_enabled=True)
SETUP
for step in range(1000): recorder.record_step_start_time(step)
"""


def recorded_steps(run: Runner) -> int:
    return sum(event.kind.value == "s" for event in run.recorded()[1])


@pytest.mark.parametrize("setup", ["logging.disable(logging.INFO)", "logging.config.dictConfig({'version': 1})"])
def test_an_application_that_sets_up_logging_silences_nothing(run: Runner, setup: str) -> None:
    run(RECORD.replace("SETUP", setup))
    assert recorded_steps(run) == 1000


def test_a_sigkill_loses_no_step(run: Runner) -> None:
    run(RECORD.replace("SETUP", "") + "os.kill(os.getpid(), 9)\n", code=-signal.SIGKILL)
    assert recorded_steps(run) == 1000


def test_a_slash_in_a_jobs_name_is_a_slash(run: Runner) -> None:
    run(RECORD.replace("SETUP", "") + "assert goodput.GoodputCalculator('team/job', 'x').get_job_goodput()[2] == 999\n")
    assert run.recorded()[0]["run"] == "team/job"


def test_two_calculators_of_one_job_disturb_each_other_in_nothing(run: Runner) -> None:
    asking = """
first, second = (goodput.GoodputCalculator("team/job", "x") for _ in range(2))
recorder.record_job_end_time()
answers = {calculator.get_job_goodput() [0] for _ in range(5) for calculator in (first, second)}
assert len(answers) == 1, answers
"""
    run(RECORD.replace("SETUP", "") + asking)
