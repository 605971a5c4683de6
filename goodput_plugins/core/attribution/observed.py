"""What is known of one life of a process, sorted out; columns and lists are in order of time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from typing import Any

from goodput_plugins.core.attribution.files import File
from goodput_plugins.core.attribution.past import Past
from goodput_plugins.core.columns import Column, column
from goodput_plugins.core.events import Activity, Event
from goodput_plugins.core.runlog import Life

WAIT = "wait"
"""The name of a SAVE that only waited for one: it is no checkpoint."""


@dataclass(slots=True)
class Interval:
    """An activity from ``start`` to ``end`` (None: its end never came).

    Attributes:
        thread: whose it is.
        whole: it was told afterwards, as a whole.
    """

    start: int
    end: int | None
    activity: Activity
    name: str | None
    thread: int = 0
    whole: bool = False


@dataclass(slots=True)
class Saved:
    """A checkpoint: when its save began and under which step it is stored.

    Attributes:
        files: the files it is made of, where they are told.
        steps: how many steps of its attempt it holds, where that is told.
        position: the last step in it, where that was found out before.
    """

    start: int
    label: int | None
    committed: bool = False
    files: list[File] = field(default_factory=list)
    steps: int | None = None
    position: int | None = None


@dataclass
class Observed:
    """One life, sorted out. Times in ns since the epoch.

    Attributes:
        times: when each step of the training thread started.
        numbers: the step numbers as recorded, or UNKNOWN.
        done: when the device finished each step, or UNKNOWN. Empty: nothing is known.
        corrections: ``(index, number)``: the step at that index has that number.
        wait_starts: when the training thread began to wait for data, of the waits that ended.
        wait_ends: when they ended.
        idle_starts: when the device began to have nothing to do, between two pieces of work.
        idle_ends: when it had something to do again.
        intervals: all other activities of the training thread.
        elsewhere: activities of other threads, which own no time.
        restores: ``(when, label)`` of checkpoints that were restored.
        file_restores: ``(when, files)`` of checkpoints that were restored.
        counts: ``(index, number)``: what an optimizer counted, for the step at that index.
        commits: ``(begun, committed)``: the background work of each checkpoint that became durable.
        facts: ``(what, of which function, how long, how often)``: what findings are made of.
        end: the END event, if one was recorded.
        last_sign: when the process was last known to be alive.
        waits_stall: the device is the host, so that every wait for data stalls.
        device_unseen: it is not, and nothing will tell when it has done a step.
        deferred: a step's work is compiled and handed to the device at the end of its call.
        dangling: when activities of the training thread began whose end has not come.
        past: what was attributed before; None if this is all of the life.
    """

    life: Life
    times: array[int] = field(default_factory=column)
    numbers: Column = field(default_factory=column)
    done: array[int] = field(default_factory=column)
    corrections: list[tuple[int, int]] = field(default_factory=list)
    wait_starts: array[int] = field(default_factory=column)
    wait_ends: array[int] = field(default_factory=column)
    idle_starts: array[int] = field(default_factory=column)
    idle_ends: array[int] = field(default_factory=column)
    intervals: list[Interval] = field(default_factory=list)
    elsewhere: list[Interval] = field(default_factory=list)
    saves: list[Saved] = field(default_factory=list)
    restores: list[tuple[int, int]] = field(default_factory=list)
    file_restores: list[tuple[int, list[File]]] = field(default_factory=list)
    counts: list[tuple[int, int]] = field(default_factory=list)
    failed_commits: int = 0
    commits: list[tuple[int, int]] = field(default_factory=list)
    facts: list[tuple[str, str, int, int]] = field(default_factory=list)
    noticed: bool = False
    plugins: dict[str, str] = field(default_factory=dict)
    sees: set[str] = field(default_factory=set)
    end: Event | None = None
    last_sign: int = 0
    waits_stall: bool = False
    device_unseen: bool = False
    deferred: bool = False
    dangling: list[int] = field(default_factory=list)
    past: Past | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Another process that made it has the life from the one that asked for it."""
        return vars(self) | {"life": None}

    def copy(self, life: Life) -> Observed:
        """The same of a life of which more was told."""
        copied = replace(self, life=life)
        for name, value in vars(self).items():
            if isinstance(value, list | dict | set):
                setattr(copied, name, value.copy())
        copied.saves = [replace(saved) for saved in self.saves]
        return copied

    @property
    def start(self) -> int:
        return self.life.start

    @property
    def foreign(self) -> bool:
        return self.life.foreign

    def others(self, activity: Activity) -> list[tuple[int, int]]:
        """When other threads did that; an end that never came is the last sign of life."""
        return [
            (i.start, i.end if i.end is not None and i.end >= 0 else self.last_sign)
            for i in self.elsewhere
            if i.activity is activity
        ]

    @property
    def saw_waits(self) -> bool:
        """Whether it ever waited for data, as far as was told."""
        return bool(self.wait_starts) or any(i.activity is Activity.DATA for i in (*self.intervals, *self.elsewhere))
