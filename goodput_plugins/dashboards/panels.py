"""What our dashboards show, once for all of them.

A panel asks two questions that have the same answer: one of Cloud Monitoring, one of Prometheus.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """What the numbers of a panel are."""

    SECONDS = "seconds"
    SHARE = "0 to 1"
    PERCENT = "0 to 100"
    COUNT = "a count"


class Shape(Enum):
    """How a panel draws them."""

    NUMBER = "the newest value"
    LINES = "a line for each series"
    STACKED = "areas on top of each other"
    PIE = "shares of a whole, as they are now"


@dataclass(frozen=True)
class Series:
    """A metric of Cloud Monitoring.

    Attributes:
        metric: its type, after ``compute.googleapis.com/workload/``.
        by: the labels of the metric that tell its series apart.
        over: the metric that it is divided by; "" for none.
        aligner: how the points of a minute become one.
    """

    metric: str
    by: tuple[str, ...] = ()
    over: str = ""
    aligner: str = "ALIGN_MAX"


@dataclass(frozen=True)
class Query:
    """A query in PromQL.

    Attributes:
        expression: the query; for Grafana ``$run`` stands for the runs that are chosen.
        legend: the name of a line in Grafana, its labels in ``{{ }}``.
    """

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        title: what stands above it.
        text: what it tells, and when to act.
        unit: of its numbers in Cloud Monitoring.
        shape: how it is drawn.
        cloud: what it shows in Cloud Monitoring.
        prometheus: what it shows in Grafana.
        prometheus_unit, prometheus_shape: in Grafana, where they are others.
        good: below the first it is bad, from the second on good; () where that cannot be said.
    """

    title: str
    text: str
    unit: Unit
    shape: Shape
    cloud: tuple[Series | Query, ...]
    prometheus: tuple[Query, ...]
    prometheus_unit: Unit | None = None
    prometheus_shape: Shape | None = None
    good: tuple[float, float] | tuple[()] = ()


_BADPUT_OF_WINDOW = 'goodput_window_badput_ratio{run=~"$run", window_seconds="$window"}'
"""Of the rolling window that is chosen in Grafana's head; elsewhere each has lines of its own."""
_AT_RISK = (
    "clamp_min({goodput} - on (workload_id, replica_id) group_left () max by (workload_id, replica_id) (max_over_time(("
    "{goodput} and on (workload_id, replica_id) changes({steps}[2m]) > 0)[1d:1m])), 0)"
).format(
    goodput='compute_googleapis_com:workload_goodput_time{monitored_resource="compute.googleapis.com/Workload"}',
    steps='compute_googleapis_com:workload_max_productive_steps{monitored_resource="compute.googleapis.com/Workload"}',
)
"""Productive time since the number of preserved steps last rose."""


