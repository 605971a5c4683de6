"""Entries of a job's log, taken in as they come: those of Google's library and of Orbax's cloud logger."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from goodput_plugins.core.attribution.past import CONTEXT, Past, Unsettled
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import encode, event_of
from goodput_plugins.core.exports import entry_of
from goodput_plugins.core.foreign import Jobs, log_of
from goodput_plugins.core.live.beginning import Beginning
from goodput_plugins.core.runlog import Life, RunLog
from goodput_plugins.core.told import Times, Told

Key = tuple[Any, ...]

KNOWN_NS = 600_000_000_000
"""What was put aside is known again for so long: pages of a log overlap."""

AT_A_TIME = 10_000
"""So many entries are taken in at a time: as columns they need a tenth of the memory."""


class Entries:
    """A job's log as a source of :class:`~goodput_plugins.core.live.Live`.

    Args:
        job: its name.
        history: gives all entries of the log so far; asked at first, and where what is new changes what was
            put aside.
    """

    def __init__(self, job: str, history: Callable[[], Iterable[Any]]) -> None:
        self._job = job
        self._history = history
        self._new: list[Any] = []
        self._again = True
        self._told = Told()
        self._life: str | None = None
        self._start = 0
        self._dropped: dict[Key, int] = {}
        self._many = 0
        self._beginning: Beginning | None = None

    def add(self, entries: Iterable[Any]) -> None:
        """Take in new entries (or payloads), in any order; some may come twice."""
        self._new.extend(entries)

    def restart(self) -> None:
        """Forget what was told; the next poll asks for the history."""
        self._again = True
        self._told = Told()
        self._life = self._beginning = None
        self._dropped = {}

    def poll(self, past: Past | None) -> None:
        """Take in what was added since the last time."""
        jobs = Jobs()
        entries = iter(self._history() if self._again else self._new)
        while some := list(islice(entries, AT_A_TIME)):
            jobs.add(map(entry_of, some))
        self._new, self._again = [], False
        told = jobs.told(self._job)
        if past is not None:
            if told.ours or any(key not in self._dropped for key, _ in _keys(told, 0, past.called)):
                raise Unsettled
            told.leave_out([(0, past.called - 1)])
        self._told.join(told)
        if self._beginning is not None and not self._beginning.add(told):
            self._beginning = None

    def log(self) -> RunLog:
        """What was told."""
        log = self._beginning.log(self._job) if self._beginning is not None else None
        if log is None:
            self._beginning, log = None, log_of(self._job, self._told)
        return self._named(log)

    def _named(self, log: RunLog) -> RunLog:
        """A log in which an attempt that was begun before is called as it was then."""
        if not log.lives:
            raise UnusableData(f"the cloud_logger holds no entries of the job {self._job!r}.")
        if self._life is not None:
            for at, life in enumerate(log.lives):
                life.id = f"{self._life}+{at}" if at else self._life
            log.lives[0].start = self._start
        return log

    def settled(self, life: str) -> RunLog | None:
        """The same; None where a clock was set, or where our own entries are among them."""
        log = self._named(log_of(self._job, self._told))
        return log if self._is_sound else None

    def shorten(self, life: Life, at: int) -> None:
        """What came before a step of the only attempt needs not be gone through again."""
        if self._is_sound and life.id == (self._life or f"{self._job}-0"):
            told = self._told if self._beginning is None else self._beginning.told
            self._beginning = Beginning.of(self._job, told, life, at)

    @property
    def _is_sound(self) -> bool:
        """No clock was set, and none of our own entries are among them."""
        return self._told.clock_is_sound and not self._told.ours

    def keep(self, rest: RunLog, past: Past) -> None:
        """Forget all but the rest; know for a while what that was, should it be told again."""
        life = rest.lives[0]
        told, copies = self._told, self._told.copies + self._told.found
        since = past.called - KNOWN_NS
        if len(self._dropped) > self._many:
            self._dropped = {key: time for key, time in self._dropped.items() if time >= since}
            self._many = 2 * len(self._dropped)
        self._dropped.update(_keys(told, since, past.called))
        context = CONTEXT if past.steps else 0
        told.leave_context(past.called, life.steps.times[:context], life.steps.numbers[:context])
        self._life, self._start, self._beginning = past.life, life.start, None
        log_of(self._job, told)
        told.copies = copies - told.found

    def state(self) -> Any:
        """What a later process needs to go on, as JSON."""
        told = self._told
        return {
            "life": self._life,
            "start": self._start,
            "columns": [[c.times.tolist(), c.written.tolist()] for c in (told.steps, told.begins, told.ends)],
            "numbers": told.numbers.tolist(),
            "others": [[encode(event).decode(), written] for event, written in told.others.items()],
            "skipped": dict(told.skipped),
            "copies": told.copies,
        }

    def restore(self, state: Any) -> None:
        """Go on from there."""
        self._again = False
        steps, begins, ends = (Times(array("q", times), array("q", written)) for times, written in state["columns"])
        self._told = Told(steps, array("q", state["numbers"]), begins, ends, copies=state["copies"])
        self._told.others = {event_of(json.loads(line)): written for line, written in state["others"]}
        self._told.skipped.update(state["skipped"])
        self._life, self._start = state["life"], state["start"]
        self._told.follows = self._life is not None


def _keys(told: Told, low: int, high: int) -> Iterator[tuple[Key, int]]:
    """What was told of the time between two moments, and when that was."""
    for time, number in zip(told.steps.times, told.numbers, strict=True):
        if low <= time < high:
            yield ("step", time, number), time
    for kind, column in (("begin", told.begins), ("end", told.ends)):
        yield from (((kind, time), time) for time in column.times if low <= time < high)
    yield from ((tuple(event), event.time) for event in told.others if low <= event.time < high)
