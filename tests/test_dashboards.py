"""Dashboards are what their services take, and show nothing but what somebody sends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from exported import T0, S, report

from goodput_plugins.cli import main
from goodput_plugins.dashboards import DASHBOARDS
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.series import PREFIX, Options, series_of

SNAPSHOT = Snapshot(T0, report(), {60: report(window=(T0 + 50 * S, T0 + 110 * S))})

OF_GKE = {
    "kubernetes.io/jobset/scheduling_goodput",
    "kubernetes.io/jobset/proxy_runtime_goodput",
    "kubernetes.io/jobset/times_to_recover",
    "kubernetes.io/jobset/times_between_interruptions",
    "kubernetes.io/jobset/uptime",
    "kubernetes.io/jobset/startup_duration",
    "kubernetes.io/node/interruption_count",
    "kubernetes.io/node_pool/multi_host/available",
    "kubernetes.io/node_pool/accelerator/times_to_recover",
}
"""What GKE documents of JobSets, nodes and node pools, and the jobset dashboard uses."""


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["dashboard", name]) == 0
    return json.loads(capsys.readouterr().out)


def values(of: Any, key: str) -> Iterator[Any]:
    """Every value of that key, however deep."""
    if isinstance(of, dict):
        if key in of:
            yield of[key]
        for inner in of.values():
            yield from values(inner, key)
    elif isinstance(of, list):
        for inner in of:
            yield from values(inner, key)


def metrics_of_cloud_monitoring(dashboard: Any) -> set[str]:
    found = set(re.findall(r'metric\.type="([^"]+)"', " ".join(values(dashboard, "filter"))))
    sent = {promql(metric): metric for metric in {*OF_GKE, *(PREFIX + one.metric for one in series())}}
    for query in values(dashboard, "prometheusQuery"):
        names = set(re.findall(r"\w+_(?:com|io):\w+", query))
        assert names
        found |= {sent[name] for name in names}
    return found


def promql(metric: str) -> str:
    """A metric type of Google's as its PromQL spells it."""
    domain, _, path = metric.partition("/")
    return f"{domain.replace('.', '_')}:{path.replace('/', '_')}"


def series() -> list[Any]:
    return series_of(SNAPSHOT, Options("TPU-v5p", "cluster"))


@pytest.mark.parametrize("name", ["cloud-monitoring", "jobset"])
def test_cloud_monitoring_takes_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    service = pytest.importorskip("google.cloud.monitoring_dashboard_v1", reason="its schema is not installed here")
    from google.protobuf import json_format

    dashboard = printed(name, capsys)
    message = service.Dashboard.pb(service.Dashboard())
    json_format.ParseDict(dashboard, message)  # raises on a field or value that the service does not know
    assert len(message.mosaic_layout.tiles) == len(dashboard["mosaicLayout"]["tiles"])


def test_grafana_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="its schema is not installed here")
    from grafana_foundation_sdk.cog import encoder, plugins

    plugins.register_default_plugins()  # the schemas of panels and queries
    dashboard = printed("grafana", capsys)
    known = json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(dashboard)))
    assert missing(dashboard, known) == []


def missing(ours: Any, known: Any, path: str = "") -> list[str]:
    """What of ours was not understood, and so is not in what was read."""
    if isinstance(ours, dict) and isinstance(known, dict):
        return [fault for key in ours for fault in missing(ours[key], known.get(key), f"{path}/{key}")]
    if isinstance(ours, list) and isinstance(known, list) and len(ours) == len(known):
        pairs = enumerate(zip(ours, known, strict=True))
        return [fault for n, pair in pairs for fault in missing(*pair, f"{path}/{n}")]
    return [] if ours == known else [path]


