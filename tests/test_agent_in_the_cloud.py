"""The agent on a machine of Google Cloud: labels from its metadata server, a heartbeat; the trainer is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.monitoring_v3", reason="google-cloud-monitoring is not installed here")
pytest.importorskip("tensorboard", reason="tensorboard is not installed here")
pytest.importorskip("tensorboardX", reason="tensorboardX is not installed here")

import google_cloud
from metric_service import Metrics, serving
from running import Runner, reported
from sending import Job, board, until


@dataclass
class Seen:
    """What was told of a run whose trainer was killed, and what ``goodput report`` tells."""

    service: Metrics
    projects: set[str]
    report: dict[str, Any]
    job: Job
    points: dict[str, list[tuple[float, int, float]]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    job = Job(Runner(tmp_path_factory.mktemp("cloud")))
    cloud = google_cloud.Cloud()
    cloud.metadata |= {"instance/id": "987", "instance/attributes/cluster-name": "a-cluster"}
    with google_cloud.serving(cloud), serving(Metrics()) as service:
        job.variables = {
            "GOODPUT_EXPORTERS": "cloud-monitoring,tensorboard",
            "GOODPUT_UPLOAD_INTERVAL": "1",
            "GOODPUT_ROLLING_WINDOWS": "3600",
            "GOODPUT_MONITORING_ENDPOINT": f"127.0.0.1:{service.port}",
            "GOODPUT_HEARTBEAT": "on",
            "GOOGLE_CLOUD_PROJECT": "",
            "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json",
            "GCE_METADATA_HOST": f"127.0.0.1:{cloud.port}",
        }
        training = job.start("train(10**6)")
        try:
            until(lambda: service.written)
            time.sleep(1)
        finally:
            training.kill()
            training.communicate()
        until(lambda: job.status["state"] == "done", 100)
        points = board(job.folder / "tensorboard")
        yield Seen(service, service.projects, reported(job.folder), job, points)


@pytest.mark.timeout(240)
def test_project_zone_accelerator_and_cluster_are_those_of_the_machine(seen: Seen) -> None:
    assert seen.projects == {"projects/my-project"}
    of_runs = {key for key in seen.service.written if not key[0].endswith("/heartbeat")}
    resources = {resource for _, _, _, resource in of_runs}
    assert resources == {frozenset({"location": "us-central2-b", "workload_id": "r", "replica_id": "0"}.items())}
    for kind, _, labels, _ in of_runs:
        common = {("accelerator_type", "TPU-v4p"), ("cluster_name", "a-cluster")}
        assert labels == set() if kind.endswith("/performance") else common <= labels, kind
    assert seen.service.refused == []


def test_the_process_has_a_heartbeat(seen: Seen) -> None:
    (key,) = (key for key in seen.service.written if key[0].endswith("/heartbeat"))
    kind, resource, labels, of = key
    assert (kind, resource) == (
        "compute.googleapis.com/workload_process/heartbeat",
        "compute.googleapis.com/WorkloadProcess",
    )
    assert dict(labels) == {"local_rank": "0", "instance_id": "987"}
    where = {"project_id": "my-project", "location": "us-central2-b", "workload_id": "r", "replica_id": "0"}
    assert dict(of) == {**where, "process_id": "0"}
    assert all(value is True for _, value in seen.service.written[key])


def test_the_last_values_of_a_killed_run_are_those_of_its_report(seen: Seen) -> None:
    """It ends at its last sign of life, though the agent at first could not know that no more would come."""
    report, last = seen.report, seen.service.last
    assert report["status"] == "lost"
    assert last("goodput_time") == pytest.approx(report["goodput_seconds"], abs=1e-6)
    assert last("total_elapsed_time") == pytest.approx(report["elapsed_seconds"], abs=1e-6)
    assert seen.points["goodput/goodput"][-1][2] == pytest.approx(report["goodput_percent"], abs=1e-2)
    for source, seconds in report["badput_seconds"].items():
        if isinstance(seconds, float):
            assert last("badput_time", badput_source=source) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.timeout(240)
def test_a_sidecar_that_is_told_to_end_sends_the_last_values_first(tmp_path: Path) -> None:
    """It is there before the trainer, which asks for nothing itself; a pod ends it as soon as that has ended."""
    job = Job(Runner(tmp_path))
    with serving(Metrics()) as service:
        of_trainer = {"GOODPUT_PLUGINS": "off"}
        job.variables = {
            "GOODPUT_EXPORTERS": "cloud-monitoring,tensorboard",
            "GOODPUT_PROJECT": "p",
            "GOODPUT_REPLICA_ID": "4",
            "GOODPUT_MONITORING_ENDPOINT": f"127.0.0.1:{service.port}",
        }
        sidecar = job.agent_by_hand("--stay")
        try:
            job.variables = of_trainer
            _, err = job.start("train(100)").communicate(timeout=100)
            until(lambda: service.written)
            sidecar.terminate()
            assert (err, sidecar.wait(60)) == ("", 0)
        finally:
            sidecar.kill()
        report = reported(job.folder)
        assert report["status"] == "completed" and service.refused == []
        assert service.last("goodput_time", replica_id="4") == pytest.approx(report["goodput_seconds"], abs=1e-6)
        assert service.last("total_elapsed_time") == pytest.approx(report["elapsed_seconds"], abs=1e-6)
        points = board(job.folder / "tensorboard")
        assert points["goodput/goodput"][-1][2] == pytest.approx(report["goodput_percent"], abs=1e-2)
