"""Fakes and helpers for tests: ours, and those of people who build on us.

>>> sink, clock = MemorySink(), FakeClock()
>>> recorder = Recorder(sink, clock)
>>> recorder.step(0); clock.advance(seconds=2); recorder.step(1)
>>> [event.kind for event in sink.events]
[Kind.STEP, Kind.STEP]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from goodput_plugins.core import guard
from goodput_plugins.core.events import Event, decode


class FakeClock:
    """A clock that moves only when told; starts at ``now`` (ns since the epoch)."""

    def __init__(self, now: int = 1_780_000_000_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``."""
        self.now += round(seconds * 1e9)


class MemorySink:
    """Keeps the journal lines that a recorder writes."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def __call__(self, line: bytes) -> None:
        self.lines.append(line)

    @property
    def events(self) -> list[Event]:
        """The lines, decoded."""
        return [decode(line) for line in self.lines]


@contextmanager
def strict(on: bool = True) -> Iterator[None]:
    """Make an error that our guard would swallow re-raise, in this block."""
    before = guard.strict
    guard.strict = on
    try:
        yield
    finally:
        guard.strict = before
