"""A run's log as attribution takes it: lives of its primary process, each with its events.

Readers (of journals, of entries exported from Cloud Logging) make a :class:`RunLog`; from there on
nothing knows where the events came from, except for ``foreign``, which the rules of attribution
name: such a log knows no process, no heartbeat and no device time.

Steps, and the waits before them, are by far the most of a log. A life keeps them in columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, compress, repeat
from operator import add, sub
from typing import TYPE_CHECKING

from goodput_plugins.core.events import Event, Kind, is_number

if TYPE_CHECKING:
    from goodput_plugins.core.attribution.observed import Observed

UNKNOWN = -(2**63)
"""Stands in a column for what was not told."""


def column() -> array[int]:
    """An empty column of 64-bit integers."""
    return array("q")


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
        thread: which thread steps; None before the first.
        told: how many STEPs were told, those of other threads included.
    """

    times: array[int] = field(default_factory=column)
    numbers: array[int] = field(default_factory=column)
    ordinals: array[int] = field(default_factory=column)
    done: array[int] = field(default_factory=column)
    done_ordinals: array[int] = field(default_factory=column)
    wait_starts: array[int] = field(default_factory=column)
    wait_ends: array[int] = field(default_factory=column)
    thread: int | None = None
    told: int = 0

    def add(self, event: Event) -> bool:
        """Take in an event if it is a RUN, STEPS, STEP or DEVICE; False if it is another."""
        return not self.take([event])

    def take(self, events: Iterable[Event]) -> list[Event]:
        """Take in the RUNs, STEPS, STEPs and DEVICEs among these events; the others are returned."""
        others: list[Event] = []
        runs: list[Event] = []
        for event in events:
            if event.kind is Kind.RUN:
                runs.append(event)
            elif event.kind in _OF_STEPS:
                self._add_runs(runs)
                runs = []
                self._add_one(event)
            else:
                others.append(event)
        self._add_runs(runs)
        return others

    def _add_one(self, event: Event) -> None:
        kind = event.kind
        if kind is Kind.STEPS:
            self._add_sum(event)
        elif kind is Kind.DEVICE:
            self.done.append(event.time)
            self.done_ordinals.append(event.step if is_number(event.step) else UNKNOWN)
        else:
            if self.thread is None:
                self.thread = event.thread
            if event.thread == self.thread:
                self.times.append(event.time)
                self.numbers.append(event.step if is_number(event.step) else UNKNOWN)
                self.ordinals.append(self.told)
            self.told += 1

    def _add_runs(self, runs: Sequence[Event]) -> None:
        """Take in runs, all of them at once: a column costs as much for one step as for a dozen."""
        times: list[int] = []
        waits: list[int] = []
        took: list[int] = []
        ordinals: list[range] = []
        numbers: list[Iterable[int]] = []
        for run in runs:
            if self.thread is None:
                self.thread = run.thread
            told = run.data
            done = [n for n in told if n < 0]
            if done:
                told = [n for n in told if n >= 0]
                self._add_done(run.time, done)
            first, count = told[0], (len(told) + 2) // 3
            self.told = first + count
            if run.thread == self.thread:
                times += accumulate(told[3::3], initial=run.time)
                waits += told[1::3]
                took += told[2::3]
                waits += [0] * (len(times) - len(waits))
                took += [0] * (len(times) - len(took))
                ordinals.append(range(first, first + count))
                numbers.append(range(run.step, run.step + count) if is_number(run.step) else repeat(UNKNOWN, count))
        self.times.fromlist(times)
        self.ordinals.fromlist(list(chain.from_iterable(ordinals)))
        self.numbers.fromlist(list(chain.from_iterable(numbers)))
        if any(took):
            self._add_waits(map(add, times, waits), took)

    def _add_waits(self, begun: Iterable[int], took: list[int]) -> None:
        """The waits that took any time."""
        starts = list(compress(begun, took))
        self.wait_starts.fromlist(starts)
        self.wait_ends.fromlist(list(map(add, starts, filter(None, took))))

    def _add_done(self, begun: int, told: list[int]) -> None:
        """``told`` holds, of each step that was done, -1 - its ordinal and -1 - when (ns after the run began)."""
        before = begun - 1
        whens = [before - when for when in told[1::2]]
        self.done.fromlist(whens)
        self.done_ordinals.fromlist([~n for n in told[: 2 * len(whens) : 2]])

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
        numbers = range(event.step, event.step + count + 1) if is_number(event.step) else [UNKNOWN] * (count + 1)
        self.times.extend(times[known:])
        self.ordinals.extend(range(first, first + count + 1)[known:])
        self.numbers.extend(numbers[known:])
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
            self.done_ordinals.extend(range(first, first + count))


def _shares(total: int, count: int) -> list[int]:
    """``total`` in ``count`` equal parts."""
    return [total * (at + 1) // count - total * at // count for at in range(count)]


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
    """

    id: str
    start: int
    events: list[Event]
    foreign: bool = False
    steps: Steps = field(default_factory=Steps)
    shown: Observed | None = None

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
