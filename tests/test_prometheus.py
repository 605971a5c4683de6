"""What Prometheus scrapes from the agent is the report."""

from __future__ import annotations

import pytest

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed here")

from exported import T0, S, report
from sending import scrape

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.prometheus import Prometheus


def test_a_scrape_is_the_newest_report() -> None:
    exporter = Prometheus("127.0.0.1:0")
    try:
        assert scrape(exporter.port) == {}
        told, window = report(), report(window=(T0 + 50 * S, T0 + 110 * S))
        exporter.export(Snapshot(T0, report(50)))
        exporter.export(Snapshot(T0, told, {60: window}))
        scraped = scrape(exporter.port)
    finally:
        exporter.close()

    def value(name: str, **labels: str) -> float:
        return scraped[name, tuple(sorted({"run": "r", **labels}.items()))]

    assert value("goodput_productive_seconds") == told.breakdown.goodput / S
    assert value("goodput_elapsed_seconds") == told.breakdown.elapsed / S
    badput = {dict(labels)["source"]: v for (name, labels), v in scraped.items() if name == "goodput_badput_seconds"}
    assert sum(badput.values()) + value("goodput_productive_seconds") == pytest.approx(told.breakdown.elapsed / S)
    assert badput["CUSTOM_BADPUT_EVENTS.EVAL_0"] == 0.01 and Bucket.RESTORE.value not in badput
    assert value("goodput_run_status", status="running") == 1
    assert value("goodput_step_last") == 49
    assert value("goodput_step_p50_seconds") == pytest.approx(2, rel=0.01)
    share = value("goodput_window_goodput_ratio", window_seconds="60")
    assert share == window.breakdown.goodput / window.breakdown.elapsed
    shares = [v for (name, _), v in scraped.items() if name == "goodput_window_badput_ratio"]
    assert share + sum(shares) == pytest.approx(1)


def test_an_address_that_is_taken_is_told() -> None:
    first = Prometheus("127.0.0.1:0")
    try:
        with pytest.raises(OSError):
            Prometheus(f"127.0.0.1:{first.port}")
    finally:
        first.close()
