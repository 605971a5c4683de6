"""A recorder with a journal, for the tests of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import SCHEMA, Event
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.reading import read, read_journal
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Steps
from goodput_plugins.testing import FakeClock

START = FakeClock().now
MS = 1_000_000


class Recording:
    """A recorder that writes a journal, and what is read from it."""

    def __init__(self, path: Path, clock: Callable[[], int] | None = None, **limits: Any) -> None:
        self.clock = FakeClock()
        header = {"schema": SCHEMA, "run": "r", "attempt": path.stem, "start": START}
        self.journal = Journal(path, header, **limits)
        self.recorder = Recorder(self.journal.write, clock or self.clock)
        self.recorder.write_to(self.journal)
        self.recorder.plugin("test", "1", ())

    def pass_ms(self, ms: float) -> None:
        self.clock.advance(ms / 1e3)

    def end(self) -> None:
        self.recorder.flush()
        self.journal.write(b'["end",%d,0,null,null,"completed"]\n' % self.clock())
        self.journal.close()

    @property
    def events(self) -> list[Event]:
        read = read_journal(self.journal.path, self.journal.path.read_bytes())
        assert read.torn == 0
        return read.events

    @property
    def steps(self) -> Steps:
        steps = Steps()
        for event in self.events:
            steps.add(event)
        return steps

    def report(self) -> Report:
        (log,) = read(self.journal.paths[0])
        return calculate(log, now=self.clock() + 10**12)
