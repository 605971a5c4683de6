"""What follows Google's guide, and what MaxText and AXLearn call, works with the import swapped."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from running import Runner

# --- the guide, in its order --------------------------------------------------------------------------

TRAINING = """
import time
from goodput_plugins import goodput, measurement, monitoring

is_process_0 = True
recorder = measurement.GoodputRecorder(
    job_name="run-1", logger_name="goodput_run-1", logging_enabled=is_process_0)
with recorder.record_event(measurement.Event.JOB):
    monitor = monitoring.GoodputMonitor(
        job_name="run-1", logger_name="goodput_run-1", tensorboard_dir="tb", upload_interval=30,
        monitoring_enabled=True, pathway_enabled=False, include_badput_breakdown=True,
        gcp_options=monitoring.GCPOptions(enable_gcp_goodput_metrics=True))
    monitor.start_goodput_uploader()
    monitor.start_rolling_window_goodput_uploader([3600, 86400])
    with recorder.record_event(measurement.Event.ACCELERATOR_INIT): time.sleep(0.2)
    with recorder.record_event(measurement.Event.TRAINING_PREP): time.sleep(0.3)
    for step in range(START, 60):
        with recorder.record_event(measurement.Event.DATA_LOADING): time.sleep(0.001)
        with recorder.record_event(measurement.Event.STEP, step): time.sleep(0.01)
        if step % 20 == 19:
            with recorder.record_event(measurement.Event.CUSTOM, "eval_step"): time.sleep(0.1)
        if step == 39 and START == 0:
            import os
            os.kill(os.getpid(), 9)
    monitor.stop_rolling_window_goodput_uploader()
    monitor.stop_goodput_uploader()
