"""``goodput agent RUN``: from a run's name to an agent at work.

The training process starts it; by hand, or as a container beside the trainer, it is the same::

    goodput agent digits-3f2a --stay
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from goodput_plugins import environ as env
from goodput_plugins.agent.door import Door
from goodput_plugins.agent.duties import Duty
from goodput_plugins.agent.loop import SILENT, Agent
from goodput_plugins.agent.making import Maker
from goodput_plugins.agent.metrics import Metrics
from goodput_plugins.agent.position import Positions
from goodput_plugins.agent.settings import asked_for, has_monitors, settings
from goodput_plugins.agent.shipping import Shipping
from goodput_plugins.agent.status import Status, log
from goodput_plugins.agent.succession import Candidate, Succession
from goodput_plugins.agent.tail import Tail
from goodput_plugins.core import compact, rundir
from goodput_plugins.core.compact import Stretch
from goodput_plugins.core.ml_goodput_stream import Stream
from goodput_plugins.core.name_lock import NameLock
from goodput_plugins.core.reading import dropped_by_agent
from goodput_plugins.exporters.errors import Unavailable

LOGS = "cloud-logging"
"""The exporter of journals; the others get reports."""
LOOK = 1.0
"""Seconds between two looks whether the run has begun, or another agent has gone."""


def run(name: str, *, stay: bool = False, since: int | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Send what a run records until it is over.

    Args:
        name: the run's.
        stay: go on after the trainer's end, for the next one.
        since: when a trainer started this, ns of the monotonic clock; None: no trainer did.
        environ: the environment.

    Returns:
        The exit code: 0, or 1 where nothing can be sent at all.
    """
    if since is None:  # else the training that started it has said so
        env.warn_once(environ)
    asked = _Asked()
    folder = rundir.run_dir(name, rundir.root(environ))
    door = Door()
    if not _stand_by(folder, door, asked, stay, Candidate(since, environ)):
        return 0
    status = Status(dropped=dropped_by_agent(folder) or 0)
    status.save(folder)
    try:
        agent = make(name, folder, door, status, stay=stay, environ=environ)
    except Unavailable as error:
        status.state, status.error = "unavailable", str(error)
        status.save(folder)
        log(f"nothing is sent: {error}")
        door.wait(0.0)
        door.answer(sent=False)
        return 1
    door.hear = Succession(since, environ, agent.hand_over, lambda names: _differ(status, folder, names)).hear
    log(f"serving the run {name!r}" + (f"; its journals go to {status.destination}." if status.destination else "."))
    asked.then(agent)
    try:
        agent.run()
    finally:
        door.close()
    return 0


def _differ(status: Status, folder: Path, names: list[str]) -> None:
    status.differing = names
    status.save(folder)


def _stand_by(folder: Path, door: Door, asked: _Asked, stay: bool, candidate: Candidate) -> bool:
    """Wait until the run has begun and no other agent serves it; False if there is no need to any more."""
    trainer, alive_at, told = NameLock(), time.monotonic(), False
    if not folder.is_dir():
        log(f"there is no run in {folder} yet; this agent waits until it begins.")
    while not asked.to_go:
        if folder.is_dir():
            if door.take(folder):
                return True
            if not candidate.is_needed(door, folder):
                return False
            if not told:
                log("another agent serves the run; this one stands by.")
            told = True
            if stay or trainer.is_taken(folder):
                alive_at = time.monotonic()
            elif time.monotonic() - alive_at >= SILENT:
                return False
        time.sleep(LOOK)
    return False


