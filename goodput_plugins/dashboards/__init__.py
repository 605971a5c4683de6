"""Dashboards over what the exporters send, ready to be imported.

``goodput dashboard NAME`` prints one as JSON::

    gcloud monitoring dashboards create --config-from-file=<(goodput dashboard cloud-monitoring)

``cloud-monitoring`` and ``grafana`` show the same panels (:mod:`~goodput_plugins.dashboards.panels`); ``jobset`` lays
goodput beside what GKE knows of a JobSet and its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from goodput_plugins.dashboards import cloud_monitoring, grafana, jobset

DASHBOARDS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "cloud-monitoring": cloud_monitoring.dashboard,
    "jobset": jobset.dashboard,
    "grafana": grafana.dashboard,
}
"""Each dashboard by its name on the command line."""
