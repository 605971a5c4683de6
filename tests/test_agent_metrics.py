"""What the agent hands to Cloud Monitoring, TensorBoard and Prometheus is the local report, whoever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.monitoring_v3", reason="google-cloud-monitoring is not installed here")
pytest.importorskip("tensorboardX", reason="tensorboardX is not installed here")
pytest.importorskip("tensorboard", reason="tensorboard is not installed here")
pytest.importorskip("prometheus_client", reason="prometheus-client is not installed here")

from metric_service import Metrics as Service
from metric_service import serving
from running import Runner, reported
from sending import Job, board, free_port, scrape, until

from goodput_plugins.agent.making import LAST
from goodput_plugins.agent.settings import settings
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import percent
from goodput_plugins.core.shipper import MONITOR
from goodput_plugins.exporters.series import Wanted

# --- a run, from its start to the last word -----------------------------------------------------------


@dataclass
class Told:
    """What was seen of a run whose agent was killed.

    Attributes:
        report: what ``goodput report`` says of it.
        service: what Cloud Monitoring had been told.
        scraped: what Prometheus saw of the run's end.
        board: TensorBoard's points.
        status: the agent's last.
        exit_seconds: from the last step to the end of the process.
    """

    job: Job
    report: dict[str, Any]
    service: Service
    scraped: Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
    board: dict[str, list[tuple[float, int, float]]]
    status: dict[str, Any]
    exit_seconds: float


EVALUATES = """
from goodput_plugins.core.events import Activity
def evaluate(seconds):
    recorder.begin(Activity.CUSTOM, name="EVAL")
    time.sleep(seconds)
    recorder.finish(Activity.CUSTOM, name="EVAL")
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    job = Job(Runner(tmp_path_factory.mktemp("metrics")))
    port = free_port()
    with serving(Service()) as service:
        job.variables = {
            "GOODPUT_EXPORTERS": "cloud-monitoring,tensorboard,prometheus",
            "GOODPUT_UPLOAD_INTERVAL": "1",
            "GOODPUT_ROLLING_WINDOWS": "5,3600",
            "GOODPUT_MONITORING_ENDPOINT": f"127.0.0.1:{service.port}",
            "GOODPUT_PROJECT": "p",
            "GOODPUT_HEARTBEAT": "on",
            "GOODPUT_PROMETHEUS_ADDRESS": f"127.0.0.1:{port}",
        }
        training = job.start(EVALUATES + "train(120); evaluate(4); train(200, 120); print(time.time())")
        try:
            until(lambda: job.exporters.get("cloud-monitoring", {}).get("sent"))
            job.kill_agent()
            killed = job.status["pid"]
            job.agent_by_hand()
            until(lambda: job.status["pid"] != killed and job.exporters.get("prometheus", {}).get("last_success"))
            out, err = training.communicate(timeout=100)
            assert training.returncode == 0 and err == ""
            exit_seconds = time.time() - float(out)
            ended = ("goodput_run_status", (("run", "r"), ("status", "completed")))
            until(lambda: scrape(port).get(ended) == 1.0)
            scraped = scrape(port)
            until(lambda: job.status["state"] == "done")
            yield Told(
                job, reported(job.folder), service, scraped, board(job.folder / "tensorboard"), job.status, exit_seconds
            )
        finally:
            training.kill()
            job.kill_agent()


def badput(report: dict[str, Any]) -> dict[str, float]:
    """Each source's seconds, as exporters name them; what is not known has none."""
    spent = dict(report["badput_seconds"])
    custom = spent.pop("CUSTOM_BADPUT_EVENTS") or {}
    return {name: s for name, s in spent.items() if s is not None} | {
        f"CUSTOM_BADPUT_EVENTS.{name}": s for name, s in custom.items()
    }


