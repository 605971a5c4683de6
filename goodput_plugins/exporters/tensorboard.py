"""Writing a run's goodput to TensorBoard, where its author already looks.

Tags that Google's library writes keep their names; shares are percent of the elapsed time::

    goodput/goodput                          badput/<source>
    badput/custom_badput_events/<event>      step_deviation (seconds)

and beside them: ``goodput/preserved``, ``steps/...`` (seconds), ``disruptions``, ``rolling_<n>s/...``. The x axis is
the highest step that was started, so it never goes back; the wall time of a point is when it was true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorboardX import SummaryWriter

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Report, percent, seconds
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.series import ALL, Wanted, badput_of


class TensorBoard:
    """The exporter.

    Args:
        folder: the log directory; an agent that is started again goes on there in a file of its own.
        wanted: what is written.
    """

    name = "tensorboard"

    def __init__(self, folder: str, wanted: Wanted = ALL) -> None:
        self._writer = SummaryWriter(folder, flush_secs=10)
        self._wanted = wanted
        self._sent = 0
        self._last: int | None = None

    def export(self, snapshot: Snapshot) -> None:
        at, step = snapshot.now / 1e9, snapshot.report.steps.last or 0
        for tag, value in scalars(snapshot, self._wanted):
            self._writer.add_scalar(tag, value, global_step=step, walltime=at)
            self._sent += 1
        self._writer.flush()
        self._last = snapshot.now

    def status(self) -> Mapping[str, object]:
        return {"sent": self._sent, "last_success": self._last}

    def close(self) -> None:
        self._writer.close()


def scalars(snapshot: Snapshot, wanted: Wanted = ALL) -> Iterator[tuple[str, float]]:
    """The tags of a snapshot and their values; what is not known has none."""
    if wanted.goodput:
        yield from _run(snapshot.report, wanted)
    if wanted.deviation:
        yield from _steps(snapshot.report)
    if wanted.windows:
        for length, window in snapshot.windows.items():
            yield from _shares(window, f"rolling_{length}s/", wanted)


def _run(report: Report, wanted: Wanted) -> Iterator[tuple[str, float]]:
    yield from _shares(report, "", wanted)
    preserved = percent(report.preserved, report.breakdown.elapsed)
    if preserved is not None:
        yield "goodput/preserved", preserved
    yield "disruptions", float(report.disruptions)


def _steps(report: Report) -> Iterator[tuple[str, float]]:
    steps = report.steps
    times = {
        "step_deviation": steps.deviation,
        "steps/ideal_seconds": steps.ideal,
        "steps/p50_seconds": steps.p50,
        "steps/p99_seconds": steps.p99,
    }
    yield from ((tag, seconds(ns)) for tag, ns in times.items() if ns is not None)


def _shares(report: Report, prefix: str, wanted: Wanted) -> Iterator[tuple[str, float]]:
    elapsed = report.breakdown.elapsed
    if not elapsed:
        return
    yield f"{prefix}goodput/goodput", 100 * report.breakdown.goodput / elapsed
    for source, ns in badput_of(report) if wanted.badput else ():
        kind, _, event = source.partition(".")
        tag = f"{kind}/{event}" if kind == Bucket.CUSTOM.value else kind
        yield f"{prefix}badput/{tag.lower()}", 100 * ns / elapsed
