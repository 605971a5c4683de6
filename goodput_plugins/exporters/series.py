"""The series that a snapshot is in Cloud Monitoring: names, labels and values as Google's ML Goodput guide has them.

A bucket that could not be seen has no series, and neither has a number that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.report import Report, percent, seconds
from goodput_plugins.exporters import Snapshot

PREFIX = "compute.googleapis.com/workload/"
"""What every metric type begins with."""
TOTAL = "TOTAL"
"""The one source of goodput."""


@dataclass(frozen=True)
class Series:
    """One point of one series.

    Attributes:
        metric: its type, after :data:`PREFIX`.
        value: an int is sent as INT64, a float as DOUBLE.
        labels: of the metric.
    """

    metric: str
    value: int | float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """What is sent.

    Attributes:
        goodput: goodput, badput and the rest of the run so far.
        badput: badput by source, of rolling windows too.
        windows: rolling windows.
        deviation: the deviation of step times, and the ideal step time.
    """

    goodput: bool = True
    badput: bool = True
    windows: bool = True
    deviation: bool = True


ALL = Wanted()


@dataclass(frozen=True)
class Options(Wanted):
    """What is sent, and under which labels.

    Attributes:
        accelerator_type: the label of that name; "" where it is not known.
        cluster_name: the label of that name; None: no label.
    """

    accelerator_type: str = ""
    cluster_name: str | None = None


def series_of(snapshot: Snapshot, options: Options) -> list[Series]:
    """All series of a snapshot."""
    found: list[Series] = []
    if options.goodput:
        found += map(_labelled(options), _goodput(snapshot.report))
    if options.windows:
        for length, report in snapshot.windows.items():
            found += map(_labelled(options), _interval(report, length))
    if options.deviation:
        found += _steps(snapshot.report, options)
    return [one for one in found if options.badput or not one.metric.startswith(("badput", "interval_badput"))]


def badput_of(report: Report) -> Iterator[tuple[str, int]]:
    """Each source of badput that was seen, ``CUSTOM_BADPUT_EVENTS.EVAL`` and the like by name; and its ns."""
    for bucket in BADPUT:
        spent = report.breakdown[bucket]
        if bucket in report.unknown and not spent:
            continue
        if bucket is Bucket.CUSTOM:
            for name, ns in sorted(report.breakdown.detail(bucket).items()):
                yield f"{bucket.value}.{name}", ns
        else:
            yield bucket.value, spent


def _goodput(report: Report) -> Iterator[Series]:
    cumulative = {"window_type": "cumulative"}
    yield Series("goodput_time", seconds(report.breakdown.goodput), {"goodput_source": TOTAL})
    for source, ns in badput_of(report):
        yield Series("badput_time", seconds(ns), {"badput_source": source})
    yield Series("total_elapsed_time", seconds(report.breakdown.elapsed), cumulative)
    yield Series("disruptions", report.disruptions, cumulative)
    if report.steps.max_productive is not None:
        yield Series("max_productive_steps", report.steps.max_productive)


def _interval(report: Report, length: int) -> Iterator[Series]:
    """Shares of a rolling window; none where no time of the run lies in it."""
    elapsed, window = report.breakdown.elapsed, {"rolling_window_size": str(length)}
    share = percent(report.breakdown.goodput, elapsed)
    if share is None:
        return
    yield Series("interval_goodput", share, {"goodput_source": TOTAL, **window})
    for source, ns in badput_of(report):
        yield Series("interval_badput", 100 * ns / elapsed, {"badput_source": source, **window})


def _steps(report: Report, options: Options) -> Iterator[Series]:
    if report.steps.deviation is not None:
        yield _labelled(options)(Series("step_time_deviation", seconds(report.steps.deviation)))
    if report.steps.ideal is not None:
        yield Series("performance", seconds(report.steps.ideal))  # of all series it alone has no label


class _labelled:
    """Adds the labels that all series have but ``performance``."""

    def __init__(self, options: Options) -> None:
        self._common = {"accelerator_type": options.accelerator_type}
        if options.cluster_name is not None:
            self._common["cluster_name"] = options.cluster_name

    def __call__(self, series: Series) -> Series:
        return Series(series.metric, series.value, {**series.labels, **self._common})
