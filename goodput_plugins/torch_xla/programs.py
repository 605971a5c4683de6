"""Compiling and tracing, from the runtime's own counters.

A counter tells that something was compiled since the last look, and a metric when and for how long; so compilations
count wherever they happened: in a step marker, or where a value was read. What else such a marker does before it
compiles is lowering. Tracing goes on in every step, as the script runs; how long it took is told in sum, now and then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from goodput_plugins.core.events import Activity, Fact
from goodput_plugins.core.null_recorder import NullRecorder

TRAINING = "training graph"
"""What was compiled for an optimizer's step."""
OTHER = "other graph"
"""What was compiled in a marker without one."""
OUTSIDE = "graph outside step markers"
"""What was compiled because a value was needed."""
COMPILED = "UncachedCompile"
"""Counts compilations."""
TRACING, READING = "LazyTracing", "TransferFromDeviceTime"
"""Measure, in ns, how long operations took to trace, the reading of values included, and how long reading them took."""
TELLING_NS = 5_000_000_000
"""How often tracing is told of."""


class Sample:
    """What the runtime measured once: from when to when, ns on the recorder's clock."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class Metrics:
    """The runtime's counters and metrics.

    Args:
        extension: ``torch_xla._XLAC``.
        now: the recorder's clock.
    """

    def __init__(self, extension: Any, now: Callable[[], int]) -> None:
        self.counter: Callable[[str], int | None] = extension._xla_counter_value
        self._data: Callable[[str], Any] = extension._xla_metric_data
        self._now = now

    def count(self, name: str) -> int:
        """How many samples of a metric there were."""
        data = self._data(name)
        return int(data[0]) if data else 0

    def total(self, name: str) -> int:
        """The sum of a metric in its own unit; 0 while there is none."""
        data = self._data(name)
        return int(data[1]) if data else 0

    def samples(self, name: str) -> tuple[int, list[Sample]]:
        """How many samples there were, and the newest of them, oldest first; of a metric that holds durations."""
        data = self._data(name)
        if not data:
            return 0, []
        behind = time.time_ns() - self._now()
        ends = [(round(at * 1e9) - behind, round(took)) for at, took in data[2]]
        return int(data[0]), [Sample(end - took, end) for end, took in ends]


class Programs:
    """Tells what was compiled and how long tracing took."""

    def __init__(self, metrics: Metrics, recorder: NullRecorder) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._compiled = metrics.counter(COMPILED) or 0
        self._samples = metrics.count("CompileTime")
        self._traced = self._tracing()
        self._markers = 0
        self._told_at = recorder.now()

    def look(self, marker: int, *, stepped: bool) -> None:
        """A marker that began then has ended; it was ``stepped`` if it was the first after an optimizer's step."""
        self._markers += stepped
        compiled = self._metrics.counter(COMPILED) or 0
        if compiled != self._compiled:
            self._compiled = compiled
            self._tell_compiled(marker, TRAINING if stepped else OTHER)
        if self._recorder.now() - self._told_at > TELLING_NS:
            self.tell_traced()

    def tell_traced(self) -> None:
        """Tell how long tracing took since this was told last."""
        traced = self._tracing()
        if traced > self._traced and self._markers:
            self._recorder.fact(Fact.TRACING, of="XLA", duration=traced - self._traced, count=self._markers)
        self._traced, self._markers, self._told_at = traced, 0, self._recorder.now()

    def _tracing(self) -> int:
        return max(0, self._metrics.total(TRACING) - self._metrics.total(READING))

    def _tell_compiled(self, marker: int, what: str) -> None:
        count, samples = self._metrics.samples("CompileTime")
        new, self._samples = count - self._samples, count
        began = marker
        for sample in samples[-new:] if new > 0 else []:
            inside = sample.start >= marker
            name = what if inside else OUTSIDE
            if inside and sample.start > began:
                self._recorder.span(Activity.LOWER, began, sample.start - began, name=name)
            self._recorder.span(Activity.COMPILE, sample.start, sample.end - sample.start, name=name)
            began = sample.end
