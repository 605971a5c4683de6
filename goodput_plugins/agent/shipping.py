"""The duty of sending a run's journals, as they grow, as log entries.

What cannot be sent now is read again from the journals when the network is back, so an outage costs no
more memory than a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from goodput_plugins.agent.position import Position, Positions
from goodput_plugins.agent.status import Status, log
from goodput_plugins.agent.tail import Tail
from goodput_plugins.core.compact import Stretch

INTERVAL = 4.8
"""Seconds between two looks at the journals."""
BATCH = 2 * 1024 * 1024
"""So much of the journals is sent at a time, bytes."""
TURN = 5.0
"""A backlog is sent for so long at a time, s: in between the agent listens to others."""


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


class Shipping:
    """Sends one run's journals to one log.

    Args:
        tail: of its journals.
        positions: how far each was sent.
        make_entries: of a stretch of a journal.
        writer: where they go.
        status: what counts them.
        clock: seconds, never stepping back.
    """

    interval = INTERVAL

    def __init__(
        self,
        tail: Tail,
        positions: Positions,
        make_entries: Callable[[Stretch], Iterable[Mapping[str, Any]]],
        writer: Writer,
        status: Status,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tail = tail
        self._positions = positions
        self._make_entries = make_entries
        self._writer = writer
        self._status = status
        self._clock = clock
        self._pending: Batch | None = None

    def __call__(self) -> bool:
        """Send what is new; whether there is more, for which there was no time."""
        begun = self._clock()
        self._send_pending()
        for batch in batches(self._tail.stretches(begun), self._make_entries):
            self._pending = batch
            self._send_pending()
            if self._clock() - begun > TURN:
                return True
        return False

    def unsent(self) -> int:
        return self._tail.unsent()

    def _send_pending(self) -> None:
        """Send the batch that is at hand, if there is one."""
        batch = self._pending
        if batch is None:
            return
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
