"""Tracing, lowering, compiling and cache loads are told as long as they last, on the thread that does them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from observing import Observation, armed, observed

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.jax.install import install_jax


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed((jax, install_jax)) as observation:
        yield observation


def deep(x: Any) -> Any:
    for i in range(150):
        x = jnp.tanh(x @ x + i)
    return x


def close_to(measured: float, told: float) -> bool:
    return abs(measured - told) <= max(0.02 * measured, 0.1)


def test_each_stage_lasts_as_long_as_the_script_measures(seen: Observation) -> None:
    x, took = jnp.ones((64, 64)), {}
    begun = time.perf_counter()
    traced = jax.jit(deep).trace(x)
    took["deep", Activity.TRACE] = time.perf_counter() - begun
    begun = time.perf_counter()
    lowered = traced.lower()
    took["jit(deep)", Activity.LOWER] = time.perf_counter() - begun
    begun = time.perf_counter()
    lowered.compile()
    took["jit(deep)", Activity.COMPILE] = time.perf_counter() - begun
    for (name, activity), measured in took.items():
        assert close_to(measured, seen.seconds(activity, name)), (activity, measured)
    assert took["jit(deep)", Activity.COMPILE] > 0.2


def test_a_trace_that_fails_is_closed(seen: Observation) -> None:
    def refuses(x: Any) -> Any:
        raise ValueError("the host's own error")

    with pytest.raises(ValueError, match="the host's own error"):
        jax.jit(refuses)(1.0)
    assert len(seen.stretches(Activity.TRACE, "refuses")) == 1


def test_a_program_compiled_by_another_thread_is_told_on_that_thread(seen: Observation) -> None:
    jitted = jax.jit(lambda x: x * 3 + 1)
    thread = threading.Thread(target=lambda: jitted.lower(jnp.ones(2)).compile())
    thread.start()
    thread.join()
    compile_begins = seen.of(Kind.BEGIN, Activity.COMPILE, "jit(<lambda>)")
    assert [event.thread != 0 for event in compile_begins] == [True]


def test_listeners_that_the_host_clears_do_not_break_the_end(seen: Observation) -> None:
    jax.monitoring.clear_event_listeners()
    seen.hooks.uninstall()


def test_a_program_from_the_persistent_cache_is_a_cache_load(tmp_path: Path) -> None:
    done = armed(
        f"""
import jax.numpy as jnp, json
jax.config.update("jax_compilation_cache_dir", {str(tmp_path)!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
def program(x):
    for i in range(50):
        x = jnp.tanh(x @ x + i)
    return x
program = jax.jit(program)
x = jnp.ones((32, 32))
program(x)
first = len(seen.of(Kind.SPAN, Activity.CACHE_LOAD, "jit(program)"))
jax.clear_caches()
program(x)
(load,) = seen.of(Kind.SPAN, Activity.CACHE_LOAD, "jit(program)")
begin, end = seen.stretches(Activity.COMPILE, "jit(program)")[-1]
inside = begin.time <= load.time and load.time + load.duration <= end.time
missed = [event.data for event in seen.of(Kind.FACT, name="cache-miss")]
saved = [event.duration > 0 for event in seen.of(Kind.FACT, name="cache-saved") if event.data == "jit(program)"]
print(json.dumps([first, load.duration > 0, inside, missed.count("jit(program)"), saved]))
"""
    )
    assert json.loads(done.stdout) == [0, True, True, 1, [True]], done.stderr
