"""The dashboard for Grafana: each panel, over what the agent answers at ``/metrics`` and Prometheus has scraped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from goodput_plugins.dashboards.panels import PANELS, Panel, Shape, Unit

Json = dict[str, Any]

COLUMNS = 24
SCHEMA = 39
"""The version of Grafana's dashboard schema (Grafana 11; newer ones take it)."""

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_UNITS = {Unit.SECONDS: "s", Unit.SHARE: "percentunit", Unit.PERCENT: "percent", Unit.COUNT: "short"}
_KINDS = {Shape.NUMBER: "stat", Shape.PIE: "piechart"}


def dashboard() -> Json:
    """The dashboard, as Grafana imports it."""
    return {
        "uid": "goodput-plugins",
        "title": "Goodput",
        "tags": ["goodput", "training"],
        "editable": True,
        "graphTooltip": 1,  # one crosshair over all panels
        "schemaVersion": SCHEMA,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_data_source(), _runs(), _windows()]},
        "panels": list(_panels()),
    }


def _panels() -> Iterator[Json]:
    x = y = lowest = 0
    for number, panel in enumerate(PANELS, 1):
        width, height = (COLUMNS // 4, 4) if panel.shape is Shape.NUMBER else (COLUMNS // 2, 8)
        if x + width > COLUMNS:
            x, y = 0, lowest
        yield _panel(panel, number) | {"gridPos": {"x": x, "y": y, "w": width, "h": height}}
        x, lowest = x + width, max(lowest, y + height)


def _panel(panel: Panel, number: int) -> Json:
    unit, shape = panel.prometheus_unit or panel.unit, panel.prometheus_shape or panel.shape
    defaults = {"unit": _UNITS[unit], **_limits(unit), **_drawn(shape, unit), **_coloured(panel)}
    return {
        "id": number,
        "type": _KINDS.get(shape, "timeseries"),
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "targets": list(_targets(panel)),
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(shape, is_judged=bool(panel.good)),
    }


def _targets(panel: Panel) -> Iterator[Json]:
    """Over the time that is shown, of numbers too: the last one is there still when the run is over."""
    for letter, query in zip("ABCDEFGH", panel.prometheus, strict=False):
        yield {
            "refId": letter,
            "datasource": _SOURCE,
            "expr": query.expression,
            "legendFormat": query.legend or "__auto",
            "instant": False,
            "range": True,
        }


def _limits(unit: Unit) -> Json:
    if unit is Unit.COUNT:
        return {"min": 0.0, "decimals": 0.0}
    return {"min": 0.0, "max": 1.0} if unit is Unit.SHARE else {"min": 0.0}


def _coloured(panel: Panel) -> Json:
    """By what is good; else each name in its own colour, the same in all panels."""
    if not panel.good:
        return {"color": {"mode": "palette-classic-by-name"}}
    bad, good = panel.good
    steps = [{"value": None, "color": "red"}, {"value": bad, "color": "yellow"}, {"value": good, "color": "green"}]
    return {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}


def _drawn(shape: Shape, unit: Unit) -> Json:
    if shape is Shape.STACKED:
        return {"custom": {"fillOpacity": 60.0, "stacking": {"mode": "normal", "group": "A"}}}
    stairs = {"lineInterpolation": "stepAfter"} if unit is Unit.COUNT else {}
    return {"custom": {"fillOpacity": 5.0, **stairs}} if shape is Shape.LINES else {}


def _options(shape: Shape, *, is_judged: bool) -> Json:
    newest = {"values": False, "calcs": ["lastNotNull"], "fields": ""}
    if shape is Shape.NUMBER:
        return {"reduceOptions": newest, "colorMode": "value" if is_judged else "none", "graphMode": "none"}
    if shape is Shape.PIE:
        legend = {"displayMode": "table", "placement": "right", "showLegend": True, "values": ["percent", "value"]}
        return {"reduceOptions": newest, "pieType": "donut", "legend": legend}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    if shape is Shape.STACKED:  # many long names
        legend = {"displayMode": "table", "placement": "right", "showLegend": True, "calcs": ["lastNotNull"]}
    return {"tooltip": {"mode": "multi", "sort": "desc"}, "legend": legend}


def _data_source() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _runs() -> Json:
    return {
        "name": "run",
        "label": "Run",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(goodput_elapsed_seconds, run)", "refId": "run"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _windows() -> Json:
    """Which rolling window is shown where one is shown."""
    lengths = 'label_values(goodput_window_goodput_ratio{run=~"$run"}, window_seconds)'
    return {
        "name": "window",
        "label": "Rolling window, s",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": lengths, "refId": "window"},
        "refresh": 2,
        "sort": 3,  # by number
    }
