"""Recording by hand, under the names of Google's library: what is told is in the run's journal, once."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from running import Runner

from goodput_plugins import measurement
from goodput_plugins.core import by_hand, guard
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import Report

RECORD = """
import datetime, os, sys, time
from goodput_plugins import measurement
from goodput_plugins.core.events import Activity
from goodput_plugins.core.session import current
Event = measurement.Event
recorder = measurement.GoodputRecorder("job/7", "goodput_job", logging_enabled=True)
now = time.time()
def ago(seconds): return datetime.datetime.fromtimestamp(now - seconds, datetime.UTC)
"""
STEPS = "for step in range(30):\n    recorder.record_step_start_time(step)\n    time.sleep(0.005)\n"


def report_on(run: Runner) -> Report:
    (folder,) = run.runs.iterdir()
    (log,) = read(folder)
    return calculate(log, now=4_000_000_000_000_000_000)


def told(run: Runner, *kinds: Kind) -> list[Event]:
    return [event for event in run.recorded()[1] if event.kind in kinds]


def spans(run: Runner, activity: Activity) -> list[tuple[int, int]]:
    """When an activity began and ended, as the report's rules find it."""
    begun: list[int] = []
    found = []
    for event in run.recorded()[1]:
        if event.activity is activity:
            if event.kind is Kind.SPAN:
                found.append((event.time, event.time + (event.duration or 0)))
            elif event.kind is Kind.BEGIN:
                begun.append(event.time)
            else:
                found.append((begun.pop(), event.time))
    return sorted(found)


# --- where it goes ------------------------------------------------------------------------------------


def test_the_run_has_the_name_of_the_job(run: Runner) -> None:
    run(RECORD + STEPS)
    assert run.recorded()[0]["run"] == "job/7"
    assert [folder.name for folder in run.runs.iterdir()] == ["job%2F7"]


def test_a_run_name_in_the_environment_wins(run: Runner) -> None:
    run(RECORD + STEPS, GOODPUT_RUN_NAME="named")
    assert run.recorded()[0]["run"] == "named"


def test_hooks_that_began_to_record_before_the_recorder_was_made_join_the_job(run: Runner) -> None:
    early = "from goodput_plugins.core.session import current\nfrom goodput_plugins.core.events import Activity\n"
    early += "with current().recorder.activity(Activity.DEVICE_INIT): pass\n"
    run(early + RECORD + STEPS)
    assert [folder.name for folder in run.runs.iterdir()] == ["job%2F7"]
    assert run.recorded()[0]["run"] == "job/7"
    assert len(told(run, Kind.START)) == 1 and len(spans(run, Activity.DEVICE_INIT)) == 1


def test_what_comes_after_the_first_step_of_a_hook_joins_the_run_that_there_is_and_says_so(run: Runner) -> None:
    early = "from goodput_plugins.core.session import current\ncurrent().recorder.step(0)\n"
    done = run(early + RECORD + "recorder.record_step_start_time(1)\n")
    assert "what is recorded for 'job/7' joins it" in done.stderr
    assert [event.step for event in told(run, Kind.STEP)] == [0, 1]


def test_a_second_recorder_of_the_same_job_records_into_the_same_journal(run: Runner) -> None:
    more = "again = measurement.GoodputRecorder('job/7', 'goodput_job', True)\nagain.record_step_start_time(30)\n"
    done = run(RECORD + STEPS + more)
    assert [event.step for event in told(run, Kind.STEP)] == list(range(31))
    assert done.stderr == ""


def test_without_logging_enabled_nothing_is_recorded(run: Runner) -> None:
    run(RECORD.replace("logging_enabled=True", "logging_enabled=False") + STEPS + "recorder.flush()\n")
    assert not run.runs.exists()
    run(RECORD.replace(", logging_enabled=True", "") + STEPS)
    assert not run.runs.exists()


