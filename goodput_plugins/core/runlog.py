"""A run's log as attribution takes it: lives of its primary process, each with its events.

Readers (of journals, of entries exported from Cloud Logging) make a :class:`RunLog`; from there on
nothing knows where the events came from, except for ``foreign``, which the rules of attribution
name: such a log knows no process, no heartbeat and no device time.

Steps, and the waits before them, are by far the most of a log. A life keeps them in columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate, compress, repeat
from operator import add, sub
from typing import TYPE_CHECKING

from goodput_plugins.core.columns import UNKNOWN, Column, column, counted_on, extended, packed
from goodput_plugins.core.events import Activity, Event, Kind, is_number
from goodput_plugins.core.run_numbers import Parted, parted

if TYPE_CHECKING:
    from goodput_plugins.core.attribution.observed import Observed

_OF_STEPS = frozenset({Kind.STEP, Kind.STEPS, Kind.DEVICE})


@dataclass
class Steps:
    """Steps of the training thread in the order in which they were told. Times in ns since the epoch.

    Attributes:
        times: when each step began.
        numbers: its number, or UNKNOWN.
        ordinals: which of all STEPs of the attempt it was, from 0.
        done: when the device finished a step.
        done_ordinals: which step that was.
        wait_starts: when the training thread began to wait for data.
        wait_ends: when each of those waits ended.
        idle_starts: when the device began to have nothing to do, between two pieces of work.
        idle_ends: when it had something to do again.
        alive: when the process said that it was alive.
        thread: which thread steps; None before the first.
        told: how many STEPs were told, those of other threads included.
    """

    times: array[int] = field(default_factory=column)
    numbers: Column = field(default_factory=column)
    ordinals: Column = field(default_factory=column)
    done: array[int] = field(default_factory=column)
    done_ordinals: Column = field(default_factory=column)
    wait_starts: array[int] = field(default_factory=column)
    wait_ends: array[int] = field(default_factory=column)
    idle_starts: array[int] = field(default_factory=column)
    idle_ends: array[int] = field(default_factory=column)
    alive: array[int] = field(default_factory=column)
    thread: int | None = None
    told: int = 0

    def add(self, event: Event) -> bool:
        """Take in an event if it is a RUN, STEPS, STEP, DEVICE, IDLE or HEARTBEAT; False if it is another."""
        return not self.take([event])

    def take(self, events: Iterable[Event]) -> list[Event]:
        """Take in the RUNs, STEPS, STEPs, DEVICEs, IDLEs and HEARTBEATs among these, and waits between two RUNs.

        The others are returned.
        """
        others: list[Event] = []
        runs: list[Event] = []
        for event in events:
            kind = event.kind
            if kind is Kind.RUN or (kind is Kind.SPAN and event.activity is Activity.DATA):
                runs.append(event)
            elif kind is Kind.HEARTBEAT:
                self.alive.append(event.time)
            elif kind is Kind.IDLE:
                self.idle_starts.append(event.time)
                self.idle_ends.append(event.time + (event.duration or 0))
            elif kind in _OF_STEPS:
                others += self._add_runs(runs)
                runs = []
                self._add_one(event)
            else:
                others.append(event)
        return others + self._add_runs(runs)

    def _add_one(self, event: Event) -> None:
        kind = event.kind
        if kind is Kind.STEPS:
            self._add_sum(event)
        elif kind is Kind.DEVICE:
            self.done.append(event.time)
            self.done_ordinals = counted_on(self.done_ordinals, event.step if is_number(event.step) else UNKNOWN, 1)
        else:
            if self.thread is None:
                self.thread = event.thread
            if event.thread == self.thread:
                self.times.append(event.time)
                self._add_numbers(event.step, 1)
                self.ordinals = counted_on(self.ordinals, self.told, 1)
            self.told += 1

    def _add_runs(self, told: Iterable[Event]) -> list[Event]:
        """Take in runs, all of them at once, and the waits that lie between them; the other waits are returned."""
        joined = _Joined()
        others: list[Event] = []
        wait: Event | None = None
        for event in told:
            if event.kind is Kind.RUN:
                if wait is not None and not self._add_wait(wait, event, joined):
                    others.append(wait)
                wait = None
                self._add_run(event, joined)
            else:
                if wait is not None:
                    others.append(wait)
                wait = event
        if wait is not None:
            others.append(wait)
        self._add_joined(joined)
        return others

    def _add_run(self, run: Event, joined: _Joined) -> None:
        if self.thread is None:
            self.thread = run.thread
        told = parted(run.data)
        joined.add_done(run.time, told)
        first, count = run.data[0], 1 + len(told.intervals)
        self.told = first + count
        if run.thread == self.thread:
            joined.add_steps(run.time, told)
            self.ordinals = counted_on(self.ordinals, first, count)
            self._add_numbers(run.step, count)

    def _add_wait(self, wait: Event, run: Event, joined: _Joined) -> bool:
        """Take in a wait that was told before a run, if it lies between that and the last step."""
        fits = run.thread == wait.thread == self.thread and wait.time + (wait.duration or 0) <= run.time
        return fits and joined.add_wait(wait.time, wait.duration or 0)

    def _add_joined(self, joined: _Joined) -> None:
        self.times.extend(packed(joined.times))
        if any(joined.took):  # those that did not are none
            starts = list(compress(map(add, joined.times, joined.waits), joined.took))
            self.wait_starts.extend(packed(starts))
            self.wait_ends.extend(packed(list(map(add, starts, filter(None, joined.took)))))
        told = joined.done_ordinals
        self.done.extend(packed(joined.done))
        if told and told == list(range(told[0], told[0] - len(told), -1)):
            self.done_ordinals = counted_on(self.done_ordinals, ~told[0], len(told))
        elif told:
            self.done_ordinals = extended(self.done_ordinals, [~n for n in told])

    def _add_numbers(self, first: int | None, count: int) -> None:
        """Take in the numbers of so many steps, or that they are not known."""
        if is_number(first):
            self.numbers = counted_on(self.numbers, first, count)
        else:
            self.numbers = extended(self.numbers, [UNKNOWN] * count)

    def _add_sum(self, event: Event) -> None:
        """Equal steps, of which only the sum is known: shares of it, to the nanosecond in all."""
        first, count, duration, overlapped, stalled, idle = event.data
        if self.thread is None:
            self.thread = event.thread
        known = self.told == first + 1  # the step that it begins with has been told
        self.told = first + count + 1
        if event.thread != self.thread:
            return
        times = [event.time + duration * at // max(count, 1) for at in range(count + 1)]
        self.times.extend(times[known:])
        self.ordinals = counted_on(self.ordinals, first + known, count + 1 - known)
        self._add_numbers(event.step + known if is_number(event.step) else None, count + 1 - known)
        ends = times[1:]
        waits = [
            *zip(times, map(add, times, _shares(overlapped, count)), strict=False),
            *zip(map(sub, ends, _shares(stalled, count)), ends, strict=True),
        ]
        waits = sorted(wait for wait in waits if wait[0] < wait[1])
        self.wait_starts.extend([start for start, _ in waits])
        self.wait_ends.extend([end for _, end in waits])
        if idle >= 0:
            self.done.extend(map(sub, ends, _shares(idle, count)))
            self.done_ordinals = counted_on(self.done_ordinals, first, count)


def _shares(total: int, count: int) -> list[int]:
    """``total`` in ``count`` equal parts."""
    return [total * (at + 1) // count - total * at // count for at in range(count)]


class _Joined:
    """Runs, one after the other: a column costs as much for one step as for a dozen.

    Attributes:
        times: when steps began.
        waits: how long after that the training thread waited for data.
        took: how long it did; 0: it did not.
        done: when steps were done.
        done_ordinals: -1 - the ordinal of each.
    """

    def __init__(self) -> None:
        self.times: list[int] = []
        self.waits: list[int] = []
        self.took: list[int] = []
        self.done: list[int] = []
        self.done_ordinals: list[int] = []

    def add_steps(self, begun: int, told: Parted) -> None:
        """Add the steps of a run."""
        self.times += accumulate(told.intervals, initial=begun)
        self.waits += told.waits
        self.took += told.took
        self.waits += [0] * (len(self.times) - len(self.waits))
        self.took += [0] * (len(self.times) - len(self.took))

    def add_done(self, begun: int, told: Parted) -> None:
        """Add what a run tells of the device."""
        self.done += map(sub, repeat(begun - 1), told.whens)
        self.done_ordinals += told.ordinals[: len(told.whens)]

    def add_wait(self, start: int, took: int) -> bool:
        """Add a wait of the last step; False if it has one, or begins after that."""
        if not self.times or self.took[-1] or start < self.times[-1]:
            return False
        self.waits[-1], self.took[-1] = start - self.times[-1], took
        return True


@dataclass
class Life:
    """One life of the primary process.

    Attributes:
        id: what its journal is called; in a foreign log, its place.
        start: when the operating system created the process, or what the script told of an earlier
            start of the job; ns since the epoch.
        events: what was told, in any order.
        foreign: read from entries that name no process.
        steps: what was told of steps and is not among the events.
        shown: what earlier events show, which are not among these (see ``gone_through``).
        observed: what everything shows that was told; then it is here no more (see ``observe_ahead``).
        gone: its process had ended before this was read, so no more is to come.
    """

    id: str
    start: int
    events: list[Event]
    foreign: bool = False
    steps: Steps = field(default_factory=Steps)
    shown: Observed | None = None
    observed: Observed | None = None
    gone: bool = False

    def add(self, events: Iterable[Event]) -> None:
        """Take in events in the order of a journal's lines."""
        told = self.steps.take(events)
        self.start = min([self.start, *(event.time for event in told if event.kind is Kind.START)])
        self.events += told


@dataclass
class RunLog:
    """Everything known of one run.

    Attributes:
        run: its name.
        lives: by start time.
        notes: what the reader had to leave out, as ``(slug, sentence)``.
    """

    run: str
    lives: list[Life] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def note(self, slug: str, text: str) -> None:
        """Tell what had to be left out; ``docs/messages.md`` has the slug's paragraph."""
        self.notes.append((slug, text))
