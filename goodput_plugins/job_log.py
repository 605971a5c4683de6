"""A job's log, wherever it lies: its journals, its log in Cloud Logging, or what a logger holds that was handed in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

from goodput_plugins import environ
from goodput_plugins.core import rundir
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.exports import Entry, entry_of
from goodput_plugins.core.foreign import Jobs
from goodput_plugins.core.live import Live
from goodput_plugins.core.live.journals import Journals
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import RunLog
from goodput_plugins.core.shipper import google_cloud_is_at_hand, missing


class JobLog:
    """What was recorded of one job; any thread may ask.

    Args:
        job_name: its name.
        logger_name: its log in Cloud Logging, read where there are no journals.
        cloud_logger: read instead of both; see :class:`~goodput_plugins.goodput.GoodputCalculator`.
        retention: how far back to read a log; None: all of it.
    """

    def __init__(self, job_name: str, logger_name: str, cloud_logger: Any, retention: timedelta | None) -> None:
        self._job_name = job_name
        self._logger_name = logger_name
        self._cloud_logger = cloud_logger
        self._retention = retention
        self._live: tuple[Path, Live] | None = None
        self._lock = Lock()

    def report(self, now: int) -> Report:
        """What is known of the job; of journals only what is new since the last call is read.

        Args:
            now: the wall clock, ns since the epoch.

        Raises:
            UnusableData: there is nothing of the job.
        """
        path = self._path() if self._cloud_logger is None else None
        if path is None or not path.is_dir():
            return calculate(self.whole(path), now=now)
        with self._lock:
            if self._live is None or self._live[0] != path:
                self._live = path, Live(Journals(path))
            return self._live[1].report(now)

    def whole(self, path: Path | None = None) -> RunLog:
        """All of it, from a path if that is known.

        Raises:
            UnusableData: there is nothing of the job.
        """
        if self._cloud_logger is None:
            return read(path or self._path())[0]
        jobs = Jobs()
        jobs.add(_entries(self._cloud_logger, self._job_name, self._retention))
        for log in jobs.logs():
            if log.run == self._job_name:
                return log
        raise UnusableData(f"the cloud_logger holds no entries of the job {self._job_name!r}.")

    def _path(self) -> Path:
        """The folder of the run of that name, or of the one that the environment names; else what its log holds."""
        if url := rundir.remote():
            from goodput_plugins.exporters.bucket import mirror

            return mirror(url, environ.RUN_NAME.read() or self._job_name)
        below = rundir.root()
        for name in filter(None, (environ.RUN_NAME.read(), self._job_name)):
            folder = rundir.run_dir(name, below)
            if rundir.journals(folder):
                return folder
        if google_cloud_is_at_hand(os.environ) and not missing(["cloud-logging"]):
            from goodput_plugins.exporters.fetch import fetch
            from goodput_plugins.exporters.google_cloud import project

            run = environ.RUN_NAME.read() or self._job_name
            return fetch(run, project(), self._logger_name, retention=self._retention)
        raise UnusableData(
            f"there is no run {self._job_name!r} below {below}; set GOODPUT_DIR to where its runs lie, set "
            "GOODPUT_PROJECT to read its log, or hand in the log as cloud_logger."
        )


def _entries(logger: Any, job_name: str, retention: timedelta | None) -> Iterator[Entry]:
    """The entries of a job that a logger holds."""
    if hasattr(logger, "read_cloud_logging_entries"):
        yield from map(entry_of, logger.read_cloud_logging_entries() or ())
        return
    if not hasattr(logger, "list_entries"):
        raise TypeError(
            f"cloud_logger is a {type(logger).__name__}; it takes a google.cloud.logging Logger, or an object with "
            "read_cloud_logging_entries()"
        )
    since = datetime.fromtimestamp(0, UTC) if retention is None else datetime.now(UTC) - retention
    # Without a timestamp in the filter the client asks for the last day only.
    wanted = f'jsonPayload.job_name={json.dumps(job_name)} AND severity=INFO AND timestamp>="{since.isoformat()}"'
    for entry in logger.list_entries(filter_=wanted):
        payload = entry.payload
        yield Entry(payload if isinstance(payload, dict) else None, entry.timestamp)