def test_importing_it_imports_no_framework_and_no_client() -> None:
    source = """
import sys
before = set(sys.modules)
from goodput_plugins import goodput, measurement, monitoring
new = {name.partition(".")[0] for name in set(sys.modules) - before}
assert not new & {"jax", "torch", "google", "numpy", "rich", "tensorboardX", "wrapt", "msgspec"}, new
"""
    subprocess.run([sys.executable, "-c", source], check=True)


# --- what is told -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "activity"),
    [
        ("record_tpu_init_start_time()", "record_tpu_init_end_time()", Activity.DEVICE_INIT),
        (
            "record_training_preparation_start_time()",
            "record_training_preparation_end_time()",
            Activity.PREPARATION,
        ),
        ("record_data_loading_start_time()", "record_data_loading_end_time()", Activity.DATA),
        (
            "record_custom_badput_event_start_time(custom_badput_event_type='eval')",
            "record_custom_badput_event_end_time(custom_badput_event_type='eval')",
            Activity.CUSTOM,
        ),
        (
            "record_elastic_wait_start_time(event_type='slice_down')",
            "record_elastic_wait_end_time(event_type='slice_down')",
            Activity.SLICE_DOWN,
        ),
        (
            "record_elastic_wait_start_time(event_type='wait_for_SCALE_UP')",
            "record_elastic_wait_end_time(event_type='wait_for_SCALE_UP')",
            Activity.SCALE_UP,
        ),
        ("record_elastic_reinit_start_time()", "record_elastic_reinit_end_time()", Activity.REINITIALIZATION),
    ],
)
def test_an_activity_is_told_as_it_happens(run: Runner, start: str, end: str, activity: Activity) -> None:
    elastic = RECORD.replace("measurement.GoodputRecorder", "measurement.ElasticGoodputRecorder")
    run(elastic + f"recorder.{start}; time.sleep(0.05); recorder.{end}\n" + STEPS)
    ((begun, ended),) = spans(run, activity)
    assert 50_000_000 <= ended - begun < 250_000_000


@pytest.mark.parametrize("activity", [Activity.DEVICE_INIT, Activity.PREPARATION, Activity.DATA, Activity.CUSTOM])
def test_times_that_are_given_are_kept(run: Runner, activity: Activity) -> None:
    name = {
        Activity.DEVICE_INIT: "tpu_init",
        Activity.PREPARATION: "training_preparation",
        Activity.DATA: "data_loading",
        Activity.CUSTOM: "custom_badput_event",
    }[activity]
    more = f"recorder.record_{name}_start_time(ago(50)); recorder.record_{name}_end_time(ago(20)); print(now)\n"
    done = run(RECORD + more + STEPS)
    ((begun, ended),) = spans(run, activity)
    now = float(done.stdout)
    assert begun / 1e9 == pytest.approx(now - 50, abs=1e-3)
    assert ended / 1e9 == pytest.approx(now - 20, abs=1e-3)


def test_a_naive_time_is_local_time(run: Runner) -> None:
    more = "naive = datetime.datetime.fromtimestamp(now - 50)\nprint(now)\n"
    more += "recorder.record_tpu_init_start_time(naive); recorder.record_tpu_init_end_time(ago(20))\n"
    done = run(RECORD + more + STEPS, TZ="Asia/Kathmandu")
    ((begun, _),) = spans(run, Activity.DEVICE_INIT)
    assert begun / 1e9 == pytest.approx(float(done.stdout) - 50, abs=1e-3)


def test_steps_may_be_told_afterwards(run: Runner) -> None:
    steps = "recorder.record_job_start_time(ago(100))\n"
    steps += "for step in range(40): recorder.record_step_start_time(step, ago(90 - step))\n"
    steps += "recorder.record_job_end_time(ago(50))\n"
    run(RECORD + steps)
    report = report_on(run)
    assert (report.end - report.start) / 1e9 == pytest.approx(50, abs=1e-3)
    assert report.breakdown.goodput / 1e9 == pytest.approx(40, abs=1e-3)
    assert report.status == "completed"


