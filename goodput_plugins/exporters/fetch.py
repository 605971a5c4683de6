"""All that a log holds of a job, on this machine: read within the quota, what was read before not again."""

from __future__ import annotations

import fcntl
import os
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from goodput_plugins import environ as env
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.rundir import cache, encode
from goodput_plugins.exporters.cloud_logging_reading import Reading
from goodput_plugins.exporters.errors import Unreached

READS_A_MINUTE = 50
"""Cloud Logging takes 60 of all readers of a project together."""
TRIES = 6
"""How often in a row a page is asked for where nothing is reached; where the quota is used up, for ten minutes."""
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
QUOTA_TRIES = 40


def fetch(
    run: str,
    project: str,
    logger: str,
    *,
    retention: timedelta | None = None,
    progress: Callable[[Reading], None] = lambda reading: None,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """The file of all entries that a log holds of a job; it stays, and grows with the next call.

    Args:
        run: the job's name.
        project: the project's id.
        logger: the log's name.
        retention: read only what was written so long ago (to the hour); None: all that there is.
        progress: called after each page.
        environ: the environment.

    Raises:
        UnusableData: the log cannot be read; the text says why.
        Unavailable: google-cloud-logging is not installed.
    """
    folder = _cache(environ).joinpath(*map(encode, (env.LOGGING_ENDPOINT.read(environ), project, logger, run)))
    since = None
    if retention is not None:
        since = (datetime.now(UTC) - retention).replace(minute=0, second=0, microsecond=0)
        folder /= encode(since.isoformat())
    pace = Pace()
    with _alone(folder):
        reading = Reading(folder, project, logger, run, since=since, environ=environ)
        try:
            while pace.page(reading):
                progress(reading)
        except Unreached as error:
            raise UnusableData(f"the log {logger} of the project {project} cannot be read: {error}.") from error
        finally:
            reading.close()
    if not reading.path.stat().st_size:
        raise UnusableData(
            f"the log {logger} of the project {project} holds no entries of the run {run!r}; "
            "--logger and --project (GOODPUT_LOGGER, GOODPUT_PROJECT) name another."
        )
    return reading.path


class Pace:
    """Asks for pages no faster than the quota allows, and again where one was refused."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._asked: deque[float] = deque(maxlen=READS_A_MINUTE)

    def page(self, reading: Reading) -> bool:
        """Read the next page; False if there is none.

        Raises:
            Unreached: for too often in a row.
        """
        failures = 0
        while True:
            self._keep_to_quota()
            try:
                return reading.next_page()
            except Unreached as error:
                failures += 1
                if error.slow or failures >= (QUOTA_TRIES if error.quota else TRIES):
                    raise
                self._sleep(min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0**failures) * random.uniform(0.5, 1.0))

    def _keep_to_quota(self) -> None:
        now = self._clock()
        if len(self._asked) == READS_A_MINUTE and self._asked[0] > now - 60:
            self._sleep(self._asked[0] + 60 - now)
        self._asked.append(self._clock())


def _cache(environ: Mapping[str, str]) -> Path:
    """Where what was read is kept: the user's cache, else a folder for temporary files."""
    for place in (cache(environ), Path(tempfile.gettempdir()) / f"goodput-plugins-{os.getuid()}"):
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place / "logs"
    raise UnusableData("there is no folder to keep what is read; set XDG_CACHE_HOME to one that can be written.")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One reader of a log at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
