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

Nothing is uploaded from here: what the uploaders want is written beside the journal, and the run's agent process
sends it, to TensorBoard, and to Cloud Monitoring where the environment says that it can be reached. It goes on
until the uploader is stopped, or the job has ended. ``docs/metrics.md`` says what appears where.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from goodput_plugins import environ as env
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.session import current, note
from goodput_plugins.core.shipper import google_cloud_is_at_hand, installed
from goodput_plugins.goodput import GoodputCalculator, check_seconds

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
    """Has the run's agent upload what a calculator answers, again and again.

    No method raises into the job, or talks to a network. Monitors of one job share an agent, so the shortest interval
    counts for all of them. A variable (``docs/variables.md``) wins over an
    argument; ``GOODPUT_EXPORTERS=off`` turns all of it off.

    Args:
        job_name: the run's name.
        logger_name: the log in Cloud Logging.
        tensorboard_dir: the folder for TensorBoard.
        upload_interval: seconds between two uploads.
        monitoring_enabled: whether this process monitors; true in one process of a job.
        pathway_enabled: accepted; the rules are the same under Pathways.
        include_badput_breakdown: whether to upload badput by source.
        include_step_deviation: whether to upload the deviation of step times; its uploader does nothing without.
        configured_ideal_step_time: the ideal step time, if it is known, seconds.
        step_deviation_interval_seconds: seconds between two uploads of the deviation.
        gcp_options: where and how to write in Google Cloud.
        skip_final_flush: whether a stop leaves the last upload out.
        final_flush_timeout_seconds: how long a stop waits for it at most; None: $GOODPUT_FLUSH_TIMEOUT.
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
        check_seconds(upload_interval=upload_interval, step_deviation_interval_seconds=step_deviation_interval_seconds)
        if configured_ideal_step_time is not None:
            check_seconds(configured_ideal_step_time=configured_ideal_step_time)
        self.job_name = job_name
        self.logger_name = logger_name
        self.tensorboard_dir = tensorboard_dir
        self.upload_interval = upload_interval
        self.monitoring_enabled = monitoring_enabled
        self.include_badput_breakdown = include_badput_breakdown
        self.include_step_deviation = include_step_deviation
        self.configured_ideal_step_time = configured_ideal_step_time
        self.step_deviation_interval_seconds = step_deviation_interval_seconds
        self.skip_final_flush = skip_final_flush
        self.final_flush_timeout_seconds = final_flush_timeout_seconds
        self.gcp_options = gcp_options or GCPOptions()
        self._started: dict[str, Sequence[float]] = {}
        self._guard = Guard("monitoring")
        self.calculator = GoodputCalculator(job_name, logger_name, using_pathways=pathway_enabled)
        self._guard(
            note,
            monitoring_enabled=bool(monitoring_enabled),
            enable_gcp_goodput_metrics=bool(self.gcp_options.enable_gcp_goodput_metrics),
        )

    def start_goodput_uploader(self) -> None:
        """Upload goodput, badput and the rest of the job so far, every ``upload_interval``."""
        self._start("goodput")

    def stop_goodput_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Upload a last time and stop."""
        self._stop("goodput", skip_final_flush)

    def start_step_deviation_uploader(self) -> None:
        """Upload the deviation of step times, every ``step_deviation_interval_seconds``."""
        if self.include_step_deviation:
            self._start("deviation")

    def stop_step_deviation_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Upload a last time and stop."""
        self._stop("deviation", skip_final_flush)

    def start_rolling_window_goodput_uploader(self, rolling_windows_seconds: Sequence[float]) -> None:
        """Upload goodput and badput of the last so many seconds, for each of these lengths.

        Raises:
            ValueError: there is none, or one is no number of seconds above 0.
        """
        lengths = list(rolling_windows_seconds) if isinstance(rolling_windows_seconds, Iterable) else []
        if not lengths:
            given = f"rolling_windows_seconds is {rolling_windows_seconds!r}"
            raise ValueError(f"{given}; it takes lengths in seconds, such as [3600, 86400]")
        for length in lengths:
            check_seconds(rolling_windows_seconds=length)
        self._start("windows", lengths)

    def stop_rolling_window_goodput_uploader(self, skip_final_flush: bool | None = None) -> None:
        """Upload a last time and stop."""
        self._stop("windows", skip_final_flush)

    def _start(self, what: str, windows: Sequence[float] = ()) -> None:
        if self.monitoring_enabled:
            self._started[what] = [float(length) for length in windows]
            self._guard(self._begin)

    def _begin(self) -> None:
        if self not in _monitors:
            _monitors.append(self)
        current().call_run(self.job_name)
        _tell()

    def _stop(self, what: str, skip_final_flush: bool | None) -> None:
        if what in self._started:
            skip = self.skip_final_flush if skip_final_flush is None else skip_final_flush
            self._guard(self._end, what, bool(skip))

    def _end(self, what: str, skip: bool) -> None:
        if not skip:
            current().last_values(self.final_flush_timeout_seconds)
        del self._started[what]
        _tell()

    def _interval(self) -> float:
        """Seconds between two uploads."""
        each = {"deviation": self.step_deviation_interval_seconds}
        return float(min(each.get(what, self.upload_interval) for what in self._started))


class ElasticGoodputMonitor(GoodputMonitor):
    """The same for an elastic job.

    Args:
        args: those of :class:`GoodputMonitor`.
        include_slice_efficiency: accepted; it is not computed.
        kwargs: those of :class:`GoodputMonitor`.
    """

    def __init__(self, *args: Any, include_slice_efficiency: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


_monitors: list[GoodputMonitor] = []
"""Those of this process that were ever started."""


def _tell() -> None:
    """Tell the agent what all monitors of this process want by now."""
    going = [monitor for monitor in _monitors if monitor._started] or _monitors
    first, of_goodput, of_deviation = going[0], _of(going, "goodput", "windows"), _of(going, "deviation")
    current().monitor(
        {
            "exporters": _exporters(going),
            "started": sorted({what for monitor in going for what in monitor._started}),
            "interval": min((monitor._interval() for monitor in going if monitor._started), default=30.0),
            "windows": sorted({length for monitor in going for length in monitor._started.get("windows", ())}),
            "ideal": next((ideal for one in going if (ideal := one.configured_ideal_step_time) is not None), None),
            "tensorboard": _folder(first.tensorboard_dir),
            "labels": _labels(first.gcp_options),
            "badput": any(monitor.include_badput_breakdown for monitor in of_goodput),
            "gcp_goodput": any(one.gcp_options.enable_gcp_goodput_metrics for one in of_goodput),
            "gcp_deviation": any(one.gcp_options.enable_gcp_step_deviation_metrics for one in of_deviation),
        }
    )


def _of(monitors: list[GoodputMonitor], *started: str) -> list[GoodputMonitor]:
    """Those that were started for one of these; all, where none was."""
    return [one for one in monitors if not one._started.keys().isdisjoint(started)] or monitors


_exporters_of_process: dict[str, bool] = {}
"""Whether each exporter's library is here, asked once: of what is missing it is said then."""


def _exporters(monitors: Sequence[GoodputMonitor]) -> list[str]:
    """Where to the agent is to send: where it was asked to, and can."""
    wanted = []
    if any(monitor._started for monitor in monitors):
        if any(monitor.tensorboard_dir for monitor in monitors):
            wanted.append("tensorboard")
        if google_cloud_is_at_hand(os.environ, env.MONITORING_ENDPOINT):
            wanted.append("cloud-monitoring")
    new = [name for name in wanted if name not in _exporters_of_process]
    if new:
        here = installed(new)
        _exporters_of_process.update({name: name in here for name in new})
    return [name for name in wanted if _exporters_of_process[name]]


def _folder(path: str) -> str:
    """TensorBoard's, for a process that may have another working directory."""
    text = os.fspath(path) if path else ""
    return text if not text or "://" in text else os.path.abspath(text)


def _labels(options: GCPOptions) -> dict[str, str | None]:
    return {
        "project": options.project_id,
        "location": options.location,
        "replica": options.replica_id,
        "accelerator": options.acc_type,
        "cluster": options.cluster_name,
    }
