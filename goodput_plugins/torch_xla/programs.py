"""Compiling and tracing, from the runtime's own counters.

A counter tells that something was compiled since the last look, and a metric when and for how long; so compilations
count wherever they happened: in a step marker, or where a value was read. What else such a marker does before it
compiles is lowering. The same for what was loaded from the persistent cache (``XLA_PERSISTENT_CACHE_PATH``); a program
that was found there but could not be loaded is compiled all the same. Tracing goes on in every step, as the script
runs; how long it took is told in sum, now and then.
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
LOADED = "PersistentCacheHit"
"""Counts programs that the persistent cache had."""
LACKED = ("PersistentCacheMiss", "PersistentCacheDeserializeFailure")
"""Count those that it had not, or of which it could make nothing."""
TIMED = {"CompileTime": Activity.COMPILE, "PersistentCacheLoad": Activity.CACHE_LOAD}
"""Metrics that hold from when to when a program was compiled, or loaded."""
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
        self._made = self._count(COMPILED), self._count(LOADED)
        self._lacked = sum(map(self._count, LACKED))
        self._samples = {name: metrics.count(name) for name in TIMED}
        self._traced = self._tracing()
        self._markers = 0
        self._told_at = recorder.now()

    def look(self, marker: int, *, stepped: bool) -> None:
        """A marker that began then has ended; it was ``stepped`` if it was the first after an optimizer's step."""
        self._markers += stepped
        made = self._count(COMPILED), self._count(LOADED)
        if made != self._made:
            loaded, self._made = made[1] - self._made[1], made
            self._tell_made(marker, TRAINING if stepped else OTHER, max(0, loaded))
        if self._recorder.now() - self._told_at > TELLING_NS:
            self.tell_traced()

    def tell_traced(self) -> None:
        """Tell how long tracing took since this was told last."""
        traced = self._tracing()
        if traced > self._traced and self._markers:
            self._recorder.fact(Fact.TRACING, of="XLA", duration=traced - self._traced, count=self._markers)
        self._traced, self._markers, self._told_at = traced, 0, self._recorder.now()

    def _count(self, counter: str) -> int:
        return self._metrics.counter(counter) or 0

    def _tracing(self) -> int:
        return max(0, self._metrics.total(TRACING) - self._metrics.total(READING))

    def _tell_made(self, marker: int, what: str, loaded: int) -> None:
        """Programs were compiled, and so many loaded from the cache, some of them maybe before this marker."""
        began, loads = marker, 0
        for sample, activity in self._new_samples():
            inside = sample.start >= marker
            name = what if inside else OUTSIDE
            if inside and sample.start > began:
                self._recorder.span(Activity.LOWER, began, sample.start - began, name=name)
            loads += activity is Activity.CACHE_LOAD
            of = None if activity is Activity.CACHE_LOAD and loads > loaded else name  # it is compiled after all
            self._recorder.span(activity, sample.start, sample.end - sample.start, name=of)
            began = max(marker, sample.end)
        self._tell_cache(what, loaded)

    def _new_samples(self) -> list[tuple[Sample, Activity]]:
        """What was compiled or loaded since this was asked last, oldest first."""
        found = []
        for name, activity in TIMED.items():
            count, samples = self._metrics.samples(name)
            new, self._samples[name] = count - self._samples[name], count
            found += [(sample, activity) for sample in samples[-new:] if new > 0]
        return sorted(found, key=lambda sampled: sampled[0].start)

    def _tell_cache(self, what: str, loaded: int) -> None:
        lacked, before = sum(map(self._count, LACKED)), self._lacked
        self._lacked = lacked
        if loaded:
            self._recorder.fact(Fact.CACHE_SAVED, of=what, count=loaded)
        if lacked > before:
            self._recorder.fact(Fact.CACHE_MISS, of=what, count=lacked - before)
