"""Monitoring a job while it runs, under the names of Google's ML Goodput Measurement library.

::

    from goodput_plugins import monitoring

    monitor = monitoring.GoodputMonitor(
        job_name="run-1", logger_name="goodput_run-1", tensorboard_dir=folder, upload_interval=30,
        monitoring_enabled=is_process_0,
    )
    monitor.start_goodput_uploader()
    ...
    monitor.stop_goodput_uploader()

This version takes every argument and uploads nothing: the exporters to Cloud Monitoring and TensorBoard
(``GOODPUT_EXPORTERS``) come with a later one. The first start says so, once. What the uploaders would
send is in ``goodput report`` and in ``goodput.GoodputCalculator`` at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf
from numbers import Real
from typing import Any

from goodput_plugins.core.guard import Guard, say
from goodput_plugins.core.session import note
from goodput_plugins.goodput import GoodputCalculator

__all__ = ["ElasticGoodputMonitor", "GCPOptions", "GoodputMonitor"]


@dataclass
class GCPOptions:
    """Where and under which labels to write in Google Cloud; what is None is found out on the machine.

    Attributes:
        project_id: the project.
        location: the label ``location``, a zone or region.
        replica_id: the label ``replica_id``.
        acc_type: the label ``accelerator_type``.
        cluster_name: the label ``cluster_name``.
        enable_gcp_goodput_metrics: whether to write goodput and badput.
        enable_gcp_step_deviation_metrics: whether to write the deviation of step times.
    """

    project_id: str | None = None
    location: str | None = None
    replica_id: str = "0"
    acc_type: str | None = None
    cluster_name: str | None = None
    enable_gcp_goodput_metrics: bool = True
    enable_gcp_step_deviation_metrics: bool = True


class GoodputMonitor:
    """Uploads what a calculator answers, again and again; in this version it only checks its arguments.

    Args:
        job_name: the run's name.
        logger_name: the log in Cloud Logging.
        tensorboard_dir: the folder for TensorBoard.
        upload_interval: seconds between two uploads.
        monitoring_enabled: whether this process monitors; true in one process of a job.
        pathway_enabled: accepted; the rules are the same under Pathways.
        include_badput_breakdown: whether to upload badput by source.
        include_step_deviation: whether to upload the deviation of step times.
        configured_ideal_step_time: the ideal step time, if it is known, seconds.
        step_deviation_interval_seconds: seconds between two uploads of the deviation.
        gcp_options: where and how to write in Google Cloud.
        skip_final_flush: whether a stop leaves the last upload out.
        final_flush_timeout_seconds: how long a stop waits for it; None: $GOODPUT_FLUSH_TIMEOUT.
        gcs_sync_interval_seconds, cache_dir, max_logs_retention_period: accepted and not needed.

    Raises:
        ValueError: an interval is no number of seconds above 0.
    """

    def __init__(
        self,
        job_name: str,
        logger_name: str,
        tensorboard_dir: str,
        upload_interval: float,
        monitoring_enabled: bool = False,
        pathway_enabled: bool = False,
        include_badput_breakdown: bool = False,
        include_step_deviation: bool = False,
        configured_ideal_step_time: float | None = None,
        step_deviation_interval_seconds: float = 10,
        gcp_options: GCPOptions | None = None,
        skip_final_flush: bool = False,
        final_flush_timeout_seconds: float | None = None,
        gcs_sync_interval_seconds: float = 3600,
        cache_dir: str = "/tmp",
        max_logs_retention_period: timedelta | None = None,
    ) -> None:
        _check_seconds(upload_interval=upload_interval, step_deviation_interval_seconds=step_deviation_interval_seconds)
        if configured_ideal_step_time is not None:
            _check_seconds(configured_ideal_step_time=configured_ideal_step_time)
        self.job_name = job_name
        self.logger_name = logger_name
        self.tensorboard_dir = tensorboard_dir
        self.upload_interval = upload_interval
        self.monitoring_enabled = monitoring_enabled
        self.include_badput_breakdown = include_badput_breakdown
        self.include_step_deviation = include_step_deviation
        self.gcp_options = gcp_options or GCPOptions()
        self.calculator = GoodputCalculator(job_name, logger_name, using_pathways=pathway_enabled)
        Guard("monitoring")(
            note,
            monitoring_enabled=bool(monitoring_enabled),
            enable_gcp_goodput_metrics=bool(self.gcp_options.enable_gcp_goodput_metrics),
        )

    def start_goodput_uploader(self) -> None:
        """Upload goodput, badput and the rest of the job so far, every ``upload_interval``."""
        self._start()

    def stop_goodput_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Upload a last time and stop."""

    def start_step_deviation_uploader(self) -> None:
        """Upload the deviation of step times."""
        self._start()

    def stop_step_deviation_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Upload a last time and stop."""

    def start_rolling_window_goodput_uploader(self, rolling_windows_seconds: Sequence[float]) -> None:
        """Upload goodput and badput of the last so many seconds, for each of these lengths.

        Raises:
            ValueError: there is none, or one is no number of seconds above 0.
        """
        if not rolling_windows_seconds:
            raise ValueError("rolling_windows_seconds is empty; it takes lengths in seconds, such as [3600, 86400]")
        for length in rolling_windows_seconds:
            _check_seconds(rolling_windows_seconds=length)
        self._start()

    def stop_rolling_window_goodput_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Upload a last time and stop."""

    def _start(self) -> None:
        if self.monitoring_enabled:
            _say_once(self.job_name)


class ElasticGoodputMonitor(GoodputMonitor):
    """The same for an elastic job.

    Args:
        args: those of :class:`GoodputMonitor`.
        include_slice_efficiency: accepted; it is not computed.
        kwargs: those of :class:`GoodputMonitor`.
    """

    def __init__(self, *args: Any, include_slice_efficiency: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


_said = False


def _say_once(job_name: str) -> None:
    global _said
    if not _said:
        _said = True
        say(
            "GoodputMonitor uploads nothing in this version: exporters (GOODPUT_EXPORTERS) come with a later one.",
            f"Everything is recorded; `goodput report {job_name}` shows it.",
        )


def _check_seconds(**named: float) -> None:
    for name, seconds in named.items():
        if isinstance(seconds, bool) or not isinstance(seconds, Real) or not 0 < seconds < inf:
            raise ValueError(f"{name} is {seconds!r}; it takes a number of seconds above 0")
