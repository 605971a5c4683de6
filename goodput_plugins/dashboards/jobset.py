"""Goodput beside what GKE knows of a JobSet, its nodes and its node pools, all on one time axis.

The rows lie below each other, so that a dip of goodput can be followed straight down to a node's trouble. GKE's own
metrics come once a minute and up to an hour late.
"""

from __future__ import annotations

from collections.abc import Iterator

from goodput_plugins.dashboards.panels import PANELS
from goodput_plugins.dashboards.widgets import (
    COLUMNS,
    Json,
    chart,
    data_set,
    filters,
    flow,
    prometheus,
    select,
    text,
    widget,
)

JOBSET = "kubernetes.io/jobset/"
INTERRUPTIONS = "kubernetes.io/node/interruption_count"
POOL_RECOVERY = "kubernetes.io/node_pool/accelerator/times_to_recover"
POOL_AVAILABLE = 'avg_over_time(kubernetes_io:node_pool_multi_host_available{monitored_resource="k8s_node_pool"}[5m])'

_MEDIAN = "ALIGN_PERCENTILE_50"
_JOBSET_NAME = "${resource.labels.entity_name}"
_ABOVE = ("Goodput in rolling windows", "Badput in rolling windows, by source")
_BELOW = ("Disruptions over time", "Preserved steps")


def dashboard() -> Json:
    """The dashboard, as ``gcloud monitoring dashboards create`` takes it."""
    chosen = ("workload_id", "cluster_name", "entity_name", "node_pool_name")
    return {
        "displayName": "Goodput and JobSet",
        "dashboardFilters": filters(resource=chosen, metric=("rolling_window_size",)),
        "mosaicLayout": {"columns": COLUMNS, "tiles": list(flow((row, COLUMNS, 12) for row in _rows()))},
    }


def _rows() -> Iterator[Json]:
    yield from (widget(panel) for panel in PANELS if panel.title in _ABOVE)
    yield _interruptions()
    yield _pools()
    yield _scheduling()
    yield from (widget(panel) for panel in PANELS if panel.title in _BELOW)
    yield _jobset_seconds("JobSet: time to recover, median", "times_to_recover", _MEDIAN)
    yield _jobset_seconds("JobSet: time between interruptions, median", "times_between_interruptions", _MEDIAN)
    yield _pool_recovery()
    yield _jobset_seconds("JobSet: uptime", "uptime", "ALIGN_MAX")
    yield _jobset_seconds("JobSet: startup", "startup_duration", "ALIGN_MAX")
    yield text("How to read it", _TEXT)


def _interruptions() -> Json:
    by = ("metric.label.interruption_type", "metric.label.interruption_reason")
    query = select(INTERRUPTIONS, "k8s_node", "ALIGN_MAX", "REDUCE_SUM", by)
    legend = "${metric.labels.interruption_type}, ${metric.labels.interruption_reason}"
    return chart("Node interruptions by type and reason", [data_set(query, legend, "STACKED_BAR")])


def _pools() -> Json:
    return chart("Node pools: available", [data_set(prometheus(POOL_AVAILABLE, "10^2.%"))])


def _scheduling() -> Json:
    sets = [
        data_set(_jobset(name, "ALIGN_MEAN", "10^2.%"), f"{_JOBSET_NAME}, {word}")
        for name, word in (("scheduling_goodput", "scheduled"), ("proxy_runtime_goodput", "device busy"))
    ]
    return chart("JobSet: all resources ready, device busy", sets)


def _jobset_seconds(title: str, name: str, aligner: str) -> Json:
    return chart(title, [data_set(_jobset(name, aligner, "s"), _JOBSET_NAME)])


def _jobset(name: str, aligner: str, unit: str) -> Json:
    by, where = ("resource.label.entity_name",), 'resource.label.entity_type="jobset"'
    return select(JOBSET + name, "k8s_entity", aligner, "REDUCE_MEAN", by, where, unit)


def _pool_recovery() -> Json:
    by = ("resource.label.node_pool_name",)
    query = select(POOL_RECOVERY, "k8s_node_pool", _MEDIAN, "REDUCE_MEAN", by, unit="s")
    return chart("Node pools: time to recover, median", [data_set(query, "${resource.labels.node_pool_name}")])


_TEXT = (
    "- Goodput dips and a node was interrupted at that time: the machine. Recovery is what it cost.",
    "- Goodput dips and no node had trouble: the job. Its badput by source says what to look at.",
    "- *All resources ready* below 100 %: the JobSet waited for nodes.",
    "- *Device busy* is GKE's estimate by duty cycle: a device that repeats lost steps is busy, too.",
    "- GKE's metrics may come up to an hour late; goodput comes at once.",
)
