"""What PyTorch/XLA's counters say of compiling and of the persistent cache, from a runtime that is played.

The CPU runtime cannot load what its cache holds, so what a hit looks like comes from the runtime's source.
"""

from __future__ import annotations

import time
from typing import Any

from goodput_plugins.core.clock import system_clock
from goodput_plugins.core.events import Activity, Fact, Kind
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.testing import MemorySink
from goodput_plugins.torch_xla.programs import OTHER, OUTSIDE, TRAINING, Metrics, Programs

TOOK = 1_000_000
LOAD, COMPILE = "PersistentCacheLoad", "CompileTime"


class Runtime:
    """What our code asks of ``torch_xla._XLAC``."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.samples: dict[str, list[tuple[float, float]]] = {}

    def counts(self, *names: str) -> None:
        for name in names:
            self.counters[name] = self.counters.get(name, 0) + 1

    def times(self, metric: str) -> None:
        time.sleep(2 * TOOK / 1e9)
        self.samples.setdefault(metric, []).append((time.time(), TOOK))

    def compiles(self) -> None:
        self.times(COMPILE)
        self.counts("UncachedCompile")

    def misses(self) -> None:
        self.counts("PersistentCacheMiss")
        self.compiles()

    def hits(self) -> None:
        self.times(LOAD)
        self.counts("PersistentCacheHit", "CachedCompile")

    def cannot_load(self) -> None:
        self.times(LOAD)
        self.counts("PersistentCacheDeserializeFailure")
        self.compiles()

    def _xla_counter_value(self, name: str) -> int | None:
        return self.counters.get(name)

    def _xla_metric_data(self, name: str) -> Any:
        samples = self.samples.get(name)
        return samples and (len(samples), sum(took for _, took in samples), samples[-1024:])


class Job:
    """A loop under which the runtime does what it is told."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        self.sink = MemorySink()
        recorder = Recorder(self.sink, system_clock())
        self.now = recorder.now
        self.programs = Programs(Metrics(self.runtime, recorder.now), recorder)

    def marker(self, *does: str, stepped: bool = True) -> None:
        began = self.now()
        for what in does:
            getattr(self.runtime, what)()
        self.programs.look(began, stepped=stepped)

    def spans(self, *activities: Activity) -> list[tuple[Activity | None, str | None]]:
        return [(e.activity, e.name) for e in self.sink.events if e.kind is Kind.SPAN and e.activity in activities]

    def facts(self) -> list[tuple[str | None, str | None, int | None]]:
        return [(e.name, e.data, e.step) for e in self.sink.events if e.kind is Kind.FACT]


LOADING_OR_COMPILING = (Activity.CACHE_LOAD, Activity.COMPILE)


def test_a_program_that_the_cache_had_is_loaded_and_not_compiled() -> None:
    job = Job()
    job.marker("hits")
    job.marker()
    job.marker("hits", stepped=False)
    assert job.spans(*LOADING_OR_COMPILING) == [(Activity.CACHE_LOAD, TRAINING), (Activity.CACHE_LOAD, OTHER)]
    assert job.facts() == [(Fact.CACHE_SAVED, TRAINING, 1), (Fact.CACHE_SAVED, OTHER, 1)]
    lowering, loading = (
        next(e for e in job.sink.events if e.activity is activity) for activity in (Activity.LOWER, Activity.CACHE_LOAD)
    )
    assert loading.duration == TOOK
    assert lowering.time + (lowering.duration or 0) == loading.time


def test_a_program_that_the_cache_lacked_is_compiled_and_said_to_be_lacking() -> None:
    job = Job()
    job.marker("misses")
    assert job.spans(*LOADING_OR_COMPILING) == [(Activity.COMPILE, TRAINING)]
    assert job.facts() == [(Fact.CACHE_MISS, TRAINING, 1)]


def test_a_program_that_cannot_be_loaded_counts_once_as_compiled() -> None:
    job = Job()
    job.marker("hits", "cannot_load")
    loads = [(Activity.CACHE_LOAD, TRAINING), (Activity.CACHE_LOAD, None)]
    assert job.spans(*LOADING_OR_COMPILING) == [*loads, (Activity.COMPILE, TRAINING)]
    assert job.facts() == [(Fact.CACHE_SAVED, TRAINING, 1), (Fact.CACHE_MISS, TRAINING, 1)]


def test_what_happened_before_the_marker_was_outside_of_it() -> None:
    job = Job()
    job.runtime.hits()
    job.runtime.compiles()
    job.marker()
    assert job.spans(*LOADING_OR_COMPILING) == [(Activity.CACHE_LOAD, OUTSIDE), (Activity.COMPILE, OUTSIDE)]
    assert not job.spans(Activity.LOWER)


def test_counters_that_the_script_clears_tell_nothing_twice() -> None:
    job = Job()
    job.marker("hits", "compiles")
    told = len(job.sink.events)
    job.runtime.counters.clear()
    job.runtime.samples.clear()
    job.marker()
    assert len(job.sink.events) == told
    job.marker("compiles")
    assert job.spans(Activity.COMPILE) == [(Activity.COMPILE, TRAINING)] * 2