@pytest.mark.timeout(240)
def test_the_last_values_in_cloud_monitoring_are_the_report(told: Told) -> None:
    last, report = told.service.last, told.report
    labels = {"workload_id": "r", "replica_id": "0", "location": "global", "accelerator_type": ""}
    assert report["status"] == "completed" and report["steps"]["last"] == 319
    assert last("goodput_time", goodput_source="TOTAL", **labels) == pytest.approx(report["goodput_seconds"], abs=1e-6)
    assert last("total_elapsed_time") == pytest.approx(report["elapsed_seconds"], abs=1e-6)
    assert last("disruptions") == report["disruptions"]
    assert last("performance") == pytest.approx(report["steps"]["ideal_seconds"], abs=1e-6)
    assert last("step_time_deviation") == pytest.approx(report["steps"]["deviation_seconds"], abs=1e-6)
    for source, seconds in badput(report).items():
        assert last("badput_time", badput_source=source) == pytest.approx(seconds, abs=1e-6)


def test_nothing_is_refused_though_the_agent_was_killed(told: Told) -> None:
    service = told.service
    assert service.refused == []
    assert told.status["exporters"]["cloud-monitoring"]["refused"] == 0
    points = next(points for (kind, *_), points in service.written.items() if kind.endswith("/goodput_time"))
    assert len(points) >= 3  # before the kill, after it, and the last word
    assert any(kind.endswith("/heartbeat") for kind, *_ in service.written)
    assert json.loads((told.job.folder / LAST).read_text())["p/global/0"] == points[-1][0]


