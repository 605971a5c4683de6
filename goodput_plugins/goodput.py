"""Goodput of a recorded job, under the names of Google's ML Goodput Measurement library.

::

    from goodput_plugins import goodput

    calculator = goodput.GoodputCalculator(job_name="run-1", logger_name="goodput_run-1")
    percent, badput, last_step = calculator.get_job_goodput(include_badput_breakdown=True)
    print(badput[goodput.BadputType.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION])

The answers are those of ``goodput report``, in the library's shapes: shares are percent of the elapsed
time, and a bucket that could not be seen is 0.0 (in the report it is "not measured"). Needs no
accelerator; any process that sees the run's folder, or its log, may ask.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from math import inf
from numbers import Real
from typing import Any

from goodput_plugins.core.attribution import Generation, attribute
from goodput_plugins.core.attribution.tally import Window, tally
from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.by_hand import nanoseconds
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.report import Breakdown, Report
from goodput_plugins.job_log import JobLog
from goodput_plugins.measurement import ElasticGoodputRecorder, GoodputRecorder

__all__ = [
    "BadputType",
    "ElasticGoodputCalculator",
    "ElasticGoodputRecorder",
    "GoodputCalculator",
    "GoodputRecorder",
    "GoodputType",
    "IntervalMetricType",
    "MetricType",
]


class GoodputType(Enum):
    """A source of goodput."""

    TOTAL = 1


class BadputType(Enum):
    """A source of badput."""

    TPU_INITIALIZATION = 1
    TRAINING_PREP = 2
    PROGRAM_STARTUP = 3
    DATA_LOADING_SYNC = 4
    DATA_LOADING_ASYNC = 5
    UNPRODUCTIVE_CHECKPOINT_SAVE_TIME = 6
    UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME = 7
    WASTED_PROGRESS_FROM_DISRUPTION = 8
    INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION = 9
    CUSTOM_BADPUT_EVENTS = 10
    OTHER = 11
    ELASTIC_SLICE_DOWN = 12
    ELASTIC_SCALE_UP = 13
    ELASTIC_REINITIALIZATION = 14


class MetricType(Enum):
    """A key of :meth:`GoodputCalculator.get_job_goodput_details`."""

    GOODPUT_TIME = "goodput_time"
    BADPUT_TIME = "badput_time"
    MAX_PRODUCTIVE_STEP = "max_productive_step"
    TOTAL_ELAPSED_TIME = "total_elapsed_time"
    DISRUPTION_COUNT = "disruption_count"
    STEP_TIME_DEVIATION = "step_time_deviation"
    IDEAL_STEP_TIME = "ideal_step_time"
    TOTAL_EXCLUDED_TIME = "total_excluded_time"


class IntervalMetricType(Enum):
    """A key of :meth:`GoodputCalculator.get_interval_metric_details`."""

    INTERVAL_GOODPUT = "interval_goodput"
    INTERVAL_BADPUT = "interval_badput"
    INTERVAL_SIZE = "interval_size"


BadputShares = dict[BadputType, float | dict[str, float]]
"""A number for each source; for custom events one for each name, in upper case."""
Interval = tuple[datetime, datetime]


class GoodputCalculator:
    """Answers for one job.

    Reads the run's journals below ``$GOODPUT_DIR``; where there are none, its log in Cloud Logging; or, if
    ``cloud_logger`` is given, the log behind it. Of journals, :meth:`get_job_goodput` reads only what is new since
    the last call; all else reads the whole history.

    Args:
        job_name: the run's name.
        logger_name: the log in Cloud Logging, of the project that ``$GOODPUT_PROJECT`` or the credentials name.
        cloud_logger: a ``google.cloud.logging`` Logger, or any object whose
            ``read_cloud_logging_entries()`` gives entries or payloads.
        using_pathways: accepted; the rules are the same under Pathways.
        max_logs_retention_period: how far back to read a log; None: all of it.
        gcs_path, cache_dir: accepted and not needed; there is no cache to share.
    """

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        cloud_logger: Any = None,
        using_pathways: bool = False,
        max_logs_retention_period: timedelta | None = None,
        gcs_path: str | None = None,
        cache_dir: str = "/tmp",
    ) -> None:
        self.job_name = job_name
        self.logger_name = logger_name
        self.using_pathways = using_pathways
        self._log = JobLog(job_name, logger_name, cloud_logger, max_logs_retention_period)

    def get_job_goodput(self, include_badput_breakdown: bool = False) -> tuple[float, BadputShares, int]:
        """The job so far.

        Returns:
            Goodput in percent; badput in percent by source (empty unless asked for); the last step.
        """
        report = self._log.report(time.time_ns())
        badput = _shares(report.breakdown) if include_badput_breakdown else {}
        return _percent(report.breakdown.goodput, report.breakdown), badput, report.steps.last or 0

    def get_job_goodput_interval(
        self, interval_start: datetime, interval_end: datetime
    ) -> tuple[float, BadputShares, int, float, int]:
        """The time between two moments; naive ones are UTC.

        Returns:
            Goodput in percent; badput in percent by source; the last step that began by then; how many
            seconds of the job lie in the interval; how often it was disrupted in them.
        """
        window = _window(interval_start, interval_end)
        log, now = self._log.whole(), time.time_ns()
        report = calculate(log, now=now, window=window)
        spent = report.breakdown
        generation = attribute(log, now=now, until=window[1]).generations[report.generation]
        last = _last_step(generation, window[1])
        return _percent(spent.goodput, spent), _shares(spent), last, spent.elapsed / 1e9, report.disruptions

    def get_job_goodput_with_exclusions(
        self,
        exclusion_intervals: Sequence[Interval],
        include_badput_breakdown: bool = False,
        configured_ideal_step_time: float | None = None,
    ) -> tuple[float, BadputShares, int, float]:
        """The job so far, some stretches of time left out.

        Args:
            exclusion_intervals: what to leave out; they may overlap; naive datetimes are UTC.
            include_badput_breakdown: whether to tell badput by source.
            configured_ideal_step_time: the ideal step time, if it is known, seconds.

        Returns:
            Goodput in percent; badput in percent by source; the highest preserved step; how many seconds
            of the job were left out.

        Raises:
            ValueError: nothing of the job is left.
        """
        log, now, ideal = self._log.whole(), time.time_ns(), _ideal(configured_ideal_step_time)
        report = calculate(log, now=now, ideal=ideal)
        generation = attribute(log, now=now, ideal=ideal).generations[report.generation]
        kept = Breakdown()
        for window in _between(sorted(_window(*interval) for interval in exclusion_intervals), generation):
            sums = tally(generation, window)
            kept += sums.spent + sums.overlapped
        if not kept.elapsed:
            raise ValueError(f"nothing of the job {self.job_name!r} is left after the exclusion intervals")
        badput = _shares(kept) if include_badput_breakdown else {}
        excluded = (report.breakdown.elapsed - kept.elapsed) / 1e9
        return _percent(kept.goodput, kept), badput, report.steps.max_productive or 0, excluded

    def get_step_deviation(self, configured_ideal_step_time: float | None = None) -> dict[int, float]:
        """By how many seconds each step's time is off the ideal one; of steps taken again the last time.

        Args:
            configured_ideal_step_time: the ideal step time, if it is known, seconds.
        """
        return self._steps(configured_ideal_step_time)[2]

    def get_job_goodput_details(self) -> dict[str, Any]:
        """The job so far in seconds, by the values of :class:`MetricType`."""
        report, ideal, deviations = self._steps(None)
        spent = report.breakdown
        return {
            MetricType.GOODPUT_TIME.value: {GoodputType.TOTAL: spent.goodput / 1e9},
            MetricType.BADPUT_TIME.value: _badput(spent, lambda ns: ns / 1e9),
            MetricType.MAX_PRODUCTIVE_STEP.value: report.steps.max_productive or 0,
            MetricType.TOTAL_ELAPSED_TIME.value: spent.elapsed / 1e9,
            MetricType.DISRUPTION_COUNT.value: report.disruptions,
            MetricType.STEP_TIME_DEVIATION.value: deviations,
            MetricType.IDEAL_STEP_TIME.value: ideal / 1e9,
            MetricType.TOTAL_EXCLUDED_TIME.value: spent[Bucket.EXCLUDED] / 1e9,
        }

    def get_interval_metric_details(self, interval_start: datetime, interval_end: datetime) -> dict[str, Any]:
        """The time between two moments in percent, by the values of :class:`IntervalMetricType`."""
        percent, badput, *_ = self.get_job_goodput_interval(interval_start, interval_end)
        return {
            IntervalMetricType.INTERVAL_GOODPUT.value: {GoodputType.TOTAL: percent},
            IntervalMetricType.INTERVAL_BADPUT.value: badput,
            IntervalMetricType.INTERVAL_SIZE.value: int((interval_end - interval_start).total_seconds()),
        }

    def _steps(self, configured: float | None) -> tuple[Report, int, dict[int, float]]:
        """The report, the ideal step time (ns; 0: there is none), and the deviations of steps."""
        log, now, given = self._log.whole(), time.time_ns(), _ideal(configured)
        report = calculate(log, now=now, ideal=given)
        ideal = given or report.steps.ideal
        if ideal is None:
            return report, 0, {}
        ledgers = attribute(log, now=now, ideal=given).generations[report.generation].ledgers
        times = (step for ledger in ledgers if ledger.attempt.numbers is not None for step in ledger.numbered_steps())
        return report, ideal, {number: abs(took - ideal) / 1e9 for number, took in times}


class ElasticGoodputCalculator(GoodputCalculator):
    """The same: the rules know elastic jobs."""


def _window(start: datetime, end: datetime) -> Window:
    for at in (start, end):
        if not isinstance(at, datetime):
            raise TypeError(f"an interval is two datetimes; this one has {at!r}")
    low, high = (nanoseconds(at if at.tzinfo is not None else at.replace(tzinfo=UTC)) for at in (start, end))
    if low > high:
        raise ValueError(f"the interval ends ({end}) before it starts ({start})")
    return low, high


def _between(windows: Iterable[Window], generation: Generation) -> Iterator[Window]:
    """What lies between these windows, in order of their beginnings, from a generation's start to its end."""
    at = generation.start
    for low, high in windows:
        if at < low:
            yield at, min(low, generation.end)
        at = max(at, high)
        if at >= generation.end:
            return
    yield at, generation.end


