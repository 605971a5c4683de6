"""Which agent serves a run: of those that trainers started, the newest trainer's, with that one's variables.

A trainer that dies leaves its agent behind for some seconds. If another one begins meanwhile its agent stands by, and
tells the old one through the :mod:`~goodput_plugins.agent.door` when its trainer began, and by which variables it
would send. Where these differ the old one goes: what it has not sent the new one finds in the journals. Of values
it tells no more than a few digits of a hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from goodput_plugins import environ as env
from goodput_plugins.agent.door import Door
from goodput_plugins.agent.status import log
from goodput_plugins.core import rundir
from goodput_plugins.core.shipper import NOTHING_WANTED, STANDS_BY

STAY, GO = b"stay", b"go"
"""What an agent that stands by is told: that it may be needed; that a newer one is there."""
DEAF = 60.0
"""One that serves answers sooner, s, unless it hangs: a request to a network takes some 20 s at most."""
RECENT = 5.0
"""An agent that stands by tells so again and again; after so long without a word it has gone, s."""

_VARIABLES = (
    env.EXPORTERS,
    env.UPLOAD_INTERVAL,
    env.ROLLING_WINDOWS,
    env.TENSORBOARD_DIR,
    env.PROMETHEUS_ADDRESS,
    env.LOGGER,
    env.LOG_FORMAT,
    env.PROJECT,
    env.CLOUD_PROJECT,
    env.LOCATION,
    env.REPLICA_ID,
    env.ACCELERATOR_TYPE,
    env.HEARTBEAT,
    env.LOGGING_ENDPOINT,
    env.MONITORING_ENDPOINT,
    env.METADATA_HOST,
    env.STORAGE_EMULATOR,
)
_OTHERS = ("GOOGLE_APPLICATION_CREDENTIALS", "HTTPS_PROXY", "https_proxy")


def digests(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """By what an agent sends: of each variable a few digits of a hash of its value."""
    values = {variable.name: variable.read(environ) for variable in _VARIABLES}
    values |= {name: environ.get(name, "") for name in _OTHERS}
    values[env.EXPORTERS.name] = ",".join(sorted(env.words(values[env.EXPORTERS.name])))
    board = values[env.TENSORBOARD_DIR.name]
    if board and not rundir.is_remote(board):
        values[env.TENSORBOARD_DIR.name] = os.path.abspath(board)
    return {name: hashlib.sha256(f"{name}={value}".encode()).hexdigest()[:8] for name, value in values.items()}


def standing_by(began: int, environ: Mapping[str, str] = os.environ) -> bytes:
    """What an agent that stands by tells the one that serves.

    Args:
        began: when its trainer started it, ns of the clock that all processes of this machine share.
        environ: the environment.
    """
    return STANDS_BY + json.dumps([began, digests(environ)]).encode()


class Candidate:
    """An agent that stands by: it tells the one that serves, again and again.

    Args:
        began: when a trainer started it; None: none did, and it waits without a word.
        environ: the environment.
        clock: seconds, never stepping back.
    """

    def __init__(
        self, began: int | None, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tells = None if began is None else standing_by(began, environ)
        self._clock = clock
        self._answered_at: float | None = None

    def is_needed(self, door: Door, folder: Path) -> bool:
        """Whether it has to stand by; not if a newer one does, or serves."""
        if self._tells is None:
            return True
        answer, now = door.knock(folder, self._tells), self._clock()
        if answer or self._answered_at is None:
            self._answered_at = now
        elif now - self._answered_at > DEAF:
            self._answered_at = float("inf")  # once
            log("the agent that serves this run does not answer; if it hangs, kill it (agent.json has its pid).")
        return answer != GO


class Succession:
    """What the agent that serves makes of those that stand by.

    Args:
        began: when a trainer started this one, as :func:`standing_by` has it; None: none did.
        environ: the environment.
        leave: called once this one is to go.
        differ: called with the variables in which the training that runs now differs and this agent stays all
            the same; with none where it does not differ.
        clock: seconds, never stepping back.
    """

    def __init__(
        self,
        began: int | None,
        environ: Mapping[str, str],
        leave: Callable[[], None],
        differ: Callable[[list[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._began = began
        self._mine = digests(environ)
        self._leave = leave
        self._differ = differ
        self._clock = clock
        self._newest, self._heard_at = 0, float("-inf")
        self._told: list[str] = []
        self._leaves = False

    def hear(self, message: bytes) -> bytes:
        """What to answer to an agent that stands by, or to a trainer that wants nothing sent."""
        began, theirs = _read(message)
        if self._began is not None and began <= self._began:
            return GO
        now = self._clock()
        if began < self._newest and now - self._heard_at < RECENT:
            return GO
        self._newest, self._heard_at = began, now
        differing = sorted(name for name, digest in theirs.items() if self._mine.get(name) != digest)
        if self._began is None:
            self._stay(differing)
        elif differing or message.startswith(NOTHING_WANTED):
            self._go(differing)
        return STAY

    def _go(self, differing: list[str]) -> None:
        if not self._leaves:
            self._leaves = True
            why = f"with another {', '.join(differing)}: its agent takes over" if differing else "with nothing to send"
            log(f"the training that runs now was started {why}; this one sends what it has, and goes.")
            self._leave()

    def _stay(self, differing: list[str]) -> None:
        """This one was started by hand, or beside the trainer: whoever did that is asked to end it."""
        if differing != self._told:
            self._told = differing
            if differing:
                log(
                    f"the training that runs now was started with another {', '.join(differing)} than this agent. "
                    f"No trainer started it, so it goes on with its own; to have the training's: kill {os.getpid()}"
                )
            self._differ(differing)


def _read(message: bytes) -> tuple[int, dict[str, str]]:
    """When the other one's trainer began, and its digests; of a message that is none of ours nothing."""
    try:
        began, theirs = json.loads(message.partition(b" ")[2])
        return int(began), {str(name): str(digest) for name, digest in theirs.items()}
    except (ValueError, TypeError, AttributeError):
        return 0, {}
