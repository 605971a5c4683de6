"""When the work of a step was done, from the runtime's own record of what it executed.

The runtime counts the programs that it was handed, and notes of each when it had been executed, which it learns without
anybody waiting. The count at the marker of a step says which program was the step's; the note of that one says when it
was done. Notes are read now and then: that takes a lock of the runtime's statistics and asks nothing of the device. It
keeps the newest 1,024. Where counts and notes do not fit (somebody cleared them, or ran programs beside markers),
nothing is told from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.torch_xla.programs import COMPILED, Metrics, Sample

REUSED = "CachedCompile"
"""Counts programs that had been compiled before; with those that had not, these are all that were handed over."""
EXECUTED = ("ExecuteTime", "ExecuteReplicatedTime")
"""Metrics that a program is noted in when it has been executed: on one device, on all of them (SPMD)."""
LOOK_NS = 250_000_000
"""How often notes are read, at most."""


class Dispatched(NamedTuple):
    """The work of steps that was handed over with one marker.

    Attributes:
        ordinals: the steps.
        program: how many programs had been handed over by then.
        since: when the marker before it began, ns: its work was not done earlier.
    """

    ordinals: Sequence[int]
    program: int
    since: int


class Executions:
    """Tells ``recorder.device_done`` of steps.

    Args:
        metrics: the runtime's.
        recorder: where to.
    """

    def __init__(self, metrics: Metrics, recorder: NullRecorder) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._in_flight: deque[Dispatched] = deque()
        self._handed_over = 0
        self._marker = 0
        self._looked_at = 0
        self._fits = True

    def dispatched(self, ordinals: Sequence[int], marker: int) -> None:
        """The marker that began then has handed over the work of these steps."""
        programs = (self._metrics.counter(COMPILED) or 0) + (self._metrics.counter(REUSED) or 0)
        if programs < self._handed_over:  # somebody has cleared the counters
            self._in_flight.clear()
        self._handed_over = programs
        if self._fits:
            self._in_flight.append(Dispatched(ordinals, programs, self._marker))
        self._marker = marker
        if self._recorder.now() - self._looked_at > LOOK_NS:
            self.look()

    def look(self) -> None:
        """Tell of the steps whose programs have been executed."""
        self._looked_at = self._recorder.now()
        if not self._in_flight:
            return
        counts, notes = zip(*map(self._metrics.samples, EXECUTED), strict=True)
        executed = sum(counts)
        samples = sorted((sample for kind in notes for sample in kind), key=lambda sample: sample.end)
        self._fits = self._fits and executed <= self._handed_over
        while self._fits and self._in_flight and self._in_flight[0].program <= executed:
            self._tell(self._in_flight.popleft(), samples, executed)
        if not self._fits:
            self._in_flight.clear()

    def _tell(self, work: Dispatched, samples: Sequence[Sample], executed: int) -> None:
        behind = executed - work.program
        if behind >= len(samples):  # its note is gone
            return
        done = samples[-1 - behind].end
        self._fits = done >= work.since
        for ordinal in work.ordinals if self._fits else ():
            self._recorder.device_done(ordinal, done)
