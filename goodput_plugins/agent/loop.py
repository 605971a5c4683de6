"""The agent's round: see what is new in the journals, send it, remember how far that got.

It goes on while the run's trainer lives, then sends the rest and ends. What cannot be sent now is read
again from the journals when the network is back, so an outage costs no memory, and, with ever longer
pauses, hardly any work.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from goodput_plugins.agent.door import Door
from goodput_plugins.agent.position import Position, Positions
from goodput_plugins.agent.status import Status, log
from goodput_plugins.agent.tail import Tail
from goodput_plugins.core.compact import Stretch
from goodput_plugins.exporters.errors import Unreached

INTERVAL = 4.8
"""Seconds between two looks at the journals."""
BATCH = 2 * 1024 * 1024
"""So much of the journals is sent at a time, bytes."""
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the first further try, and before the next ones at most."""
ASKED = 0.5
"""Seconds between two tries while somebody waits for them."""
ASKED_FOR = 10.0
"""Nobody waits longer, s."""
SILENT = 15.0
"""A trainer of which nothing is seen for so long is over, s: its heart beats every 5 s."""
GIVE_UP = 3600.0
"""So long after the trainer's end what cannot be sent is left to the next agent, s."""
LEAVE = 20.0
"""So long after it was told to go the agent goes, though the trainer lives, s."""


@dataclass
class Batch:
    """What is sent at once.

    Attributes:
        entries: they.
        ends: how far each attempt's journal is sent with it.
        size: how many bytes of the journals it holds.
    """

    entries: list[Mapping[str, Any]] = field(default_factory=list)
    ends: dict[str, Position] = field(default_factory=dict)
    size: int = 0


class Writer(Protocol):
    """Where entries go; see :class:`goodput_plugins.exporters.cloud_logging.Writer`."""

    def write(self, entries: Sequence[Mapping[str, Any]]) -> int: ...


class Agent:
    """Sends one run's journals to one destination.

    Args:
        folder: the run's directory.
        tail: of its journals.
        positions: how far each was sent.
        make_entries: of a stretch of a journal.
        writer: where they go.
        door: where others ask for what.
        trainer_lives: whether a living process holds the run.
        stay: go on after the trainer's end, for the next one.
        idle: called when everything was sent, for what else there is to do.
    """

    def __init__(
        self,
        folder: Path,
        tail: Tail,
        positions: Positions,
        make_entries: Callable[[Stretch], Iterable[Mapping[str, Any]]],
        writer: Writer,
        door: Door,
        status: Status,
        *,
        trainer_lives: Callable[[], bool],
        stay: bool = False,
        idle: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._tail = tail
        self._positions = positions
        self._make_entries = make_entries
        self._writer = writer
        self._door = door
        self._status = status
        self._trainer_lives = trainer_lives
        self._stay = stay
        self._idle = idle
        self._clock = clock
        self._pending: Batch | None = None
        self._pause = INTERVAL
        self._failures = 0
        self._seen = -1
        self._alive_at = clock()
        self._asked_at = 0.0
        self._leave_at = float("inf")

    def leave(self) -> None:
        """Go when the trainer has gone, or soon."""
        self._leave_at = min(self._leave_at, self._clock() + LEAVE)
        self._door.wake()

    def run(self) -> None:
        """Go round until there is nothing left to do."""
        while True:
            all_sent = self.ship()
            if all_sent:
                self._door.answer(sent=True)
                self._idle()
            if self._is_over(all_sent):
                break
            self._wait()
        self._status.state = "done"
        self._status.unsent = self._tail.unsent()
        self._status.save(self._folder)
        left = f"; {self._status.unsent} bytes are left to the next agent" if self._status.unsent else ""
        log(f"done: {self._status.entries} entries were sent{left}.")

    def ship(self) -> bool:
        """Send what is new; whether that was everything."""
        sent = False
        try:
            sent = self._send_pending()
            for batch in batches(self._tail.stretches(self._clock()), self._make_entries):
                self._pending = batch
                sent = self._send_pending()
        except Unreached as error:
            self._failed(error)
            return False
        if sent or self._failures:
            self._worked()
        return True

    def _send_pending(self) -> bool:
        """Send the batch that is at hand; False if there is none."""
        batch = self._pending
        if batch is None:
            return False
        dropped = self._writer.write(batch.entries) if batch.entries else 0
        self._pending = None
        for attempt, position in batch.ends.items():
            self._positions[attempt] = position
        status = self._status
        status.entries += len(batch.entries) - dropped
        status.bytes += batch.size
        if dropped:
            status.dropped += dropped
            log(f"{dropped} entries were refused and are dropped ({status.dropped} so far).")
        try:
            self._positions.save()
        except OSError as error:
            log(f"the position cannot be written ({error}); after a restart some entries are sent again.")
        return True

    def _worked(self) -> None:
        if self._failures:
            log(f"sending again, after {self._failures} failed tries.")
        self._failures, self._pause = 0, INTERVAL
        self._status.state, self._status.error, self._status.unsent = "shipping", "", 0
        self._status.save(self._folder)

    def _failed(self, error: Unreached) -> None:
        text = str(error)
        if text != self._status.error:
            log(f"cannot send now: {text}; what is recorded stays on disk and is sent later.")
        longest = LONGEST_PAUSE if error.slow else min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** min(self._failures, 10))
        if error.slow:
            self._door.answer(sent=False)
        self._pause = longest * random.uniform(0.5, 1.0)
        self._failures += 1
        self._status.state, self._status.error, self._status.unsent = "failing", text, self._tail.unsent()
        self._status.save(self._folder)

    def _wait(self) -> None:
        waiting = bool(self._door.waiting)
        if waiting and self._clock() - self._asked_at > ASKED_FOR:
            self._door.waiting.clear()
            waiting = False
        leaving = self._leave_at < float("inf") or waiting
        self._door.wait(min(self._pause, ASKED) if leaving else self._pause)
        if self._door.waiting and not waiting:
            self._asked_at = self._clock()

    def _is_over(self, all_sent: bool) -> bool:
        """Whether there is nothing left to do, or no time for it."""
        now, grown = self._clock(), self._status.bytes + self._tail.unsent()
        if grown != self._seen or self._trainer_lives():
            self._seen, self._alive_at = grown, now
        if now >= self._leave_at:
            return True
        silent = now - self._alive_at
        if self._stay and self._leave_at == float("inf"):
            return False
        return silent >= SILENT if all_sent else silent >= GIVE_UP


def batches(
    stretches: Iterable[tuple[Stretch, Position]], make_entries: Callable[[Stretch], Iterable[Mapping[str, Any]]]
) -> Iterator[Batch]:
    """The entries of stretches, in batches of a size to be sent at once."""
    batch = Batch()
    for stretch, position in stretches:
        batch.entries.extend(make_entries(stretch))
        batch.ends[stretch.attempt] = position
        batch.size += len(stretch.data)
        if batch.size >= BATCH:
            yield batch
            batch = Batch()
    if batch.size:
        yield batch