def make(
    name: str, folder: Path, door: Door, status: Status, *, stay: bool = False, environ: Mapping[str, str] = os.environ
) -> Agent:
    """The agent of a run, from the environment.

    Raises:
        Unavailable: nothing can be sent; the text says why.
    """
    duties: list[Duty] = []
    url = rundir.remote(environ)
    if url:
        duties.append(_uploads(url, folder, status))
    wanted = env.words(env.EXPORTERS.read(environ)) or ["off" if url else LOGS]
    others = [exporter for exporter in wanted if exporter not in (LOGS, "off")]
    if LOGS in wanted:
        try:
            duties += _logging(name, folder, status, environ)
        except Unavailable as error:
            if not duties and not others and not has_monitors(folder):
                raise
            log(f"no journal goes to {LOGS}: {error}")
    elif not duties and not others and not has_monitors(folder) and asked_for(LOGS, folder) is None:
        raise Unavailable("GOODPUT_EXPORTERS is off, and no monitor of the script's wants anything.")
    holder, reports = NameLock(), _reports(name, folder, others, door, status, environ)
    later = _Later(folder, lambda logger: _logging(name, folder, status, {env.LOGGER.name: logger, **environ}))
    return Agent(
        folder,
        duties,
        door,
        status,
        trainer_lives=lambda: holder.is_taken(folder),
        stay=stay,
        reports=reports,
        more=tuple if LOGS in wanted else later,
    )


def _reports(
    name: str, folder: Path, named: list[str], door: Door, status: Status, environ: Mapping[str, str]
) -> Metrics:
    """What sends reports, also where only a monitor that is to come may want any."""
    maker = Maker(name, folder, environ)
    metrics = Metrics(folder, lambda: settings(named, folder, environ), maker.plan, status, told=door.wake)
    maker.sleep = metrics.nap
    return metrics


def _uploads(url: str, folder: Path, status: Status) -> Duty:
    """What keeps the journals in a bucket."""
    from goodput_plugins.agent.uploads import Uploads
    from goodput_plugins.exporters.bucket import Bucket

    status.destination = url
    return Uploads(folder, Bucket(url), Tail(folder, Positions(folder, url)), status)


def _logging(name: str, folder: Path, status: Status, environ: Mapping[str, str]) -> list[Duty]:
    """What sends the journals to Cloud Logging, and fetches what others sent there."""
    from goodput_plugins.agent.history import History
    from goodput_plugins.exporters import cloud_logging, google_cloud
    from goodput_plugins.exporters.cloud_logging_reading import Reading

    project, logger = google_cloud.project(environ), cloud_logging.logger_of(name, environ)
    writer = cloud_logging.Writer(project, logger, environ)
    status.destination = writer.destination
    in_events = env.LOG_FORMAT.read(environ) == "ml-goodput"
    positions = Positions(folder, writer.destination + (" ml-goodput" if in_events else ""))
    tail = Tail(folder, positions, whole_lines=in_events)
    make_entries = _events_of(tail) if in_events else compact.entries
    history = History(folder, positions, lambda place: Reading(place, project, logger, name, environ=environ))
    return [Shipping(tail, positions, make_entries, writer, status), history]


def _events_of(tail: Tail) -> Callable[[Stretch], Iterable[Mapping[str, Any]]]:
    """What makes entries for each event, from where an earlier agent stopped."""
    stream = Stream()
    for stretch in tail.sent():
        for _ in stream.entries(stretch):
            pass
    return stream.entries


class _Later:
    """The duties for a log that the script asks for once its agent is at work.

    Args:
        folder: the run's directory.
        make: makes them, from the log's name.
    """

    def __init__(self, folder: Path, make: Callable[[str], list[Duty]]) -> None:
        self._folder = folder
        self._make = make
        self._made = False

    def __call__(self) -> list[Duty]:
        logger = None if self._made else asked_for(LOGS, self._folder)
        if logger is None:
            return []
        self._made = True
        try:
            duties = self._make(logger)
        except Unavailable as error:
            log(f"no journal goes to {LOGS}: {error}")
            return []
        log(f"the script asks for {LOGS}: its journals go there from now on.")
        return duties


class _Asked:
    """Whether this process was told to end.

    Attributes:
        to_go: it was.
    """

    def __init__(self) -> None:
        self.to_go = False
        self._agent: Agent | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._go)

    def then(self, agent: Agent) -> None:
        """From here on the agent is told."""
        self._agent = agent
        if self.to_go:
            agent.leave()

    def _go(self, *_: object) -> None:
        self.to_go = True
        if self._agent is not None:
            self._agent.leave()