def window(told: Told, length: int) -> dict[str, Any]:
    """What ``goodput report --from --to`` says of the last word's rolling window."""
    now = told.status["exporters"]["tensorboard"]["last_success"]
    begin, end = (f"{at // 10**9}.{at % 10**9:09d}" for at in (now - length * 10**9, now))
    command = [sys.executable, "-m", "goodput_plugins", "report", str(told.job.folder), "--json"]
    done = subprocess.run([*command, "--from", begin, "--to", end], capture_output=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("length", [5, 3600])
def test_rolling_windows_are_reports_from_to(told: Told, length: int) -> None:
    report = window(told, length)
    share = 100 * report["goodput_seconds"] / report["elapsed_seconds"]
    assert told.service.last("interval_goodput", rolling_window_size=str(length)) == pytest.approx(share, abs=1e-4)
    assert told.board[f"rolling_{length}s/goodput/goodput"][-1][2] == pytest.approx(share, abs=1e-4)
    for source, seconds in badput(report).items():
        told_share = told.service.last("interval_badput", badput_source=source, rolling_window_size=str(length))
        assert told_share == pytest.approx(100 * seconds / report["elapsed_seconds"], abs=1e-4)
    ratio = told.scraped["goodput_window_goodput_ratio", (("run", "r"), ("window_seconds", str(length)))]
    assert 0 < ratio <= 1


def test_tensorboard_has_the_report_and_its_way_there(told: Told) -> None:
    points = told.board["goodput/goodput"]
    assert points[-1][1] == told.report["steps"]["last"]
    assert points[-1][2] == pytest.approx(told.report["goodput_percent"], abs=1e-2)
    assert len(points) >= 2 and points == sorted(points)  # over both agents
    assert told.board["steps/ideal_seconds"][-1][2] == pytest.approx(told.report["steps"]["ideal_seconds"], rel=1e-4)


def test_every_point_is_the_report_of_its_moment(told: Told) -> None:
    """Also those of the time in which an evaluation went on."""
    (log,) = read(told.job.folder)
    evaluations = {at: value for at, _, value in told.board["badput/custom_badput_events/eval"]}
    growing = 0
    for at, _, value in told.board["goodput/goodput"]:
        then = calculate(log, now=round(at * 1e9), as_of=round(at * 1e9))
        assert value == pytest.approx(percent(then.breakdown.goodput, then.breakdown.elapsed), abs=0.05)
        spent = then.breakdown.detail(Bucket.CUSTOM).get("EVAL", 0)
        assert evaluations.get(at, 0.0) == pytest.approx(percent(spent, then.breakdown.elapsed), abs=0.05)
        growing += 0 < spent < 3.9e9
    assert growing >= 2


def test_prometheus_sees_the_report(told: Told) -> None:
    run = (("run", "r"),)
    assert told.scraped["goodput_productive_seconds", run] == pytest.approx(told.report["goodput_seconds"], abs=1e-6)
    assert told.scraped["goodput_elapsed_seconds", run] == pytest.approx(told.report["elapsed_seconds"], abs=1e-6)
    sources = {dict(labels)["source"]: v for (name, labels), v in told.scraped.items() if "badput_seconds" in name}
    assert sources == pytest.approx(badput(told.report), abs=1e-6)


def test_the_agent_says_at_last_what_it_sent(told: Told) -> None:
    sent = told.status["exporters"]["cloud-monitoring"]["sent"]
    (last,) = [line for line in told.job.log.splitlines() if " done" in line]
    assert f"cloud-monitoring: {sent} values sent" in last and "prometheus: nothing failed" in last


def test_the_script_does_not_wait_for_the_next_point(told: Told) -> None:
    assert told.exit_seconds < 30  # it would have waited 60 s for what it was told to wait for


def test_the_doctor_says_when_values_went_out(told: Told) -> None:
    from goodput_plugins.doctor.case import Case
    from goodput_plugins.doctor.uploads import refused, values

    case = Case(told.job.folder, {}, now=time.time_ns())
    lines = [one.text for one in values(case)]
    assert len(lines) == 3 and all("the last values went out" in line for line in lines)
    assert [one.text for one in refused(case)] == ["nothing was refused"]


# --- what does not work holds up nothing --------------------------------------------------------------


def test_an_endpoint_that_is_down_costs_nothing(job: Job) -> None:
    job.variables = {
        "GOODPUT_EXPORTERS": "cloud-monitoring,tensorboard",
        "GOODPUT_UPLOAD_INTERVAL": "1",
        "GOODPUT_MONITORING_ENDPOINT": f"127.0.0.1:{free_port()}",
        "GOODPUT_PROJECT": "p",
    }
    begun = time.monotonic()
    out, err = job.start("train(60); print('trained')").communicate(timeout=100)
    assert (out, err) == ("trained\n", "") and time.monotonic() - begun < 40
    until(lambda: job.exporters.get("cloud-monitoring", {}).get("failed"))
    assert "UNAVAILABLE" in job.exporters["cloud-monitoring"]["last_error"] or "ServiceUnavailable" in str(
        job.exporters["cloud-monitoring"]["last_error"]
    )
    assert job.log.count("cloud-monitoring: ") <= 2
    last = board(job.folder / "tensorboard")["goodput/goodput"][-1]
    assert last[1] == 59 and last[2] == pytest.approx(reported(job.folder)["goodput_percent"], abs=1e-2)


def test_without_libraries_the_script_is_told_once_what_to_install(job: Job) -> None:
    job.variables = {"GOODPUT_EXPORTERS": "prometheus,tensorboard,cloud-monitoring"}
    source = "from goodput_plugins.core import shipper\nshipper._is_installed = lambda package: False\ntrain(5)"
    _, err = job.start(source).communicate(timeout=100)
    assert err.count("pip install 'goodput-plugins[prometheus,tensorboard,gcp]'") == err.count("\n") == 1
    assert not (job.folder / "agent.log").exists()


# --- monitors of the script's -------------------------------------------------------------------------

MONITORED = """
from goodput_plugins import monitoring
monitor = monitoring.GoodputMonitor(
    job_name="m", logger_name="goodput_m", tensorboard_dir="tb", upload_interval=1, monitoring_enabled=True,
    include_badput_breakdown=True, include_step_deviation=True,
    gcp_options=monitoring.GCPOptions(
        project_id="p", location="us-east5-a", replica_id="3", acc_type="TPU-v5p",
        enable_gcp_step_deviation_metrics=False))
monitor.start_goodput_uploader()
monitor.start_step_deviation_uploader()
train(150)
monitor.start_rolling_window_goodput_uploader([4])
train(30, 150)
begun = time.monotonic()
monitor.stop_rolling_window_goodput_uploader()
monitor.stop_step_deviation_uploader()
monitor.stop_goodput_uploader()
print(time.monotonic() - begun)
foreign = [name for name in sys.modules if name.split(".")[0] in ("grpc", "google", "tensorboardX")]
assert not foreign, foreign
train(60, 180)
"""


def test_monitors_have_their_series_written_until_they_are_stopped(job: Job) -> None:
    job.name = "m"
    with serving(Service()) as service:
        job.variables = {"GOODPUT_MONITORING_ENDPOINT": f"127.0.0.1:{service.port}"}
        training = job.start(MONITORED)
        out, err = training.communicate(timeout=100)
        assert training.returncode == 0 and err == "", err
        assert float(out) < 30
        until(lambda: json.loads((job.folder / MONITOR).read_text())["started"] == [])
        labels = {"location": "us-east5-a", "workload_id": "m", "replica_id": "3", "accelerator_type": "TPU-v5p"}
        points = board(job.run.folder / "tb")
        last = points["goodput/goodput"][-1][2]
        until(lambda: 100 * service.last("goodput_time") / service.last("total_elapsed_time") == pytest.approx(last))
        assert service.last("goodput_time", **labels) > 5
        assert service.refused == []
        kinds = {kind.rpartition("/")[2] for kind, *_ in service.written}
        assert "badput_time" in kinds and not {"step_time_deviation", "performance"} & kinds
    assert {"rolling_4s/goodput/goodput", "step_deviation", "badput/other"} <= set(points)
    assert 179 <= points["goodput/goodput"][-1][1] < 239  # the last values, and none after the stop
    assert points == board(job.run.folder / "tb")


def test_a_monitor_that_fails_leaves_training_alone(job: Job) -> None:
    source = (
        "from goodput_plugins.core.session import Session\n"
        "def fail(*args): raise ZeroDivisionError\n"
        "Session.monitor = fail\n" + MONITORED.replace("train(150)", "train(5)") + "print('trained')"
    )
    out, err = job.start(source).communicate(timeout=100)
    assert out.endswith("trained\n") and err.count("the plugin 'monitoring' failed") == 1


def test_monitors_are_turned_off_by_the_variable(job: Job) -> None:
    job.variables = {"GOODPUT_EXPORTERS": "off"}
    _, err = job.start(MONITORED.replace("train(150)", "train(5)")).communicate(timeout=100)
    assert err == "" and not (job.folder / MONITOR).exists() and not (job.folder / "agent.log").exists()


ASKED: dict[str, Any] = {
    "exporters": ["tensorboard", "cloud-monitoring"],
    "started": ["windows"],
    "interval": 7.0,
    "windows": [60.0],
    "ideal": 0.5,
    "tensorboard": "/tb",
    "labels": {"project": "theirs", "replica": "3", "location": None},
    "badput": True,
    "gcp_goodput": True,
    "gcp_deviation": False,
}


def test_variables_win_over_monitors_which_win_over_defaults(tmp_path: Path) -> None:
    assert settings(["tensorboard"], tmp_path, {}).wanted == {"tensorboard": Wanted()}
    (tmp_path / MONITOR).write_text(json.dumps(ASKED))
    theirs = settings([], tmp_path, {})
    assert theirs.wanted == {
        "tensorboard": Wanted(goodput=False, deviation=False),
        "cloud-monitoring": Wanted(goodput=False, deviation=False),
    }
    assert (theirs.interval, theirs.windows, theirs.ideal, theirs.tensorboard) == (7.0, (60,), 500_000_000, "/tb")
    assert theirs.labels == {"project": "theirs", "replica": "3"}
    environ = {"GOODPUT_UPLOAD_INTERVAL": "9", "GOODPUT_ROLLING_WINDOWS": "5", "GOODPUT_PROJECT": "ours"}
    ours = settings(["cloud-monitoring"], tmp_path, environ)
    assert (ours.interval, ours.windows, ours.labels["project"]) == (9.0, (5,), "ours")
    assert ours.wanted["cloud-monitoring"] == Wanted(deviation=False)  # named, so all but what is left out
    (tmp_path / MONITOR).write_text(json.dumps({**ASKED, "gcp_goodput": False}))
    assert list(settings([], tmp_path, {}).wanted) == ["tensorboard"]


@pytest.mark.parametrize(
    "held", ["", "[]", "{}", '{"exporters": 3}', '{"exporters": ["tensorboard"], "interval": "x"}']
)
def test_what_monitors_want_that_cannot_be_read_is_nothing(tmp_path: Path, held: str) -> None:
    (tmp_path / MONITOR).write_text(held)
    assert settings([], tmp_path, {}).wanted == {}
