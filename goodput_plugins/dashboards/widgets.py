"""The pieces of a dashboard of Cloud Monitoring, as its API takes them.

Schema: ``google.monitoring.dashboard.v1.Dashboard``. Lengths are in columns of a mosaic of :data:`COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from goodput_plugins.dashboards.panels import Panel, Query, Series, Shape, Unit

Json = dict[str, Any]

COLUMNS = 48
PREFIX = "compute.googleapis.com/workload/"
RESOURCE = "compute.googleapis.com/Workload"
MINUTE = "60s"

_UNITS = {Unit.SECONDS: "s", Unit.SHARE: "10^2.%", Unit.PERCENT: "%", Unit.COUNT: "1"}
_RUN = ("resource.label.workload_id", "resource.label.replica_id")
_NAMES = {"rolling_window_size": "last ${metric.labels.rolling_window_size} s"}
"""How a label's value stands in a legend, where that alone would not be understood."""
_RUN_NAME = "${resource.labels.workload_id}"


def widget(panel: Panel) -> Json:
    """The widget that shows a panel."""
    drawn = {Shape.NUMBER: _scorecard, Shape.PIE: _pie}.get(panel.shape, _chart)
    return {"title": panel.title, **drawn(panel)}


def chart(title: str, data_sets: Sequence[Json]) -> Json:
    """A chart of lines or areas over time."""
    return {"title": title, "xyChart": {"dataSets": list(data_sets), "chartOptions": {"mode": "COLOR"}}}


def text(title: str, lines: Iterable[str]) -> Json:
    """A tile of Markdown."""
    return {"title": title, "text": {"content": "\n".join(lines), "format": "MARKDOWN"}}


def data_set(query: Json, legend: str = "", plot: str = "LINE") -> Json:
    """What one query adds to a chart; without a legend each line is named by all its labels."""
    named = {"legendTemplate": legend} if legend else {}
    return {"timeSeriesQuery": query, "plotType": plot, "targetAxis": "Y1", **named}


def select(
    metric: str, resource: str, aligner: str, reducer: str, by: Sequence[str] = (), where: str = "", unit: str = "1"
) -> Json:
    """A query for a metric, its series joined unless a label of ``by`` tells them apart."""
    aggregation: Json = {"alignmentPeriod": MINUTE, "perSeriesAligner": aligner, "crossSeriesReducer": reducer}
    if by:
        aggregation["groupByFields"] = list(by)
    found = f'metric.type="{metric}" resource.type="{resource}"{where and f" {where}"}'
    return {"timeSeriesFilter": {"filter": found, "aggregation": aggregation}, "unitOverride": unit}


def prometheus(query: str, unit: str) -> Json:
    """A query in PromQL."""
    return {"prometheusQuery": query, "unitOverride": unit}


def flow(widgets: Iterable[tuple[Json, int, int]]) -> Iterator[Json]:
    """Tiles from left to right and from top to bottom, for widgets with their width and height."""
    x = y = lowest = 0
    for shown, width, height in widgets:
        if x + width > COLUMNS:
            x, y = 0, lowest
        yield {"xPos": x, "yPos": y, "width": width, "height": height, "widget": shown}
        x, lowest = x + width, max(lowest, y + height)


def filters(resource: Sequence[str] = (), metric: Sequence[str] = ()) -> list[Json]:
    """The labels that the head of a dashboard lets its reader choose; they hold for each chart that has them."""
    kinds = [("RESOURCE_LABEL", key) for key in resource] + [("METRIC_LABEL", key) for key in metric]
    return [{"filterType": kind, "labelKey": key} for kind, key in kinds]


def queries(panel: Panel) -> Iterator[tuple[Json, str]]:
    """What a panel asks, each with its legend; a number is of all runs together, a line of one."""
    unit, whole = _UNITS[panel.unit], panel.shape in (Shape.NUMBER, Shape.PIE)
    for asked in panel.cloud:
        if isinstance(asked, Query):
            yield prometheus(asked.expression, unit), ""
            continue
        by = [f"metric.label.{label}" for label in asked.by]
        legend = [_NAMES.get(label, f"${{metric.labels.{label}}}") for label in asked.by]
        if whole:
            yield _series(asked, by, "REDUCE_SUM", unit), ", ".join(legend)
        else:
            yield _series(asked, [*_RUN, *by], "REDUCE_MAX", unit), ", ".join([*legend, _RUN_NAME])


def _series(series: Series, by: Sequence[str], reducer: str, unit: str) -> Json:
    one = select(PREFIX + series.metric, RESOURCE, series.aligner, reducer, by, unit=unit)
    if not series.over:
        return one
    other = select(PREFIX + series.over, RESOURCE, series.aligner, reducer, by)
    ratio = {"numerator": one["timeSeriesFilter"], "denominator": other["timeSeriesFilter"]}
    return {"timeSeriesFilterRatio": ratio, "unitOverride": unit}


def _chart(panel: Panel) -> Json:
    plot = "STACKED_AREA" if panel.shape is Shape.STACKED else "LINE"
    return chart(panel.title, [data_set(query, legend, plot) for query, legend in queries(panel)])


def _scorecard(panel: Panel) -> Json:
    ((query, _),) = queries(panel)
    colours = zip(("RED", "YELLOW"), panel.good, strict=False)
    below = [{"value": value, "color": colour, "direction": "BELOW"} for colour, value in colours]
    limits = {"thresholds": below} if below else {}
    return {"scorecard": {"timeSeriesQuery": query, "sparkChartView": {"sparkChartType": "SPARK_LINE"}, **limits}}


def _pie(panel: Panel) -> Json:
    sets = [{"timeSeriesQuery": query, "sliceNameTemplate": legend} for query, legend in queries(panel)]
    return {"pieChart": {"chartType": "DONUT", "showLabels": True, "dataSets": sets}}
