"""What is written to Cloud Monitoring is the report, and its service refuses none of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("google.cloud.monitoring_v3", reason="google-cloud-monitoring is not installed here")

import grpc
from exported import T0, S, report
from metric_service import Metrics, serving

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.cloud_monitoring import CloudMonitoring, Workload, connect
from goodput_plugins.exporters.endpoints import is_loopback
from goodput_plugins.exporters.series import Options, series_of

ACCELERATOR = "TPU-v5p"


@dataclass
class World:
    """A clock that the service and the exporters share, and what is written to."""

    service: Metrics
    now: int = T0 + 1000 * S
    kept: int = 0

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * S)

    def keep(self, last: int) -> None:
        self.kept = last

    def exporter(self, *, clock: Any = None, replica: str = "0", **options: Any) -> CloudMonitoring:
        return CloudMonitoring(
            Workload("p", "us-east5-a", "r", replica),
            Options(**{"accelerator_type": ACCELERATOR} | options),
            connect(f"127.0.0.1:{self.service.port}"),
            last=self.kept if replica == "0" else 0,
            save=self.keep,
            now=clock or (lambda: self.now),
            sleep=self.sleep,
        )


@pytest.fixture
def world() -> Iterator[World]:
    service = Metrics()
    world = World(service)
    service.now = lambda: world.now
    with serving(service):
        yield world


def test_the_series_are_the_report(world: World) -> None:
    told = report()
    windows = {60: report(window=(T0 + 50 * S, T0 + 110 * S)), 3600: report(window=(T0 - 3000 * S, T0 + 110 * S))}
    exporter = world.exporter(cluster_name="c")
    exporter.export(Snapshot(world.now, told, windows))
    last, service = world.service.last, world.service
    assert not service.refused
    assert last("goodput_time", goodput_source="TOTAL", cluster_name="c") == told.breakdown.goodput / S
    assert last("total_elapsed_time", window_type="cumulative") == told.breakdown.elapsed / S
    badput = {
        dict(labels)["badput_source"]: points[-1][1]
        for (kind, _, labels, _), points in service.written.items()
        if kind.endswith("/badput_time")
    }
    assert badput["CUSTOM_BADPUT_EVENTS.EVAL_0"] == 0.01
    assert sum(badput.values()) + last("goodput_time") == pytest.approx(told.breakdown.elapsed / S)
    assert Bucket.RESTORE in told.unknown and Bucket.RESTORE.value not in badput  # unknown is no zero
    assert badput[Bucket.SAVE.value] == 0.0
    assert last("disruptions", window_type="cumulative") == 0
    assert told.steps.ideal is not None and told.steps.deviation is not None
    assert last("performance") == told.steps.ideal / S == pytest.approx(2, rel=0.01)
    assert last("step_time_deviation") == told.steps.deviation / S
    for length, window in windows.items():
        share = 100 * window.breakdown.goodput / window.breakdown.elapsed
        assert last("interval_goodput", rolling_window_size=str(length)) == share
    labels = {"location": "us-east5-a", "workload_id": "r", "replica_id": "0", "accelerator_type": ACCELERATOR}
    assert last("max_productive_steps", **labels) == told.steps.max_productive
    assert exporter.status()["sent"] == len(series_of(Snapshot(0, told, windows), Options()))


def test_no_time_has_no_share(world: World) -> None:
    before = report(window=(T0 - 100 * S, T0 - 50 * S))
    names = [one.metric for one in series_of(Snapshot(world.now, report(), {60: before}), Options())]
    assert "goodput_time" in names and "interval_goodput" not in names


@pytest.mark.parametrize(("goodput", "deviation"), [(True, False), (False, True), (False, False)])
def test_flags_that_are_off_mean_no_series(world: World, goodput: bool, deviation: bool) -> None:
    world.exporter(goodput=goodput, deviation=deviation).export(Snapshot(world.now, report()))
    kinds = {kind.rpartition("/")[2] for kind, *_ in world.service.written}
    assert ("goodput_time" in kinds, "step_time_deviation" in kinds) == (goodput, deviation)


def test_many_series_go_in_several_requests(world: World) -> None:
    told = report(events=450)
    world.exporter().export(Snapshot(world.now, told))
    assert not world.service.refused
    assert len(world.service.requests) == 3 and max(world.service.requests) == 200


def test_the_service_refuses_nothing_over_restarts_outages_and_clocks_that_step_back(world: World) -> None:
    exporter, other = world.exporter(), world.exporter(replica="1")
    for tick in range(60):
        world.sleep(3)  # much oftener than points may come
        world.service.fault = grpc.StatusCode.UNAVAILABLE if 20 <= tick < 30 else None
        if tick in (10, 40):  # the agent was started again
            exporter.close()
            exporter = world.exporter()
        behind = 7200 * S if 33 <= tick < 45 else 0
        exporter.export(Snapshot(world.now - behind, report(2 * tick + 4)))
        other.export(Snapshot(world.now, report(2 * tick + 4)))
    world.service.fault = None
    final = report(200)
    for one in (exporter, other):
        one.export(Snapshot(world.now, final, final=True))
    assert not world.service.refused
    for replica in ("0", "1"):
        assert world.service.last("goodput_time", replica_id=replica) == final.breakdown.goodput / S
    assert exporter.count.refused == 0 and exporter.count.held


def test_the_last_word_waits_until_it_may_be_said_and_is_said_again_after_an_outage(world: World) -> None:
    exporter = world.exporter()
    exporter.export(Snapshot(world.now, report(50)))
    world.sleep(2)
    begun, sleeps = world.now, 0

    def sleep(seconds: float) -> None:
        nonlocal sleeps
        sleeps += 1
        world.service.fault = grpc.StatusCode.UNAVAILABLE if sleeps == 1 else None
        World.sleep(world, seconds)

    exporter.sleep = sleep
    exporter.export(Snapshot(world.now, report(60), final=True))
    assert world.service.last("goodput_time") == report(60).breakdown.goodput / S
    assert world.now - begun == 18 * S and exporter.count.failed and not world.service.refused


def test_what_is_refused_is_counted_and_not_sent_again(world: World) -> None:
    exporter = world.exporter()
    exporter.export(Snapshot(world.now, report(50)))
    exporter.last = 0  # as if it did not know
    world.sleep(1)
    exporter.export(Snapshot(world.now, report(50, events=2)))
    sent = exporter.count.sent
    assert exporter.count.refused == len(world.service.refused) > 5
    assert sent == sum(map(len, world.service.written.values()))  # the one new series was taken
    assert "more frequently" in str(exporter.count.last_error)
    for fault in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.NOT_FOUND):
        world.sleep(20)
        world.service.fault = fault
        exporter.export(Snapshot(world.now, report(50), final=True))
        assert "planted" in str(exporter.count.last_error)
    assert exporter.count.sent == sent


def test_only_this_machine_is_spoken_to_in_plain_text() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "[::1]", "::1")))
    assert not any(map(is_loopback, ("", "monitoring.googleapis.com", "10.0.0.1", "localhost.example", "0.0.0.0")))
