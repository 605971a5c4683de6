"""A run's goodput for Prometheus: the agent answers ``GET /metrics``.

Units are in the names. All are gauges, for a rewind takes productive time back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Report, seconds
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.series import badput_of

Family = GaugeMetricFamily


class Prometheus(Collector):
    """The exporter.

    Args:
        address: ``host:port`` to answer at.

    Raises:
        OSError: another process answers there, or the address is none of this machine's.
    """

    name = "prometheus"

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        registry = CollectorRegistry(auto_describe=False)
        self._snapshot: Snapshot | None = None
        self._server: WSGIServer
        try:
            self._server, self._thread = start_http_server(int(port), host.strip("[]"), registry)
        except OSError as error:
            raise OSError(error.errno, error.strerror, address) from None
        registry.register(self)

    @property
    def port(self) -> int:
        """Where it answers."""
        return self._server.server_port

    def export(self, snapshot: Snapshot) -> None:
        before = self._snapshot
        if before is not None and not snapshot.windows:  # they cost more, so they come more seldom
            snapshot = replace(snapshot, windows=before.windows)
        self._snapshot = snapshot

    def status(self) -> Mapping[str, object]:
        return {"port": self.port, "last_success": None if self._snapshot is None else self._snapshot.now}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Family]:
        """What a scrape gets: the newest snapshot."""
        snapshot = self._snapshot
        if snapshot is not None:
            yield from _times(snapshot.report)
            yield from _steps(snapshot.report)
            yield from _windows(snapshot)


def _times(report: Report) -> Iterator[Family]:
    spent, run = report.breakdown, [report.run]
    yield _one("goodput_productive_seconds", "Time of steps that were kept.", run, seconds(spent.goodput))
    if report.preserved is not None:
        yield _one("goodput_preserved_seconds", "Time of steps inside a checkpoint.", run, seconds(report.preserved))
    badput = Family("goodput_badput_seconds", "Time that made no progress, by source.", labels=["run", "source"])
    for source, ns in badput_of(report):
        badput.add_metric([*run, source], seconds(ns))
    yield badput
    yield _one("goodput_elapsed_seconds", "Productive time and badput.", run, seconds(spent.elapsed))
    yield _one("goodput_excluded_seconds", "Time that does not count.", run, seconds(spent[Bucket.EXCLUDED]))
    yield _one("goodput_disruptions", "How often training was disrupted.", run, report.disruptions)
    status = Family("goodput_run_status", "1 for what the run is.", labels=["run", "status"])
    status.add_metric([*run, report.status], 1)
    yield status


def _steps(report: Report) -> Iterator[Family]:
    steps, run = report.steps, [report.run]
    numbers = {
        "goodput_step_last": ("The highest step that was started.", steps.last),
        "goodput_step_preserved": ("The highest step inside a checkpoint.", steps.max_productive),
    }
    times = {
        "goodput_step_ideal_seconds": ("Step time without noise.", steps.ideal),
        "goodput_step_p50_seconds": ("Median step time.", steps.p50),
        "goodput_step_p99_seconds": ("99th percentile of step times.", steps.p99),
        "goodput_step_deviation_seconds": ("Recent slow steps against the usual.", steps.deviation),
    }
    for name, (text, number) in numbers.items():
        if number is not None:
            yield _one(name, text, run, number)
    for name, (text, ns) in times.items():
        if ns is not None:
            yield _one(name, text, run, seconds(ns))


def _windows(snapshot: Snapshot) -> Iterator[Family]:
    """Shares of rolling windows, 0 to 1; none of a window in which nothing elapsed."""
    goodput = Family(
        "goodput_window_goodput_ratio", "Share of productive time in a window.", labels=["run", "window_seconds"]
    )
    badput = Family(
        "goodput_window_badput_ratio", "Share of badput in a window.", labels=["run", "window_seconds", "source"]
    )
    for length, report in snapshot.windows.items():
        elapsed = report.breakdown.elapsed
        if elapsed:
            place = [report.run, str(length)]
            goodput.add_metric(place, report.breakdown.goodput / elapsed)
            for source, ns in badput_of(report):
                badput.add_metric([*place, source], ns / elapsed)
    yield goodput
    yield badput


def _one(name: str, text: str, run: list[str], value: float) -> Family:
    family = Family(name, text, labels=["run"])
    family.add_metric(run, value)
    return family