"""

ANALYSIS = """
import datetime, json
from goodput_plugins import goodput
calculator = goodput.GoodputCalculator(job_name="run-1", logger_name="goodput_run-1")
percent, badput, last_step = calculator.get_job_goodput(include_badput_breakdown=True)
assert f"{percent:.2f}% {badput[goodput.BadputType.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION]:.2f}%"
details = calculator.get_job_goodput_details()
end_utc = datetime.datetime.now(datetime.timezone.utc)
start_utc = end_utc - datetime.timedelta(hours=1)
interval = calculator.get_job_goodput_interval(start_utc, end_utc)
nothing = calculator.get_job_goodput_interval(start_utc, start_utc + datetime.timedelta(minutes=1))
print(json.dumps({
    "percent": percent, "last_step": last_step, "total": details["total_elapsed_time"],
    "badput": {kind.name: share for kind, share in badput.items()},
    "seconds": {kind.name: spent for kind, spent in details["badput_time"].items()},
    "goodput": details["goodput_time"][goodput.GoodputType.TOTAL],
    "disruptions": details["disruption_count"], "preserved": details["max_productive_step"],
    "interval": [interval[0], {kind.name: share for kind, share in interval[1].items()}, *interval[2:]],
    "nothing": [nothing[0], *nothing[2:]],
    "deviations": len(calculator.get_step_deviation()),
    "one": calculator.get_step_deviation(1.0)[45],
    "without": calculator.get_job_goodput()[1],
}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The guide's calls: a job that is killed after step 39 and resumed at 30; then its analysis."""
    run = Runner(tmp_path_factory.mktemp("guide"))
    killed = run(TRAINING.replace("START", "0"), code=-9)
    assert "failed" not in killed.stderr
    time.sleep(0.5)
    run(TRAINING.replace("START", "30"))
    answers: dict[str, Any] = json.loads(run(ANALYSIS).stdout)
    return answers


def test_the_guides_job_has_its_goodput(answers: dict[str, Any]) -> None:
    assert answers["last_step"] == answers["preserved"] == 59
    assert answers["disruptions"] == 1
    assert answers["goodput"] == pytest.approx(60 * 0.0102, abs=0.2)
    assert answers["percent"] == pytest.approx(100 * answers["goodput"] / answers["total"])


def test_the_guides_badput_is_where_it_was_spent(answers: dict[str, Any]) -> None:
    spent = answers["seconds"]
    assert spent["TPU_INITIALIZATION"] == pytest.approx(0.4, abs=0.1)
    assert spent["TRAINING_PREP"] >= 0.6
    assert spent["CUSTOM_BADPUT_EVENTS"] == {"EVAL_STEP": pytest.approx(0.4, abs=0.1)}
    assert spent["WASTED_PROGRESS_FROM_DISRUPTION"] == pytest.approx(0.1, abs=0.08)
    assert spent["INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"] == pytest.approx(0.5, abs=0.2)
    for name, share in answers["badput"].items():
        expected = spent[name]
        if isinstance(expected, dict):
            assert share == {event: pytest.approx(100 * ns / answers["total"]) for event, ns in expected.items()}
        else:
            assert share == pytest.approx(100 * expected / answers["total"])


def test_goodput_and_badput_are_the_whole(answers: dict[str, Any]) -> None:
    shares = {name: share for name, share in answers["badput"].items() if name != "DATA_LOADING_ASYNC"}
    events = shares.pop("CUSTOM_BADPUT_EVENTS")
    assert answers["percent"] + sum(shares.values()) + sum(events.values()) == pytest.approx(100)
    assert shares["UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"] == 0.0
    assert answers["without"] == {}


def test_an_interval_around_the_job_is_the_job_and_one_before_it_is_nothing(answers: dict[str, Any]) -> None:
    percent, badput, last_step, total, disruptions = answers["interval"]
    assert (percent, total) == (pytest.approx(answers["percent"]), pytest.approx(answers["total"]))
    assert badput == {name: pytest.approx(share) for name, share in answers["badput"].items()}
    assert (last_step, disruptions) == (59, 1)
    assert answers["nothing"] == [0.0, 0, 0.0, 0]


def test_step_deviations_are_of_steps(answers: dict[str, Any]) -> None:
    assert 50 <= answers["deviations"] <= 60
    assert answers["one"] == pytest.approx(1 - 0.0102, abs=0.05)


# --- what MaxText calls -------------------------------------------------------------------------------

MAXTEXT = """
import contextlib, sys, time
from enum import Enum
from types import SimpleNamespace
from goodput_plugins import goodput, monitoring

class Told(Enum):
    JOB = "job"
    TPU_INIT = "tpu_init"
    TRAINING_PREPARATION = "training_preparation"
    DATA_LOADING = "data_loading"
    STEP = "step"

config = SimpleNamespace(
    run_name="llama/7b", tensorboard_dir="tb", goodput_upload_interval_seconds=30, enable_pathways_goodput=True,
    monitor_step_time_deviation=True, step_deviation_interval_seconds=30)
process_index = 0
recorder = goodput.GoodputRecorder(config.run_name, f"goodput_{config.run_name}", process_index == 0)

def record(name, *arguments):
    method = getattr(recorder, name, None)
    if method:
        method(*arguments)

@contextlib.contextmanager
def around(event, *arguments):
    record(f"record_{event.value}_start_time", *arguments)
    yield
    record(f"record_{event.value}_end_time", *arguments)

@contextlib.contextmanager
def monitored():
    monitor = monitoring.GoodputMonitor(
        job_name=config.run_name, logger_name=f"goodput_{config.run_name}", tensorboard_dir=config.tensorboard_dir,
        upload_interval=config.goodput_upload_interval_seconds, monitoring_enabled=True,
        pathway_enabled=config.enable_pathways_goodput, include_badput_breakdown=True,
        include_step_deviation=config.monitor_step_time_deviation,
        step_deviation_interval_seconds=config.step_deviation_interval_seconds,
        gcp_options=monitoring.GCPOptions(enable_gcp_goodput_metrics=True, enable_gcp_step_deviation_metrics=False))
    monitor.start_goodput_uploader()
    monitor.start_step_deviation_uploader()
    try:
        yield
    finally:
        monitor.stop_step_deviation_uploader()
        monitor.stop_goodput_uploader()

with monitored(), around(Told.JOB):
    with around(Told.TPU_INIT): time.sleep(0.1)
    with around(Told.TRAINING_PREPARATION): time.sleep(0.1)
    for step in range(50):
        with around(Told.DATA_LOADING): time.sleep(0.001)
        with around(Told.STEP, step): time.sleep(0.01)

calculator = goodput.GoodputCalculator(
    job_name=config.run_name, logger_name=f"goodput_{config.run_name}", using_pathways=True)
current, breakdown, last_step = calculator.get_job_goodput(include_badput_breakdown=True)
print(f"Last step recorded: {last_step}")
print(f"Goodput (%): {current:.2f}%")
for kind, share in breakdown.items():
    if kind == goodput.BadputType.CUSTOM_BADPUT_EVENTS:
        for name, part in share.items(): print(f"  - {name}: {part:.2f}%")
    else:
        print(f"Badput due to {kind.name}: {share:.2f}%")
"""


def test_the_calls_of_maxtext_work_unchanged(run: Runner) -> None:
    done = run(MAXTEXT)
    printed = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    assert printed["Last step recorded"] == "49"
    assert 5 < float(printed["Goodput (%)"].rstrip("%")) < 95
    assert float(printed["Badput due to TPU_INITIALIZATION"].rstrip("%")) > 1
    assert run.ending() == "completed"


# --- what AXLearn calls -------------------------------------------------------------------------------

AXLEARN = """
import contextlib, time
from goodput_plugins import goodput
from goodput_plugins import monitoring as goodput_monitoring

def made(recorder_class):
    return recorder_class(job_name="axlearn", logger_name="goodput_logger_axlearn", logging_enabled=True)

recorder = made(goodput.ElasticGoodputRecorder)

@contextlib.contextmanager
def record_event(value, *arguments, **named):
    start = getattr(recorder, f"record_{value}_start_time", None)
    end = getattr(recorder, f"record_{value}_end_time", None)
    if start: start(*arguments, **named)
    yield
    if end: end(*arguments, **named)

def monitor(monitor_class, **more):
    return monitor_class(
        job_name="axlearn", logger_name="goodput_logger_axlearn", tensorboard_dir="summaries", upload_interval=30,
        monitoring_enabled=True, include_badput_breakdown=True, **more)

cumulative = monitor(goodput_monitoring.ElasticGoodputMonitor, include_step_deviation=True,
    include_slice_efficiency=True, step_deviation_interval_seconds=10,
    gcp_options=goodput_monitoring.GCPOptions(enable_gcp_goodput_metrics=True, enable_gcp_step_deviation_metrics=True))
rolling = monitor(goodput_monitoring.GoodputMonitor, pathway_enabled=False)
cumulative.start_goodput_uploader()
rolling.start_rolling_window_goodput_uploader([86400, 604800])
with record_event("job"):
    with record_event("tpu_init"): time.sleep(0.1)
    with record_event("training_preparation"): time.sleep(0.1)
    for step in range(50):
        with record_event("data_loading"): time.sleep(0.001)
        with record_event("step", step): time.sleep(0.01)
        if step == 25:
            with record_event("custom_badput_event", custom_badput_event_type="EVAL"): time.sleep(0.1)
            recorder.record_elastic_slice_counts(available_slices=2, active_slices=1, total_slices=2)
            recorder.record_elastic_wait_start_time(event_type="slice_down"); time.sleep(0.1)
            recorder.record_elastic_wait_end_time(event_type="slice_down")
            recorder.record_elastic_reinit_start_time(); time.sleep(0.1)
            recorder.record_elastic_reinit_end_time()
    recorder.flush()
rolling.stop_rolling_window_goodput_uploader()
cumulative.stop_goodput_uploader()

calculator = goodput.ElasticGoodputCalculator(job_name="axlearn", logger_name="goodput_logger_axlearn")
spent = calculator.get_job_goodput_details()[goodput.MetricType.BADPUT_TIME.value]
for kind in ("CUSTOM_BADPUT_EVENTS", "ELASTIC_SLICE_DOWN", "ELASTIC_REINITIALIZATION", "TPU_INITIALIZATION"):
    value = spent[goodput.BadputType[kind]]
    print(kind, value["EVAL"] if isinstance(value, dict) else value)
"""


def test_the_calls_of_axlearn_work_unchanged(run: Runner) -> None:
    done = run(AXLEARN)
    spent = {kind: float(seconds) for kind, seconds in map(str.split, done.stdout.splitlines())}
    assert spent == {
        kind: pytest.approx(0.1, abs=0.08)
        for kind in ("CUSTOM_BADPUT_EVENTS", "ELASTIC_SLICE_DOWN", "ELASTIC_REINITIALIZATION", "TPU_INITIALIZATION")
    }
    assert run.ending() == "completed"