def check_seconds(**named: float) -> None:
    """Raise ValueError for what is no number of seconds above 0."""
    for name, seconds in named.items():
        if isinstance(seconds, bool) or not isinstance(seconds, Real) or not 0 < seconds < inf:
            raise ValueError(f"{name} is {seconds!r}; it takes a number of seconds above 0")


def _ideal(configured: float | None) -> int | None:
    if configured is None:
        return None
    check_seconds(configured_ideal_step_time=configured)
    return round(configured * 1e9)


def _last_step(generation: Generation, until: int) -> int:
    """The highest step that began before a moment; 0 if none did."""
    begun = [bisect_left(ledger.begins, until) for ledger in generation.ledgers]
    known = [ledger.numbers[count - 1] for ledger, count in zip(generation.ledgers, begun, strict=True) if count]
    return known[-1] if known else 0


def _percent(part: int, whole: Breakdown) -> float:
    return 100 * part / whole.elapsed if whole.elapsed else 0.0


def _shares(spent: Breakdown) -> BadputShares:
    """Badput in percent, by source."""
    return _badput(spent, lambda ns: _percent(ns, spent))


def _badput(spent: Breakdown, measure: Any) -> BadputShares:
    shares: BadputShares = {BadputType[bucket.value]: measure(spent[bucket]) for bucket in BADPUT}
    shares[BadputType.DATA_LOADING_ASYNC] = measure(spent[Bucket.DATA_LOADING_ASYNC])
    shares[BadputType.CUSTOM_BADPUT_EVENTS] = {name: measure(ns) for name, ns in spent.detail(Bucket.CUSTOM).items()}
    return shares
