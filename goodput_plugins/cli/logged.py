"""From ``--project`` and ``--logger`` to the entries of a run in Cloud Logging."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from goodput_plugins.exporters import google_cloud
from goodput_plugins.exporters.cloud_logging import logger_of
from goodput_plugins.exporters.cloud_logging_reading import Reading
from goodput_plugins.exporters.fetch import fetch


def path_of_log(run: str, project: str | None, logger: str | None) -> Path:
    """The file with all entries of a run, what is new read from the log.

    Raises:
        UnusableData: the log cannot be read.
        Unavailable: a library or the project's name is missing.
    """
    show = _shown() if sys.stderr.isatty() else lambda reading: None
    path = fetch(run, project or google_cloud.project(), logger or logger_of(run), progress=show)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return path


def _shown() -> Callable[[Reading], None]:
    """Shows how far it has got; how far it has to go nobody can tell."""

    def show(reading: Reading) -> None:
        until = reading.newest[:19].replace("T", " ")
        print(f"\r\x1b[K{reading.count:,} entries, up to {until} UTC ...", end="", file=sys.stderr, flush=True)

    return show
