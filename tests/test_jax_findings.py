"""What the JAX plugin tells becomes findings with functions, counts and seconds; evaluations own their time."""

from __future__ import annotations

from goodput_plugins.core.attribution import attribute
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Activity, Event, Fact, Kind
from goodput_plugins.core.report import Finding
from goodput_plugins.core.runlog import Life, RunLog

S = 1_000_000_000
T0 = 1_780_000_000 * S


def at(seconds: float) -> int:
    return T0 + round(seconds * S)


def log_of(*events: Event) -> RunLog:
    """Thirty steps of a second, the device done after 0.9 s each, and these events."""
    steps = [Event(Kind.STEP, at(10 + i), 0, i) for i in range(30)]
    done = [Event(Kind.DEVICE, at(10.9 + i), 0, i) for i in range(30)]
    end = Event(Kind.END, at(40), name="completed")
    return RunLog("run", [Life("a", T0, events=[*steps, *done, *events, end])])


def finding(log: RunLog, id: str) -> Finding | None:
    return next((found for found in calculate(log, now=at(50)).findings if found.id == id), None)


def fact(what: Fact, of: str, when: float, seconds: float | None = None, times: int | None = None) -> Event:
    duration = None if seconds is None else round(seconds * S)
    return Event(Kind.FACT, at(when), 0, times, name=what, data=of, duration=duration)


def compiled(name: str, when: float, seconds: float) -> Event:
    return Event(Kind.SPAN, at(when), 0, None, Activity.COMPILE, name, round(seconds * S))


def test_a_recompilation_names_each_function_with_its_count_and_seconds() -> None:
    first = [compiled("jit(train)", 10, 0.1), compiled("jit(eval)", 10.1, 0.1)]
    again = [compiled("jit(train)", 15.1, 0.5), compiled("jit(train)", 16.1, 0.5), compiled("jit(eval)", 17.1, 0.25)]
    found = finding(log_of(*first, *again), "recompiles")
    assert found is not None
    assert found.cost == 1.25 * S
    assert "jit(train) (2 x, 1.0 s, at steps 5, 6), jit(eval) (1 x, 0.2 s, at step 7)" in found.text


def test_the_program_cache_tells_what_it_had_saved_and_lacked() -> None:
    saved = [fact(Fact.CACHE_SAVED, "jit(train)", 10.1, 30), fact(Fact.CACHE_SAVED, "jit(eval)", 10.2, 4)]
    found = finding(log_of(*saved, fact(Fact.CACHE_MISS, "jit(new)", 10.3)), "program-cache")
    assert found is not None
    assert found.cost is None
    assert found.text == "The persistent cache had 2 programs, which saved 34.0 s of compiling; it lacked 1: jit(new)."
    assert finding(log_of(), "program-cache") is None


def test_other_work_looks_like_evaluation_unless_it_belongs_to_each_step() -> None:
    found = finding(log_of(*(fact(Fact.OTHER_WORK, "score", 15 + i, 0.6) for i in range(2))), "looks-like-evaluation")
    assert found is not None
    assert found.cost == 1.2 * S
    assert "score" in found.text
    assert "3.0 %" in found.text
    often = fact(Fact.OTHER_WORK, "schedule", 20, 12, times=20)
    assert finding(log_of(often), "looks-like-evaluation") is None
    assert finding(log_of(fact(Fact.OTHER_WORK, "score", 15, 0.1)), "looks-like-evaluation") is None


def test_an_evaluation_that_runs_into_the_next_call_owns_the_device_until_it_is_done() -> None:
    begin = Event(Kind.BEGIN, at(15.95), 0, None, Activity.CUSTOM, "EVAL")
    finish = Event(Kind.FINISH, at(16.5), 0, None, Activity.CUSTOM, "EVAL")
    (generation,) = attribute(log_of(begin, finish)).generations
    evaluated = [s.end - s.start for s in generation.segments() if s.bucket is Bucket.CUSTOM]
    assert sum(evaluated) == round(0.55 * S)
