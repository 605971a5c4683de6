"""What a played job leaves behind: tapes of what truly happened, second by second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from goodput_plugins.core.events import Event

SECOND = 1_000_000_000


class Take(NamedTuple):
    """One execution of a step (a step that is repeated after a rewind has several)."""

    number: int
    start: int
    logged: bool
    id: int


class Leaf(NamedTuple):
    """A stretch of time and what it was spent on; ``take`` is the step that the work belongs to.

    ``what`` is one of: boot, import, init, prep, restore, replay, data, trace, lower, compile, excess (of a
    first step), work, hiccup, slow (of a step), save, wait (for the last save), custom:NAME, teardown, exit, host
    (nothing named).
    ``told`` is when a hook of ours could have told of it, had it not been told at its begin.
    """

    start: int
    end: int
    what: str
    take: Take | None = None
    told: int | None = None


@dataclass
class Attempt:
    """One life of the process.

    Attributes:
        host: what the training thread did, adjacent from ``start`` to ``end``.
        device: steps on the device, where the host runs ahead of it; else empty.
        told: events for a journal, each with the time at which it was written.
        entries: payloads for a foreign log, likewise.
        how: the name that a journal's END carries; None where the process was killed.
        end: when the process was gone.
        commits: (when durable, step, how long the background took).
        prefetches: (start, how long) of loading on another thread.
        job_end: when the script recorded its end in the foreign log, if it did.
    """

    start: int
    restored: int | None
    asynchronous: bool
    job_start: int = 0
    end: int = 0
    how: str | None = None
    noticed: bool = False
    job_end: int | None = None
    host: list[Leaf] = field(default_factory=list)
    device: list[Leaf] = field(default_factory=list)
    told: list[tuple[int, Event]] = field(default_factory=list)
    entries: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    takes: list[Take] = field(default_factory=list)
    commits: list[tuple[int, int, int]] = field(default_factory=list)
    prefetches: list[tuple[int, int]] = field(default_factory=list)

    def cut(self, moment: int) -> None:
        """The process is gone at ``moment``: nothing after it happened."""
        self.host = _cut(self.host, moment)
        self.device = _cut(self.device, moment)
        self.told = [t for t in self.told if t[0] <= moment]
        self.entries = [e for e in self.entries if e[0] <= moment]
        self.takes = [t for t in self.takes if t.start <= moment]
        self.commits = [c for c in self.commits if c[0] <= moment]
        self.end = moment

    @property
    def logged(self) -> list[Take]:
        """The takes that the logs know of."""
        return [t for t in self.takes if t.logged]

    @property
    def crashed(self) -> bool:
        """Ended without completing and without being stopped by its user."""
        return self.how is None or self.how.startswith(("exception", "signal"))

    def leaves(self, until: int) -> list[Leaf]:
        """What the time up to ``until`` was spent on: the device's work first, else the host's."""
        return _cut(_overlay(self.device, self.host) if self.device else self.host, until)


def _cut(leaves: list[Leaf], moment: int) -> list[Leaf]:
    return [leaf._replace(end=min(leaf.end, moment)) for leaf in leaves if leaf.start < moment]


def _overlay(above: list[Leaf], below: list[Leaf]) -> list[Leaf]:
    """``above`` where it is, ``below`` elsewhere; both in order and without overlap."""
    busy = iter([*above, Leaf(2**63, 2**63, "")])
    top = next(busy)
    seen: list[Leaf] = []
    for leaf in below:
        at = leaf.start
        while at < leaf.end:
            if top.end <= at:
                top = next(busy)
            elif top.start <= at:
                seen.append(top._replace(start=at, end=min(top.end, leaf.end)))
                at = seen[-1].end
            else:
                seen.append(leaf._replace(start=at, end=min(top.start, leaf.end)))
                at = seen[-1].end
    return seen


@dataclass
class Plan:
    """A job's habits; times in ns."""

    seed: int
    asynchronous: bool
    ideal: int
    jitter: float
    every: int
    target: int
    save_every: int
    save: int
    commit: int
    eval_every: int
    evaluation: int
    compiling: int
    excess: int
    spans: bool
    depth: int
    sync_every: int


@dataclass
class Job:
    """A played job."""

    plan: Plan
    attempts: list[Attempt] = field(default_factory=list)
    strangers: list[tuple[int, int]] = field(default_factory=list)
    """Processes under the run's name that never trained: (start, end)."""
    fates: list[str] = field(default_factory=list)
