"""Writing a run's series to Cloud Monitoring, within its limits.

A series gets at most one point each 10 s, and each is newer than the one before, over restarts and over a clock
that was set back too: a point that would not be is not sent. What the service refuses is dropped and counted, since
the next point, some seconds later, says more; what it could not take is not sent again either, but for the last word
of a run. Times in ns since the epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.api_core import exceptions
from google.cloud import monitoring_v3
from google.cloud.monitoring_v3.services.metric_service.transports import MetricServiceGrpcTransport
from grpc_status import rpc_status

from goodput_plugins.exporters import Snapshot, google_cloud
from goodput_plugins.exporters.series import PREFIX, Options, Series, series_of

PERIOD_NS = 10_000_000_000
"""The shortest time between two points of a series."""
MOST = 200
"""How many series one request may hold."""
TIMEOUT = 10.0
"""How long a request may take, s."""
LAST_TRIES = 3
"""How often the last word of a run is tried."""

RESOURCE = "compute.googleapis.com/Workload"
PROCESS = "compute.googleapis.com/WorkloadProcess"
HEARTBEAT = "compute.googleapis.com/workload_process/heartbeat"

_REFUSED = (exceptions.InvalidArgument, exceptions.PermissionDenied, exceptions.Unauthenticated, exceptions.NotFound)
"""What will not go better the second time."""


@dataclass(frozen=True)
class Workload:
    """Whose series these are: the labels of the monitored resource.

    Attributes:
        project: the project that they are written to.
        location: a zone or region.
        workload_id: the run's name.
        replica_id: told apart where one run is monitored more than once.
        process: labels of the process for its heartbeat (``process_id``, ``local_rank``, ``instance_id``); None: none.
    """

    project: str
    location: str
    workload_id: str
    replica_id: str = "0"
    process: Mapping[str, str] | None = None


@dataclass
class Count:
    """What became of the points so far.

    Attributes:
        sent: taken by the service.
        refused: not taken, and not to be sent again.
        failed: not taken since the service could not be reached.
        held: not sent: too soon after the last, or not after it.
    """

    sent: int = 0
    refused: int = 0
    failed: int = 0
    held: int = 0
    last_success: int | None = None
    last_error: str | None = None


@dataclass
class CloudMonitoring:
    """The exporter.

    Args:
        workload: whose series.
        options: which series, and their labels.
        client: of ``google.cloud.monitoring_v3``.
        last: when a point was last written, by an earlier process too.
        known: the same, as it is known by now: another exporter of this workload's may have written one.
        save: called with that time whenever it changes.
        now, sleep: the wall clock, and waiting on it.
    """

    name = "cloud-monitoring"

    workload: Workload
    options: Options
    client: Any
    last: int = 0
    known: Callable[[], int] = lambda: 0
    save: Callable[[int], None] = lambda last: None
    now: Callable[[], int] = time.time_ns
    sleep: Callable[[float], None] = time.sleep
    count: Count = field(default_factory=Count)

    def export(self, snapshot: Snapshot) -> None:
        series = series_of(snapshot, self.options)
        if not snapshot.final:
            self._write(series, snapshot.now)
            return
        for _ in range(LAST_TRIES):
            self.last = max(self.last, self.known())
            wait = self.last + PERIOD_NS - self.now()
            if wait > PERIOD_NS:  # the clock was set back: no time of this clock would be taken
                break
            self.sleep(max(0, wait) / 1e9)
            if self._write(series, self.now()):
                return
        self.count.held += len(series)

    def status(self) -> Mapping[str, object]:
        return vars(self.count)

    def close(self) -> None:
        self.client.transport.close()

    def _write(self, series: Sequence[Series], at: int) -> bool:
        """Write one point of each series; True unless the service could not be reached."""
        self.last = max(self.last, self.known())
        if at < self.last + PERIOD_NS:
            self.count.held += len(series)
            return True
        self.last = at
        self.save(at)
        points = [self._point(one, at) for one in series]
        if self.workload.process is not None:
            points.append(self._heartbeat(self.workload.process, at))
        reached = [self._send(batch) for batch in _batches(points)]
        return all(reached)

    def _send(self, batch: Sequence[monitoring_v3.TimeSeries]) -> bool:
        count = self.count
        try:
            self.client.create_time_series(
                name=f"projects/{self.workload.project}", time_series=batch, timeout=TIMEOUT, retry=None
            )
        except _REFUSED as error:
            refused = _refused(error, len(batch))
            count.sent += len(batch) - refused
            count.refused += refused
            count.last_error = f"{type(error).__name__}: {error.message}"
            return True
        except exceptions.GoogleAPICallError as error:
            count.failed += len(batch)
            count.last_error = f"{type(error).__name__}: {error.message}"
            return False
        count.sent += len(batch)
        count.last_success = self.last
        return True

    def _point(self, series: Series, at: int) -> monitoring_v3.TimeSeries:
        workload = self.workload
        labels = {
            "location": workload.location,
            "workload_id": workload.workload_id,
            "replica_id": workload.replica_id,
        }
        return _time_series(PREFIX + series.metric, series.labels, RESOURCE, labels, series.value, at)

    def _heartbeat(self, process: Mapping[str, str], at: int) -> monitoring_v3.TimeSeries:
        workload = self.workload
        resource = {
            "project_id": workload.project,
            "location": workload.location,
            "workload_id": workload.workload_id,
            "replica_id": workload.replica_id,
            "process_id": process.get("process_id", "0"),
        }
        labels = {name: process.get(name, "") for name in ("local_rank", "instance_id")}
        return _time_series(HEARTBEAT, labels, PROCESS, resource, True, at)


def connect(address: str) -> monitoring_v3.MetricServiceClient:
    """A client for Cloud Monitoring, or for what answers at ``host:port`` in its place.

    Raises:
        Unreached: there are no credentials (yet).
    """
    made: monitoring_v3.MetricServiceClient = google_cloud.client(
        monitoring_v3.MetricServiceClient, MetricServiceGrpcTransport, address
    )
    return made


def _time_series(
    metric: str,
    labels: Mapping[str, str],
    resource: str,
    resource_labels: Mapping[str, str],
    value: bool | int | float,
    at: int,
) -> monitoring_v3.TimeSeries:
    """One point. All are gauges, running totals too: they have an end and no start."""
    kind = {bool: "bool_value", int: "int64_value", float: "double_value"}[type(value)]
    whole, nanoseconds = divmod(at, 1_000_000_000)
    return monitoring_v3.TimeSeries(
        metric={"type": metric, "labels": dict(labels)},
        resource={"type": resource, "labels": dict(resource_labels)},
        points=[{"interval": {"end_time": {"seconds": whole, "nanos": nanoseconds}}, "value": {kind: value}}],
    )


def _batches(points: Sequence[monitoring_v3.TimeSeries]) -> Iterator[Sequence[monitoring_v3.TimeSeries]]:
    for begin in range(0, len(points), MOST):
        yield points[begin : begin + MOST]


def _refused(error: exceptions.GoogleAPICallError, points: int) -> int:
    """How many of a request's points were not written, as the error's details tell; all, if they don't."""
    for cause in error.errors:
        for detail in _details(cause):
            if detail.type_url.endswith("CreateTimeSeriesSummary"):
                summary = monitoring_v3.CreateTimeSeriesSummary.deserialize(detail.value)
                return int(summary.total_point_count - summary.success_point_count)
    return points


def _details(cause: Any) -> Sequence[Any]:
    """The details in the trailing metadata of a gRPC error."""
    try:
        status = rpc_status.from_call(cause)
    except (AttributeError, ValueError):
        return ()
    return () if status is None else status.details