@pytest.mark.parametrize("name", ["cloud-monitoring", "jobset"])
def test_tiles_lie_beside_each_other_inside_the_mosaic(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    taken: set[tuple[int, int]] = set()
    layout = printed(name, capsys)["mosaicLayout"]
    for tile in layout["tiles"]:
        cells = {
            (x, y)
            for x in range(tile["xPos"], tile["xPos"] + tile["width"])
            for y in range(tile["yPos"], tile["yPos"] + tile["height"])
        }
        assert not cells & taken and max(x for x, _ in cells) < layout["columns"]
        taken |= cells


def test_the_goodput_dashboard_shows_every_metric_that_we_send(capsys: pytest.CaptureFixture[str]) -> None:
    shown = metrics_of_cloud_monitoring(printed("cloud-monitoring", capsys))
    assert shown == {PREFIX + one.metric for one in series()}


def test_the_jobset_dashboard_shows_ours_and_those_that_gke_documents(capsys: pytest.CaptureFixture[str]) -> None:
    shown = metrics_of_cloud_monitoring(printed("jobset", capsys))
    ours = {PREFIX + one.metric for one in series()}
    assert shown - ours == OF_GKE
    assert {PREFIX + "interval_goodput", PREFIX + "interval_badput", PREFIX + "disruptions"} <= shown


def test_labels_that_tell_series_apart_are_labels_of_that_metric(capsys: pytest.CaptureFixture[str]) -> None:
    labels: dict[str, set[str]] = {PREFIX + one.metric: set(one.labels) for one in series()}
    for query in values(printed("cloud-monitoring", capsys), "timeSeriesFilter"):
        metric = re.search(r'metric\.type="([^"]+)"', query["filter"])
        by = query["aggregation"].get("groupByFields", [])
        assert metric is not None
        assert {key.removeprefix("metric.label.") for key in by if key.startswith("metric.")} <= labels[metric[1]]


def test_grafana_asks_for_nothing_but_what_a_scrape_has(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("prometheus_client", reason="prometheus-client is not installed here")
    from goodput_plugins.exporters.prometheus import Prometheus

    exporter = Prometheus("127.0.0.1:0")
    try:
        exporter.export(SNAPSHOT)
        scraped = exporter.collect()
        families = {one.name: {label for sample in one.samples for label in sample.labels} for one in scraped}
    finally:
        exporter.close()
    dashboard = printed("grafana", capsys)
    targets = [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(targets) >= len(dashboard["panels"]) > 10
    for target in targets:
        names = re.findall(r"\bgoodput_\w+", target["expr"])
        assert names and set(names) <= set(families), target["expr"]
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= families[names[0]]


def test_variables_in_grafanas_queries_are_in_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    dashboard = printed("grafana", capsys)
    head = {one["name"] for one in dashboard["templating"]["list"]}
    used = {name for target in values(dashboard, "expr") for name in re.findall(r"\$(\w+)", target)}
    assert used == head - {"datasource"} == {"run", "window"}


def test_goodput_has_the_colour_of_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    first = printed("grafana", capsys)["panels"][0]
    steps = first["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step["value"], step["color"]) for step in steps] == [(None, "red"), (0.5, "yellow"), (0.8, "green")]
    card = printed("cloud-monitoring", capsys)["mosaicLayout"]["tiles"][0]["widget"]["scorecard"]
    assert [(one["value"], one["color"]) for one in card["thresholds"]] == [(0.5, "RED"), (0.8, "YELLOW")]


def test_every_panel_says_what_it_tells_and_in_which_unit(capsys: pytest.CaptureFixture[str]) -> None:
    dashboard = printed("grafana", capsys)
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in dashboard["panels"])
    (text,) = values(printed("cloud-monitoring", capsys), "content")
    assert all(f"**{panel['title']}**" in text for panel in dashboard["panels"])
    units = set(values(printed("cloud-monitoring", capsys), "unitOverride"))
    assert units == {"s", "%", "10^2.%", "1"}


def test_no_dashboard_is_left_out_of_the_command() -> None:
    from goodput_plugins.cli import arguments

    assert set(arguments._DASHBOARDS) == set(DASHBOARDS)


def test_an_unknown_dashboard_is_a_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", "datadog"]) == 2
    assert "grafana" in capsys.readouterr().err