PANELS = (
    Panel(
        "Goodput",
        "The share of the elapsed time that made progress which was kept: red below 50 %, green from 80 % on.",
        Unit.SHARE,
        Shape.NUMBER,
        (Series("goodput_time", over="total_elapsed_time"),),
        (Query('sum(goodput_productive_seconds{run=~"$run"}) / sum(goodput_elapsed_seconds{run=~"$run"})'),),
        good=(0.5, 0.8),
    ),
    Panel(
        "Elapsed",
        "Productive time and badput together, from the start of the first process on.",
        Unit.SECONDS,
        Shape.NUMBER,
        (Series("total_elapsed_time"),),
        (Query('sum(goodput_elapsed_seconds{run=~"$run"})'),),
    ),
    Panel(
        "Badput",
        "All time that made no progress.",
        Unit.SECONDS,
        Shape.NUMBER,
        (Series("badput_time"),),
        (Query('sum(goodput_badput_seconds{run=~"$run"})'),),
    ),
    Panel(
        "Disruptions",
        "How often training stopped unexpectedly and had to be started again.",
        Unit.COUNT,
        Shape.NUMBER,
        (Series("disruptions"),),
        (Query('sum(goodput_disruptions{run=~"$run"})'),),
    ),
    Panel(
        "Goodput in rolling windows",
        "Goodput of the last so many seconds: where it dips, look below at the badput of the same time.",
        Unit.PERCENT,
        Shape.LINES,
        (Series("interval_goodput", by=("rolling_window_size",), aligner="ALIGN_MEAN"),),
        (Query('goodput_window_goodput_ratio{run=~"$run"}', "{{run}}, last {{window_seconds}} s"),),
        Unit.SHARE,
    ),
    Panel(
        "Goodput so far",
        "Goodput from the start of the run on. It moves slowly in a long run; rolling windows move at once.",
        Unit.SHARE,
        Shape.LINES,
        (Series("goodput_time", over="total_elapsed_time"),),
        (Query('goodput_productive_seconds{run=~"$run"} / goodput_elapsed_seconds{run=~"$run"}', "{{run}}"),),
    ),
    Panel(
        "Badput in rolling windows, by source",
        "What took the time that goodput lacks in the last so many seconds.",
        Unit.PERCENT,
        Shape.LINES,
        (Series("interval_badput", by=("badput_source", "rolling_window_size"), aligner="ALIGN_MEAN"),),
        (Query(f"avg by (source) ({_BADPUT_OF_WINDOW})", "{{source}}"),),
        Unit.SHARE,
        Shape.STACKED,
    ),
    Panel(
        "Badput by source",
        "Where the time without progress went so far. A source that nothing could see is missing, not zero.",
        Unit.SECONDS,
        Shape.STACKED,
        (Series("badput_time", by=("badput_source",)),),
        (Query('sum by (source) (goodput_badput_seconds{run=~"$run"})', "{{source}}"),),
    ),
    Panel(
        "Causes of badput",
        "The same as shares: what to look at first.",
        Unit.SECONDS,
        Shape.PIE,
        (Series("badput_time", by=("badput_source",)),),
        (Query('sum by (source) (goodput_badput_seconds{run=~"$run"})', "{{source}}"),),
    ),
    Panel(
        "Productive time",
        "Time of steps that were kept. It falls where steps are rolled back.",
        Unit.SECONDS,
        Shape.LINES,
        (Series("goodput_time"),),
        (Query('goodput_productive_seconds{run=~"$run"}', "{{run}}"),),
    ),
    Panel(
        "Productive time at risk",
        "Productive time since the last committed checkpoint: what a crash now would take. Save more often where it "
        "grows beyond what you would do again.",
        Unit.SECONDS,
        Shape.LINES,
        (Query(_AT_RISK),),
        (Query('goodput_productive_seconds{run=~"$run"} - goodput_preserved_seconds{run=~"$run"}', "{{run}}"),),
    ),
    Panel(
        "Preserved steps",
        "The highest step that a crash cannot take. A flat stretch is work at risk, and badput once it is lost.",
        Unit.COUNT,
        Shape.LINES,
        (Series("max_productive_steps"),),
        (
            Query('goodput_step_preserved{run=~"$run"}', "{{run}}, preserved"),
            Query('goodput_step_last{run=~"$run"}', "{{run}}, started"),
        ),
    ),
    Panel(
        "Step time deviation",
        "How much slower the slow ones of the recent steps are than usual. A rise is a straggler, a network or an "
        "input pipeline that got worse.",
        Unit.SECONDS,
        Shape.LINES,
        (Series("step_time_deviation", aligner="ALIGN_MEAN"),),
        (Query('goodput_step_deviation_seconds{run=~"$run"}', "{{run}}"),),
    ),
    Panel(
        "Ideal step time",
        "A step without noise. If it changes, the job does something else than before.",
        Unit.SECONDS,
        Shape.LINES,
        (Series("performance", aligner="ALIGN_MEAN"),),
        (
            Query('goodput_step_ideal_seconds{run=~"$run"}', "{{run}}, ideal"),
            Query('goodput_step_p50_seconds{run=~"$run"}', "{{run}}, median"),
            Query('goodput_step_p99_seconds{run=~"$run"}', "{{run}}, 99th percentile"),
        ),
    ),
    Panel(
        "Disruptions over time",
        "Each stair is a start after an unexpected end.",
        Unit.COUNT,
        Shape.LINES,
        (Series("disruptions"),),
        (Query('goodput_disruptions{run=~"$run"}', "{{run}}"),),
    ),
    Panel(
        "Elapsed time",
        "It stands still while nothing is uploaded: then neither do the other panels move.",
        Unit.SECONDS,
        Shape.LINES,
        (Series("total_elapsed_time"),),
        (Query('goodput_elapsed_seconds{run=~"$run"}', "{{run}}"),),
    ),
)
"""All panels, in the order in which they are looked at."""
