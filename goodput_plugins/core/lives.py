"""Putting the events of a log that names no process into lives.

A job start begins a life, unless another process is telling of the same start; so does an
accelerator-init or preparation start that follows a step, when the job start was lost. While a new
life prepares, steps are still those of the old one, and own nothing.
"""

from __future__ import annotations

from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.runlog import Life

COPY_NS = 5_000_000_000
"""A start equal in kind to one still open, this soon after it, is another process's copy."""


def split(events: list[Event], name: str) -> tuple[list[Life], int]:
    """Put a job's events, in order of time, into lives.

    Returns:
        The lives, and how many starts were copies of another process.
    """
    splitter = _Splitter(name, _ends_of_preparations(events))
    for event in events:
        splitter.put(event)
    return splitter.lives, splitter.copies


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
    """Goes through a job's events once; a life at a time is open."""

    def __init__(self, name: str, preparations: dict[int, int]) -> None:
        self.name = name
        self.preparations = preparations
        self.lives: list[Life] = []
        self.copies = 0
        self.stepped = False
        self.started = False
        self.prepared_at = 0
        self.open: dict[tuple[Activity | None, str | None], int] = {}
        self.last_step: Event | None = None

    def put(self, event: Event) -> None:
        if self._begins_life(event):
            self._new_life(event.time)
        elif event.kind is Kind.START and self.started:
            self.copies += 1
            return
        self.started |= event.kind is Kind.START
        if self._is_copy(event) or self._is_of_the_old_life(event):
            return
        if not self.lives:
            self._new_life(event.time)
        self.lives[-1].events.append(event)

    def _new_life(self, at: int) -> None:
        self.lives.append(Life(f"{self.name}-{len(self.lives)}", at, [], foreign=True))
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
        elif event.kind is Kind.STEP:
            last = self.last_step
            if last is not None and last.step == event.step and event.time - last.time <= COPY_NS:
                self.copies += 1
                return True
        return False

    def _is_of_the_old_life(self, event: Event) -> bool:
        """A step before the new life's preparation has ended: the old process is still at work."""
        if event.kind is not Kind.STEP:
            return False
        if len(self.lives) > 1 and event.time < self.prepared_at:
            return True
        self.stepped = True
        self.last_step = event
        self.open.clear()
        return False
