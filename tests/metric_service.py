"""A server that speaks Cloud Monitoring's protocol on the loopback interface and enforces its documented limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.cloud.monitoring_v3 import CreateTimeSeriesRequest, CreateTimeSeriesSummary, TimeSeries
from google.protobuf import any_pb2, empty_pb2
from google.rpc import status_pb2
from grpc_status import rpc_status

SECOND = 10**9
PERIOD = 10 * SECOND
MOST = 200
WORKLOAD = "compute.googleapis.com/Workload"
PROCESS = "compute.googleapis.com/WorkloadProcess"
PREFIX = "compute.googleapis.com/workload/"
SOURCES = {"accelerator_type"}
METRICS: dict[str, tuple[str, set[str]]] = {
    "goodput_time": ("double_value", {"goodput_source", *SOURCES}),
    "badput_time": ("double_value", {"badput_source", *SOURCES}),
    "total_elapsed_time": ("double_value", {"window_type", *SOURCES}),
    "disruptions": ("int64_value", {"window_type", *SOURCES}),
    "max_productive_steps": ("int64_value", SOURCES),
    "step_time_deviation": ("double_value", SOURCES),
    "performance": ("double_value", set()),
    "interval_goodput": ("double_value", {"goodput_source", "rolling_window_size", *SOURCES}),
    "interval_badput": ("double_value", {"badput_source", "rolling_window_size", *SOURCES}),
}
"""What each metric's values are, and its labels."""
BADPUT = {
    "TPU_INITIALIZATION",
    "TRAINING_PREP",
    "PROGRAM_STARTUP",
    "DATA_LOADING_SYNC",
    "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
    "WASTED_PROGRESS_FROM_DISRUPTION",
    "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "CUSTOM_BADPUT_EVENTS",
    "OTHER",
    "ELASTIC_SLICE_DOWN",
    "ELASTIC_SCALE_UP",
    "ELASTIC_REINITIALIZATION",
}
"""Sources of badput in use; overlapped work is none."""
FIXED = {"goodput_source": {"TOTAL"}, "window_type": {"cumulative"}}
"""Labels that have these values only."""
TOO_OFTEN = "One or more points were written more frequently than the maximum sampling period configured."
OUT_OF_ORDER = "Points must be written in order. One or more of the points specified had an older end time."

Key = tuple[Any, ...]


@dataclass
class Metrics:
    """The service.

    Attributes:
        now: its clock, ns since the epoch.
        fault: the status it answers with instead of working; None: it works.
        written: the points of each series: when, and the value.
        refused: what it refused, and why.
        requests: how many series each request held.
        projects: what they were written to.
    """

    now: Callable[[], int] = time.time_ns
    fault: grpc.StatusCode | None = None
    written: dict[Key, list[tuple[int, Any]]] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    projects: set[str] = field(default_factory=set)
    port: int = 0

    def create(self, request: CreateTimeSeriesRequest, context: Any) -> empty_pb2.Empty:
        if self.fault is not None:
            context.abort(self.fault, "as planted")
        self.requests.append(len(request.time_series))
        self.projects.add(request.name)
        if not request.name.startswith("projects/") or len(request.time_series) > MOST:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Field timeSeries had an invalid value")
        wrong = [why for series in request.time_series if (why := self._take(series)) is not None]
        keys = [key_of(series) for series in request.time_series]
        assert len(set(keys)) == len(keys), "a series comes twice in one request"
        if wrong:
            context.abort_with_status(rpc_status.to_status(_status(len(keys), wrong)))
        return empty_pb2.Empty()

    def last(self, metric: str, **labels: str) -> Any:
        """The newest value of the one series of that metric with these labels, those of the resource included."""
        (points,) = (
            points
            for (kind, *told), points in self.written.items()
            if kind == PREFIX + metric and set(labels.items()) <= {pair for pairs in told[1:] for pair in pairs}
        )
        return points[-1][1]

    def _take(self, series: TimeSeries) -> str | None:
        """Write the point; or tell why not."""
        why = self._fault_of(series)
        if why is None:
            (point,) = series.points
            value = getattr(point.value, point.value._pb.WhichOneof("value"))
            self.written.setdefault(key_of(series), []).append((_end(series), value))
        else:
            self.refused.append((series.metric.type, why))
        return why

    def _fault_of(self, series: TimeSeries) -> str | None:
        if len(series.points) != 1:
            return "one point a series"
        (point,) = series.points
        if series.metric.type.startswith(PREFIX):
            kind, labels = METRICS[series.metric.type.removeprefix(PREFIX)]
            told = set(series.metric.labels) - ({"cluster_name"} if labels else set())
            if told != labels or point.value._pb.WhichOneof("value") != kind:
                return f"unrecognized labels or value: {sorted(told)}"
            values = series.metric.labels
            if any(values[name] not in FIXED[name] for name in FIXED if name in values):
                return "unrecognized value of a label"
            if "badput_source" in values and values["badput_source"].partition(".")[0] not in BADPUT:
                return "unrecognized source of badput"
            if not values.get("rolling_window_size", "0").isdecimal():
                return "unrecognized window"
            if series.resource.type != WORKLOAD or set(series.resource.labels) != {
                "location",
                "workload_id",
                "replica_id",
            }:
                return "unrecognized resource"
        elif series.metric.type != "compute.googleapis.com/workload_process/heartbeat":
            return "unrecognized metric"
        elif set(series.metric.labels) != {"local_rank", "instance_id"} or series.resource.type != PROCESS:
            return "unrecognized labels or resource"
        end, now = _end(series), self.now()
        if not now - 25 * 3600 * SECOND <= end <= now + 300 * SECOND:
            return "end time out of range"
        before = self.written.get(key_of(series))
        if before and end <= before[-1][0]:
            return OUT_OF_ORDER
        if before and end < before[-1][0] + PERIOD:
            return TOO_OFTEN
        return None


def key_of(series: TimeSeries) -> Key:
    return (
        series.metric.type,
        series.resource.type,
        frozenset(series.metric.labels.items()),
        frozenset(series.resource.labels.items()),
    )


def _end(series: TimeSeries) -> int:
    end = series.points[0].interval._pb.end_time
    return int(end.seconds) * SECOND + int(end.nanos)


def _status(points: int, wrong: list[str]) -> status_pb2.Status:
    summary = CreateTimeSeriesSummary(total_point_count=points, success_point_count=points - len(wrong))
    detail = any_pb2.Any()
    detail.Pack(CreateTimeSeriesSummary.pb(summary))
    return status_pb2.Status(code=3, message=wrong[0], details=[detail])


@contextmanager
def serving(metrics: Metrics) -> Iterator[Metrics]:
    """Answer on a free port of the loopback interface."""
    server = grpc.server(ThreadPoolExecutor(4))
    handler = grpc.unary_unary_rpc_method_handler(
        metrics.create,
        request_deserializer=CreateTimeSeriesRequest.deserialize,
        response_serializer=empty_pb2.Empty.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("google.monitoring.v3.MetricService", {"CreateTimeSeries": handler}),)
    )
    metrics.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield metrics
    finally:
        server.stop(None).wait()