def test_a_step_that_is_said_to_begin_before_the_one_before_it_begins_with_it(run: Runner) -> None:
    run(RECORD + STEPS + "recorder.record_step_start_time(30, ago(500))\n")
    steps = told(run, Kind.STEP)
    assert [step.step for step in steps] == list(range(31))
    assert steps[30].time == steps[29].time
    assert report_on(run).steps.last == 30


def test_step_numbers_may_be_of_numpy(run: Runner) -> None:
    run(RECORD + "import numpy\nfor step in numpy.arange(5, 8): recorder.record_step_start_time(step)\n")
    assert [event.step for event in told(run, Kind.STEP)] == [5, 6, 7]


def test_an_end_without_a_start_is_ignored_and_a_lost_end_ends_with_the_next_step(run: Runner) -> None:
    more = "recorder.record_data_loading_end_time()\nrecorder.record_tpu_init_end_time()\n"
    lost = "recorder.record_custom_badput_event_start_time(custom_badput_event_type='lost')\ntime.sleep(0.1)\n"
    run(RECORD + more + STEPS + lost + STEPS.replace("range(30)", "range(30, 60)"))
    report = report_on(run)
    assert report.breakdown.detail(Bucket.CUSTOM)["LOST"] / 1e9 == pytest.approx(0.1, abs=0.05)
    assert report.breakdown.goodput / 1e9 > 0.25


def test_activities_that_are_not_nested_keep_their_own_ends(run: Runner) -> None:
    a, b = ("custom_badput_event_type='a'", "custom_badput_event_type='b'")
    more = f"recorder.record_custom_badput_event_start_time({a}); time.sleep(0.1)\n"
    more += f"recorder.record_custom_badput_event_start_time({b}); time.sleep(0.1)\n"
    more += f"recorder.record_custom_badput_event_end_time({a}); time.sleep(0.1)\n"
    more += f"recorder.record_custom_badput_event_end_time({b})\n"
    run(RECORD + STEPS + more + STEPS.replace("range(30)", "range(30, 60)"))
    spent = {name: ns / 1e9 for name, ns in report_on(run).breakdown.detail(Bucket.CUSTOM).items()}
    assert spent == pytest.approx({"A": 0.1, "B": 0.2}, abs=0.06)


def test_an_event_that_another_thread_ends_is_told_in_full(run: Runner) -> None:
    more = "import threading\nrecorder.record_tpu_init_start_time(); time.sleep(0.1)\n"
    more += "other = threading.Thread(target=recorder.record_tpu_init_end_time); other.start(); other.join()\n"
    run(RECORD + more + STEPS)
    assert report_on(run).breakdown[Bucket.TPU_INITIALIZATION] / 1e9 == pytest.approx(0.1, abs=0.05)


def test_slice_counts_and_checkpoint_progress_are_taken(run: Runner) -> None:
    elastic = RECORD.replace("measurement.GoodputRecorder", "measurement.ElasticGoodputRecorder")
    more = "recorder.record_elastic_slice_counts(available_slices=2, active_slices=2, total_slices=3)\n"
    more += "recorder.record_checkpoint_progress(3, ago(1))\n"
    done = run(elastic + STEPS + more)
    assert done.stderr == "" and len(told(run, Kind.HEARTBEAT)) == 1


# --- record_event -------------------------------------------------------------------------------------


