"""Each argument of ``monitoring.GoodputMonitor`` and ``GCPOptions``, each variable: what the agent sends then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from exported import T0, S, report

from goodput_plugins import monitoring
from goodput_plugins.agent.settings import Settings, settings
from goodput_plugins.core.shipper import MONITOR
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.series import Options, Wanted, series_of

WINDOW = report(window=(T0 + 50 * S, T0 + 110 * S))


@dataclass
class Told:
    """A session that notes what monitors tell it, and an agent that reads it.

    Attributes:
        folder: the run's.
        runs: what the run was called.
        waits: how long each stop would wait for the last values, s; None: as the variable says.
    """

    folder: Path
    runs: list[str] = field(default_factory=list)
    waits: list[float | None] = field(default_factory=list)

    def call_run(self, name: str) -> None:
        self.runs.append(name)

    def monitor(self, wanted: Mapping[str, object]) -> None:
        (self.folder / MONITOR).write_text(json.dumps(wanted))

    def last_values(self, seconds: float | None) -> None:
        self.waits.append(seconds)

    def settings(self, *named: str, **environ: str) -> Settings:
        return settings(list(named), self.folder, environ)

    def sent(self, exporter: str = "cloud-monitoring", *named: str) -> set[str]:
        """The metrics that Cloud Monitoring gets of a run in which everything is known."""
        asked = self.settings(*named)
        wanted = asked.wanted.get(exporter, Wanted(goodput=False, windows=False, deviation=False))
        snapshot = Snapshot(T0, report(), dict.fromkeys(asked.windows, WINDOW))
        return {one.metric for one in series_of(snapshot, Options(**vars(wanted)))}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    noted = Told(tmp_path)
    monkeypatch.setattr(monitoring, "current", lambda: noted)
    monkeypatch.setattr(monitoring, "_monitors", [])
    monkeypatch.setattr(monitoring, "_exporters_of_process", {"tensorboard": True, "cloud-monitoring": True})
    monkeypatch.setenv("GOODPUT_PROJECT", "p")
    yield noted


def monitor(**arguments: Any) -> monitoring.GoodputMonitor:
    usual = {"job_name": "run-1", "logger_name": "goodput_run-1", "tensorboard_dir": "tb", "upload_interval": 30}
    return monitoring.GoodputMonitor(**usual | {"monitoring_enabled": True} | arguments)


GOODPUT = {"goodput_time", "total_elapsed_time", "disruptions", "max_productive_steps"}
DEVIATION = {"step_time_deviation", "performance"}


# --- the arguments ------------------------------------------------------------------------------------


def test_job_name_calls_the_run(told: Told) -> None:
    monitor(job_name="another").start_goodput_uploader()
    assert told.runs == ["another"]


def test_logger_name_is_that_of_its_calculator() -> None:
    assert monitor(logger_name="a_log").calculator.logger_name == "a_log"


def test_tensorboard_dir_is_written_to_and_without_one_there_is_none(told: Told) -> None:
    monitor(tensorboard_dir="tb").start_goodput_uploader()
    assert told.settings().tensorboard == str(Path("tb").absolute())
    monitoring._monitors.clear()
    monitor(tensorboard_dir="").start_goodput_uploader()
    assert list(told.settings().wanted) == ["cloud-monitoring"]


def test_upload_interval_of_the_quickest_monitor_counts(told: Told) -> None:
    monitor(upload_interval=7).start_goodput_uploader()
    assert told.settings().interval == 7
    monitor(upload_interval=5).start_rolling_window_goodput_uploader([60])
    assert told.settings().interval == 5


def test_without_monitoring_enabled_nothing_is_asked_for(told: Told) -> None:
    one = monitor(monitoring_enabled=False, include_step_deviation=True)
    one.start_goodput_uploader()
    one.start_step_deviation_uploader()
    one.start_rolling_window_goodput_uploader([60])
    one.stop_goodput_uploader()
    assert not (told.folder / MONITOR).exists() and not told.waits and not told.runs


def test_pathway_enabled_changes_nothing(told: Told) -> None:
    monitor(pathway_enabled=True).start_goodput_uploader()
    assert told.sent() == GOODPUT


def test_include_badput_breakdown(told: Told) -> None:
    one = monitor()
    one.start_goodput_uploader()
    one.start_rolling_window_goodput_uploader([60])
    assert told.sent() == {*GOODPUT, "interval_goodput"}
    monitoring._monitors.clear()
    one = monitor(include_badput_breakdown=True)
    one.start_goodput_uploader()
    one.start_rolling_window_goodput_uploader([60])
    assert told.sent() == {*GOODPUT, "badput_time", "interval_goodput", "interval_badput"}


def test_include_step_deviation(told: Told) -> None:
    monitor().start_step_deviation_uploader()
    assert not (told.folder / MONITOR).exists()
    monitor(include_step_deviation=True).start_step_deviation_uploader()
    assert told.sent() == told.sent("tensorboard") == DEVIATION


def test_configured_ideal_step_time_and_the_interval_of_the_deviation(told: Told) -> None:
    one = monitor(include_step_deviation=True, configured_ideal_step_time=0.25, step_deviation_interval_seconds=4)
    one.start_goodput_uploader()
    assert (told.settings().ideal, told.settings().interval) == (250_000_000, 30)
    one.start_step_deviation_uploader()
    assert told.settings().interval == 4


def test_a_stop_waits_for_the_last_values_unless_it_is_told_not_to(told: Told) -> None:
    """``final_flush_timeout_seconds``, and ``skip_final_flush`` of the monitor and of the stop, which wins."""
    for arguments, skip in (
        ({}, None),
        ({"final_flush_timeout_seconds": 7}, None),
        ({"skip_final_flush": True}, None),
        ({"skip_final_flush": True, "final_flush_timeout_seconds": 3}, False),
        ({}, True),
    ):
        one = monitor(**arguments)
        one.start_goodput_uploader()
        one.stop_goodput_uploader(skip_final_flush=skip)
    assert told.waits == [None, 7, 3]


@pytest.mark.parametrize("what", ["goodput", "step_deviation", "rolling_window_goodput"])
def test_each_uploader_stops_by_itself(told: Told, what: str) -> None:
    one = monitor(include_step_deviation=True)
    one.start_goodput_uploader()
    one.start_step_deviation_uploader()
    one.start_rolling_window_goodput_uploader([60])
    getattr(one, f"stop_{what}_uploader")()
    gone = {"goodput": GOODPUT, "step_deviation": DEVIATION, "rolling_window_goodput": {"interval_goodput"}}[what]
    assert told.sent() == {*GOODPUT, *DEVIATION, "interval_goodput"} - gone
    getattr(one, f"stop_{what}_uploader")()  # once more is nothing
    assert len(told.waits) == 1


# --- GCPOptions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("goodput", "deviation"), [(True, False), (False, True), (False, False)])
def test_flags_that_are_off_mean_no_series_also_where_the_environment_names_it(
    told: Told, goodput: bool, deviation: bool
) -> None:
    flags = {"enable_gcp_goodput_metrics": goodput, "enable_gcp_step_deviation_metrics": deviation}
    one = monitor(include_step_deviation=True, gcp_options=monitoring.GCPOptions(**flags))
    one.start_goodput_uploader()
    one.start_step_deviation_uploader()
    one.start_rolling_window_goodput_uploader([60])
    kept = ({*GOODPUT, "interval_goodput"} if goodput else set()) | (DEVIATION if deviation else set())
    assert told.sent() == told.sent("cloud-monitoring", "cloud-monitoring") - {"badput_time", "interval_badput"} == kept
    assert told.sent("tensorboard") == {*GOODPUT, *DEVIATION, "interval_goodput"}


@pytest.mark.parametrize(
    ("option", "label"),
    [
        ("project_id", "project"),
        ("location", "location"),
        ("replica_id", "replica"),
        ("acc_type", "accelerator"),
        ("cluster_name", "cluster"),
    ],
)
def test_labels_of_gcp_options(told: Told, option: str, label: str) -> None:
    monitor(gcp_options=monitoring.GCPOptions(**{option: "theirs"})).start_goodput_uploader()
    assert told.settings().labels[label] == "theirs"


# --- the variables ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value", "read"),
    [
        ("GOODPUT_UPLOAD_INTERVAL", "9", lambda found: found.interval == 9),
        ("GOODPUT_ROLLING_WINDOWS", "60,3600", lambda found: found.windows == (60, 3600)),
        ("GOODPUT_TENSORBOARD_DIR", "/tb", lambda found: found.tensorboard == "/tb"),
        ("GOODPUT_PROMETHEUS_ADDRESS", "127.0.0.1:9", lambda found: found.address == "127.0.0.1:9"),
        ("GOODPUT_PROJECT", "ours", lambda found: found.labels.get("project") == "ours"),
        ("GOODPUT_LOCATION", "ours", lambda found: found.labels.get("location") == "ours"),
        ("GOODPUT_REPLICA_ID", "7", lambda found: found.labels.get("replica") == "7"),
        ("GOODPUT_ACCELERATOR_TYPE", "ours", lambda found: found.labels.get("accelerator") == "ours"),
        ("GOODPUT_HEARTBEAT", "on", lambda found: found.heartbeat),
    ],
)
def test_each_variable_is_heeded_and_wins_over_the_scripts_argument(
    told: Told, variable: str, value: str, read: Any
) -> None:
    theirs = {"project_id": "t", "location": "t", "replica_id": "t", "acc_type": "t"}
    one = monitor(upload_interval=1, gcp_options=monitoring.GCPOptions(**theirs))
    one.start_rolling_window_goodput_uploader([5])
    assert not read(told.settings("tensorboard"))
    assert read(told.settings("tensorboard", **{variable: value}))


@pytest.mark.parametrize("exporter", ["tensorboard", "prometheus", "cloud-monitoring"])
def test_an_exporter_that_the_environment_names_gets_everything(told: Told, exporter: str) -> None:
    assert told.settings(exporter).wanted == {exporter: Wanted()}
