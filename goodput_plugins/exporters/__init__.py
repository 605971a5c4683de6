"""What sends reports to where people look: Cloud Monitoring, TensorBoard, Prometheus.

An exporter takes a :class:`Snapshot` now and then. It runs in the agent's process, never in the training
process, so it may wait for a network; a fault of one is told and does not keep the others from sending.

>>> exporter.export(Snapshot(now, calculate(log, now=now)))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from goodput_plugins.core.report import Report


@dataclass(frozen=True)
class Snapshot:
    """What is known of a run at one moment.

    Attributes:
        now: that moment, ns since the epoch.
        report: the run so far.
        windows: for each rolling window, its length in seconds, the report of the time since then.
        final: the run has ended; what is sent now is the last word.
    """

    now: int
    report: Report
    windows: Mapping[int, Report] = field(default_factory=dict)
    final: bool = False


class Exporter(Protocol):
    """Sends snapshots somewhere."""

    name: str
    """As ``GOODPUT_EXPORTERS`` spells it."""

    def export(self, snapshot: Snapshot) -> None:
        """Send what is new; faults of the network are counted, not raised."""

    def status(self) -> Mapping[str, object]:
        """What became of it so far: ``sent``, ``refused``, ``last_success`` (ns since the epoch), ``last_error``."""

    def close(self) -> None:
        """Let go of files and connections."""