def test_the_guides_context_managers_tell_what_the_methods_tell(run: Runner) -> None:
    run(
        RECORD
        + """
with recorder.record_event(Event.JOB):
    with recorder.record_event(Event.ACCELERATOR_INIT): time.sleep(0.05)
    with recorder.record_event(Event.TRAINING_PREP): time.sleep(0.05)
    for step in range(20):
        with recorder.record_event(Event.DATA_LOADING): time.sleep(0.002)
        with recorder.record_event(Event.STEP, step): time.sleep(0.01)
    with recorder.record_event(Event.CUSTOM, "eval_step"): time.sleep(0.05)
    with recorder.record_event(Event.CUSTOM): time.sleep(0.02)
"""
    )
    assert [event.step for event in told(run, Kind.STEP)] == list(range(20))
    spent = report_on(run).breakdown
    assert spent[Bucket.TPU_INITIALIZATION] / 1e9 == pytest.approx(0.05, abs=0.03)
    assert spent[Bucket.TRAINING_PREP] / 1e9 >= 0.05
    assert {name: ns / 1e9 for name, ns in spent.detail(Bucket.CUSTOM).items()} == pytest.approx(
        {"EVAL_STEP": 0.05, "UNKNOWN": 0.02}, abs=0.03
    )
    assert spent[Bucket.DATA_LOADING_SYNC] + spent[Bucket.DATA_LOADING_ASYNC] >= 0.04e9


def test_an_exception_passes_and_ends_what_it_leaves(run: Runner) -> None:
    body = "with recorder.record_event(Event.JOB):\n    recorder.record_step_start_time(0)\n"
    body += "    with recorder.record_event(Event.CUSTOM, 'eval'): raise ZeroDivisionError\n"
    done = run(RECORD + body, code=1)
    assert "ZeroDivisionError" in done.stderr
    assert told(run, Kind.END)[0].name == "exception:ZeroDivisionError"
    assert len(spans(run, Activity.CUSTOM)) == 1


@pytest.mark.parametrize(
    ("raised", "how"),
    [
        ("KeyboardInterrupt", "user"),
        ("SystemExit(3)", "exception:SystemExit"),
        ("SystemExit", "completed"),
        ("ValueError", "exception:ValueError"),
    ],
)
@pytest.mark.parametrize("form", ["context", "finally"])
def test_a_job_tells_how_it_ended(run: Runner, form: str, raised: str, how: str) -> None:
    if form == "context":
        body = "with recorder.record_event(Event.JOB):\n    recorder.record_step_start_time(0)\n"
        body += f"    raise {raised}\n"
    else:
        body = "try:\n    recorder.record_step_start_time(0)\n"
        body += f"    raise {raised}\nfinally: recorder.record_job_end_time()\n"
    run(RECORD + body, code=None)
    assert told(run, Kind.END)[0].name == how


# --- the end of the job -------------------------------------------------------------------------------


def test_time_after_the_jobs_end_is_not_the_jobs(run: Runner) -> None:
    run(RECORD + STEPS + "recorder.record_job_end_time(); time.sleep(1)\n")
    report = report_on(run)
    assert report.status == "completed"
    assert report.breakdown.detail(Bucket.OTHER).get("TEARDOWN", 0) < 0.2e9


def test_a_job_that_ended_is_complete_even_if_its_process_is_killed_then(run: Runner) -> None:
    run(RECORD + STEPS + "recorder.record_job_end_time(); os.kill(os.getpid(), 9)\n", code=-signal.SIGKILL)
    assert report_on(run).status == "completed"


def test_a_job_that_goes_on_after_an_end_did_not_end_there(run: Runner) -> None:
    more = STEPS + "recorder.record_job_end_time(); recorder.record_job_start_time()\n"
    run(RECORD + more + STEPS.replace("range(30)", "range(30, 60)"))
    report = report_on(run)
    assert report.status == "completed" and report.steps.last == 59 and len(report.attempts) == 1


# --- by hand and by hook ------------------------------------------------------------------------------


def test_steps_told_by_hand_win_from_the_first_on(run: Runner) -> None:
    both = """
hook = current().recorder
ordinals = []
for step in range(100, 110):
    recorder.record_step_start_time(step)
    ordinals.append(hook.step(step - 100))
    ordinals.append(hook.step(step - 100))
    hook.number(3)
    hook.device_done(ordinals[-1], hook.now())
print(ordinals)
"""
    done = run(RECORD + both)
    assert done.stdout.strip() == str([ordinal for ordinal in range(10) for _ in range(2)])
    assert [event.step for event in told(run, Kind.STEP)] == list(range(100, 110))
    assert not told(run, Kind.NUMBER)
    assert report_on(run).steps.source == "device"


