"""Putting the events of a log that names no process into lives.

A job start begins a life, unless another process is telling of the same start; so does an
accelerator-init or preparation start that follows a step, when the job start was lost. While a new
life prepares, steps are still those of the old one, and own nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import eq

from goodput_plugins.core.attribution.observe import sorted_events
from goodput_plugins.core.columns import counted_on, extended
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.runlog import Life

COPY_NS = 5_000_000_000
"""A start equal in kind to one still open, this soon after it, is another process's copy."""


def split(
    name: str,
    steps: tuple[array[int], array[int]],
    waits: tuple[array[int], array[int]],
    others: Iterable[Event],
    *,
    follows: bool = False,
) -> tuple[list[Life], int]:
    """Put what was told of a job into lives.

    Args:
        name: of the job.
        steps: when each step began, in order, and its number.
        waits: when each simple wait for data began and ended, in order; the first thing told is none.
        others: all other events.
        follows: another life came before.

    Returns:
        The lives, and how many starts were copies of another process.
    """
    events = sorted_events(list(others))
    splitter = _Splitter(name, steps, _ends_of_preparations(events), follows=follows)
    for event in events:
        splitter.steps_until(event)
        splitter.put(event)
    splitter.all_steps()
    _share_out(splitter.lives, splitter.from_on, waits)
    return splitter.lives, splitter.copies


def _share_out(lives: Sequence[Life], from_on: Sequence[int], waits: tuple[array[int], array[int]]) -> None:
    """Give each life the waits that began in it."""
    starts, ends = waits
    firsts = [0, *(bisect_left(starts, moment) for moment in from_on[1:])]
    for life, first, stop in zip(lives, firsts, [*firsts[1:], len(starts)], strict=False):
        life.steps.wait_starts = starts[first:stop]
        life.steps.wait_ends = ends[first:stop]


def _ends_of_preparations(events: list[Event]) -> dict[int, int]:
    """For the time of each preparation's begin, when it ended; nothing if its end was lost."""
    ends: dict[int, int] = {}
    open_at: int | None = None
    for event in events:
        if event.kind is Kind.START:
            open_at = None
        elif event.activity is Activity.PREPARATION:
            if event.kind is Kind.BEGIN:
                open_at = event.time
            elif event.kind is Kind.FINISH and open_at is not None:
                ends[open_at] = event.time
                open_at = None
    return ends


class _Splitter:
    """Goes through a job's events once; a life at a time is open.

    Attributes:
        lives: as found so far.
        from_on: when each of them began to take what was told.
        next_step: the first step after what was gone through.
        first_taken: the first step that the open life takes, of those that it was not given yet.
        copies: starts that another process told, too.
    """

    def __init__(
        self, name: str, steps: tuple[array[int], array[int]], preparations: dict[int, int], *, follows: bool
    ) -> None:
        self.name = name
        self.times, self.numbers = steps
        self.next_step = self.first_taken = 0
        self.preparations = preparations
        self.follows = follows
        self.lives: list[Life] = []
        self.from_on: list[int] = []
        self.copies = 0
        self.stepped = False
        self.started = False
        self.prepared_at = 0
        self.open: dict[tuple[Activity | None, str | None], int] = {}
        self.last_step: tuple[int, int] | None = None

    def put(self, event: Event) -> None:
        if self._begins_life(event):
            self._new_life(event.time)
        elif event.kind is Kind.START and self.started:
            self.copies += 1
            return
        self.started |= event.kind is Kind.START
        if self._is_copy(event):
            return
        if not self.lives:
            self._new_life(event.time)
        self.lives[-1].events.append(event)

    def steps_until(self, event: Event) -> None:
        """The steps before an event; at equal times only a job's end comes after a step."""
        place = bisect_right if event.kind is Kind.END else bisect_left
        self._steps(place(self.times, event.time, self.next_step))

    def all_steps(self) -> None:
        """The steps after the last event."""
        self._steps(len(self.times))
        self._give_steps(self.next_step)

    def _steps(self, stop: int) -> None:
        first, self.next_step = self.next_step, max(stop, self.next_step)
        if self.follows or len(self.lives) > 1:
            # Before the new life's preparation has ended, the old process is still at work.
            begun = bisect_left(self.times, self.prepared_at, first, self.next_step)
            if begun > first:
                self._give_steps(first)
                first = self.first_taken = begun
        if first >= stop:
            return
        if not self.lives:
            self._new_life(self.times[first])
        self.stepped = True
        self.open.clear()

    def _give_steps(self, stop: int) -> None:
        """Give the open life its steps before ``stop``."""
        first, self.first_taken = self.first_taken, self.next_step
        if first >= stop:
            return
        times, numbers = self._without_copies(self.times[first:stop], self.numbers[first:stop])
        steps = self.lives[-1].steps
        steps.thread = 0
        steps.ordinals = counted_on(steps.ordinals, steps.told, len(times))
        steps.told += len(times)
        steps.times.extend(times)
        steps.numbers = extended(steps.numbers, numbers)

    def _without_copies(self, times: array[int], numbers: array[int]) -> tuple[Sequence[int], Sequence[int]]:
        """The steps that are not those of before, told by another process."""
        before = self.last_step
        self.last_step = numbers[-1], times[-1]
        if not (before is not None and before[0] == numbers[0]) and not any(map(eq, numbers, numbers[1:])):
            return times, numbers
        kept: list[tuple[int, int]] = []
        for time, number in zip(times, numbers, strict=True):
            if before is None or before[0] != number or time - before[1] > COPY_NS:
                before = number, time
                kept.append((time, number))
        self.copies += len(times) - len(kept)
        self.last_step = before
        return [time for time, _ in kept], [number for _, number in kept]

    def _new_life(self, at: int) -> None:
        if self.lives:
            self._give_steps(self.next_step)
        self.lives.append(Life(f"{self.name}-{len(self.lives)}", at, [], foreign=True))
        self.from_on.append(at)
        self.stepped = self.started = False
        self.open.clear()
        self.last_step = None
        self.prepared_at = 0

    def _begins_life(self, event: Event) -> bool:
        if event.kind is Kind.START:
            if not self.lives:
                return True
            return self.stepped or event.time - self.lives[-1].start > COPY_NS
        begins = event.kind is Kind.BEGIN and event.activity in (Activity.DEVICE_INIT, Activity.PREPARATION)
        return begins and self.stepped

    def _is_copy(self, event: Event) -> bool:
        if event.kind is Kind.BEGIN:
            if event.activity is Activity.PREPARATION:
                self.prepared_at = max(self.prepared_at, self.preparations.get(event.time, 0))
            key = (event.activity, event.name)
            opened = self.open.get(key)
            if opened is not None and event.time - opened <= COPY_NS:
                self.copies += 1
                return True
            self.open[key] = event.time
        elif event.kind is Kind.FINISH:
            self.open.pop((event.activity, event.name), None)
        return False
