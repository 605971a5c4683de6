"""The ML Goodput dashboard for Cloud Monitoring: each panel, over the nine metrics that the agent sends."""

from __future__ import annotations

from collections.abc import Iterator

from goodput_plugins.dashboards.panels import PANELS, Shape
from goodput_plugins.dashboards.widgets import COLUMNS, Json, filters, flow, text, widget


def dashboard() -> Json:
    """The dashboard, as ``gcloud monitoring dashboards create`` takes it."""
    return {
        "displayName": "Goodput",
        "dashboardFilters": filters(resource=("workload_id", "replica_id"), metric=("rolling_window_size",)),
        "mosaicLayout": {"columns": COLUMNS, "tiles": list(flow(_widgets()))},
    }


def _widgets() -> Iterator[tuple[Json, int, int]]:
    for panel in PANELS:
        width, height = (COLUMNS // 4, 8) if panel.shape is Shape.NUMBER else (COLUMNS // 2, 16)
        yield widget(panel), width, height
    told = [f"- **{panel.title}**: {panel.text}" for panel in PANELS]
    yield text("How to read it", told), COLUMNS, 24