def test_what_both_tell_of_an_activity_counts_once(run: Runner) -> None:
    both = """
hook = current().recorder
recorder.record_tpu_init_start_time()
with hook.activity(Activity.DEVICE_INIT): time.sleep(0.1)
recorder.record_tpu_init_end_time()
waited = 0
for step in range(30):
    began = time.perf_counter()
    recorder.record_data_loading_start_time()
    with hook.activity(Activity.DATA): time.sleep(0.01)
    recorder.record_data_loading_end_time()
    waited += time.perf_counter() - began
    recorder.record_step_start_time(step)
    time.sleep(0.01)
    if step == 20:
        recorder.record_custom_badput_event_start_time(custom_badput_event_type="save")
        with hook.activity(Activity.SAVE, step=step): time.sleep(0.1)
        recorder.record_custom_badput_event_end_time(custom_badput_event_type="save")
print(waited)
"""
    done = run(RECORD + both)
    spent = report_on(run).breakdown
    assert spent[Bucket.TPU_INITIALIZATION] / 1e9 == pytest.approx(0.1, abs=0.05)
    assert spent[Bucket.SAVE] / 1e9 == pytest.approx(0.1, abs=0.05)
    assert spent.detail(Bucket.CUSTOM).get("SAVE", 0) < 0.03e9
    waited = spent[Bucket.DATA_LOADING_SYNC] + spent[Bucket.DATA_LOADING_ASYNC]
    assert waited / 1e9 == pytest.approx(float(done.stdout), abs=0.1)


# --- harmless -----------------------------------------------------------------------------------------


def test_a_fault_of_ours_is_said_once_and_the_job_goes_on(run: Runner) -> None:
    breaking = """
def broken(*_, **__): raise RuntimeError("ours")
current().recorder.training_begins = broken
current().recorder.step_by_hand = broken
with recorder.record_event(Event.JOB):
    for step in range(3):
        with recorder.record_event(Event.STEP, step): print(step)
recorder.flush()
"""
    done = run(RECORD + breaking)
    assert done.stdout.split() == ["0", "1", "2"]
    assert done.stderr.count("the plugin 'measurement' failed") == 1


@pytest.mark.parametrize(
    "call",
    [
        "recorder.record_step_start_time('three')",
        "recorder.record_step_start_time(None)",
        "recorder.record_step_start_time(2**80)",
        "recorder.record_tpu_init_start_time('yesterday')",
        "recorder.record_custom_badput_event_start_time(custom_badput_event_type=None)",
        "with recorder.record_event('step', 3): pass",
        "with recorder.record_event(Event.STEP): pass",
        "with recorder.record_event('nonsense'): pass",
        "recorder.record_step_start_time(3, time.time())",
        "recorder.record_job_start_time(datetime.datetime(1, 1, 1))",
        "recorder.record_tpu_init_end_time(datetime.datetime.max)",
    ],
)
def test_a_wrong_argument_neither_reaches_the_job_nor_ends_the_recording(run: Runner, call: str) -> None:
    done = run(RECORD + f"{call}\n{call}\n" + STEPS + "print('trained')\n")
    assert done.stdout.split()[-1] == "trained"
    assert "failed" not in done.stderr and done.stderr.count("a recorder was given") <= 1
    assert [event.step for event in told(run, Kind.STEP)][-30:] == list(range(30))


def test_a_step_that_is_said_to_begin_in_the_future_begins_now(run: Runner) -> None:
    ahead = "recorder.record_step_start_time(0, ago(-3600))\ntime.sleep(0.3)\nrecorder.record_step_start_time(1)\n"
    run(RECORD + ahead)
    first, second = (event.time for event in told(run, Kind.STEP))
    assert 0.2e9 < second - first < 10e9


def test_a_logger_that_raises_gets_nothing_more_and_the_journal_all(run: Runner) -> None:
    logger = """
class Logger:
    def write_cloud_logging_entry(self, payload): raise OSError("no network")
recorder = measurement.GoodputRecorder("job", "log", True, Logger())
"""
    done = run(RECORD + logger + STEPS)
    assert done.stderr.count("the cloud_logger that the script handed in failed") == 1
    assert len(told(run, Kind.STEP)) == 30


# --- a logger of the user's ---------------------------------------------------------------------------


class Logger:
    """As the library's callers hand one in, in their tests."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def write_cloud_logging_entry(self, payload: dict[str, Any]) -> None:
        self.entries.append(payload)

    def read_cloud_logging_entries(self) -> list[dict[str, Any]]:
        return self.entries


def test_a_logger_that_is_handed_in_gets_the_librarys_payloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from goodput_plugins.core.session import Session

    session = Session({"GOODPUT_DIR": str(tmp_path)})
    monkeypatch.setattr(by_hand, "current", lambda: session)
    monkeypatch.setattr(guard, "strict", True)
    logger, start = Logger(), datetime(2026, 5, 28, 20, 0, tzinfo=UTC)
    recorder = measurement.ElasticGoodputRecorder("job", "log", True, logger)
    second = timedelta(seconds=1)
    try:
        recorder.record_job_start_time(start)
        recorder.record_tpu_init_start_time(start + second)
        recorder.record_tpu_init_end_time(start + 2 * second)
        recorder.record_step_start_time(3, start + 3 * second)
        recorder.record_custom_badput_event_start_time(start + 4 * second, "eval")
        recorder.record_elastic_slice_counts(1, 2, 3, start + 5 * second)
        recorder.record_elastic_wait_start_time(start + 6 * second, "scale_up")
        recorder.record_job_end_time(start + 7 * second)
    finally:
        session.close()
    at = start.timestamp()
    assert logger.entries == [
        {"job_name": "job", "job_start_time": at},
        {"job_name": "job", "tpu_init_start_time": at + 1},
        {"job_name": "job", "tpu_init_end_time": at + 2},
        {"job_name": "job", "step_count": 3, "step_start_time": at + 3},
        {"job_name": "job", "custom_badput_event_type": "eval", "custom_badput_event_start_time": at + 4},
        {
            "job_name": "job",
            "active_slices": 2,
            "total_slices": 3,
            "available_slices": 1,
            "elastic_slice_counts_timestamp": at + 5,
        },
        {"job_name": "job", "elastic_wait_event_type": "scale_up", "elastic_wait_start_time": at + 6},
        {"job_name": "job", "job_end_time": at + 7},
    ]


JAX = """
import time, jax, jax.numpy as jnp, optax
from goodput_plugins import measurement
recorder = measurement.GoodputRecorder("digits", "goodput_digits", logging_enabled=True)
optimizer = optax.sgd(0.1)
weights = jnp.ones((64, 64))
state = optimizer.init(weights)

@jax.jit
def train_step(weights, state, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch @ w) ** 2))(weights)
    updates, state = optimizer.update(gradient, state)
    return optax.apply_updates(weights, updates), state, loss

with recorder.record_event(measurement.Event.JOB):
    for step in range(100, 160):
        with recorder.record_event(measurement.Event.DATA_LOADING): batch = jnp.ones((64, 64))
        with recorder.record_event(measurement.Event.STEP, step):
            weights, state, loss = train_step(weights, state, batch)
    float(loss)
"""


def test_a_jax_loop_that_tells_its_steps_and_is_hooked_has_each_step_once(run: Runner) -> None:
    pytest.importorskip("jax")
    run(JAX, GOODPUT_PLUGINS="jax", JAX_PLATFORMS="cpu")
    assert [event.step for event in told(run, Kind.STEP)] == list(range(100, 160))
    report = report_on(run)
    assert (report.run, report.steps.last, report.steps.count) == ("digits", 159, 60)
    assert report.breakdown.detail(Bucket.PROGRAM_STARTUP).get("COMPILE", 0) > 0
    assert report.plugins.keys() == {"jax"}
