"""A loop that goes on as before takes the short way, and what it counts stays what the long way counts."""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from observing import Observation, observed
from stepping import step_that_works, the_loop

from goodput_plugins.core.events import Kind
from goodput_plugins.core.patching import WRAPPER
from goodput_plugins.jax.functions import thread
from goodput_plugins.jax.install import install_jax, install_optax
from goodput_plugins.jax.jitted import Jitted
from goodput_plugins.jax.loop import Loop
from goodput_plugins.jax.pace import STEPS_PER_PROBE, Pace
from goodput_plugins.jax.steady import Steady

MS = 1_000_000


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed((jax, install_jax), (optax, install_optax)) as observation:
        yield observation


def step_function() -> Any:
    def step(params: Any, x: Any) -> Any:
        return optax.apply_updates(params, jax.tree.map(lambda p: 1e-6 * p, params)), (x * params["w"].sum()).sum()

    return jax.jit(step)


def test_a_loop_becomes_steady_and_counts_on(seen: Observation) -> None:
    step, params, x = step_function(), {"w": jnp.ones(3)}, jnp.ones(4)
    loop, ways = the_loop(seen.hooks), []
    for _ in range(12):
        params, _ = step(params, x)
        ways.append(loop.steady is not None)
    assert not ways[0] and all(ways[4:])
    assert seen.hooks.recorder.steps == 12
    assert len(seen.of(Kind.STEP)) == 12


def test_another_function_between_steps_ends_it(seen: Observation) -> None:
    step, params, x = step_function(), {"w": jnp.ones(3)}, jnp.ones(4)
    loop, between = the_loop(seen.hooks), jax.jit(lambda x: x * 2)
    for _ in range(6):
        params, _ = step(params, x)
    assert loop.steady is not None
    between(x)
    assert loop.steady is None
    for _ in range(6):
        params, _ = step(params, x)
    assert loop.steady is not None
    assert seen.hooks.recorder.steps == 12


def test_a_new_trace_an_annotation_and_an_error_are_seen(seen: Observation) -> None:
    step, params, x = step_function(), {"w": jnp.ones(3)}, jnp.ones(4)
    loop = the_loop(seen.hooks)

    def steadily(count: int) -> None:
        nonlocal params
        for _ in range(count):
            params, _ = step(params, x)
        assert loop.steady is not None

    steadily(6)
    params, _ = step(params, jnp.ones(5))  # traced anew
    steadily(4)
    with pytest.raises(TypeError):
        step(params, "no array")
    steadily(4)
    jax.make_jaxpr(step)(params, x)  # only traced
    jax.vmap(step, in_axes=(None, 0))(params, jnp.ones((2, 4)))
    steadily(4)
    assert seen.hooks.recorder.steps == 20  # with the call that failed, whose step is taken again
    with jax.profiler.StepTraceAnnotation("train", step_num=100):
        step(params, x)
    assert loop.steady is None
    assert seen.steps[-1] == 100


def test_a_step_on_another_thread_takes_the_long_way(seen: Observation) -> None:
    step, params, x = step_function(), {"w": jnp.ones(3)}, jnp.ones(4)
    for _ in range(6):
        params, _ = step(params, x)
    other = threading.Thread(target=step, args=(params, x))
    other.start()
    other.join()
    for _ in range(6):
        params, _ = step(params, x)
    assert seen.hooks.recorder.steps == 13


def test_arguments_and_results_are_not_kept(seen: Observation) -> None:
    import gc
    import weakref

    class Batch:
        pass

    step, params, x = step_function(), {"w": jnp.ones(3)}, jnp.ones(4)
    for _ in range(40):
        params, _ = step(params, x)
    loop = the_loop(seen.hooks)
    assert loop.steady is not None
    batch = jnp.ones(4)
    kept = weakref.ref(batch)
    params, loss = step(params, batch)
    jax.block_until_ready(loss)
    del batch
    gc.collect()
    assert kept() is None


def test_idle_time_between_short_steps_is_seen_although_the_thread_comes_by_seldom(seen: Observation) -> None:
    """The host waits for each step, then sleeps: the gap is no part of the step."""
    step, params, x = step_that_works(30), {"w": jnp.ones(3)}, jnp.ones((128, 128)) / 128
    busy: list[float] = []
    now = time.perf_counter
    for _ in range(150):
        begun = now()
        params, loss = step(params, x)
        loss.block_until_ready()
        busy.append(now() - begun)
        time.sleep(0.02)
    seen.hooks.uninstall()
    starts = [event.time for event in seen.of(Kind.STEP)]
    done = {event.step: event.time for event in seen.of(Kind.DEVICE)}
    known = [i for i in range(20, 149) if i in done]
    assert len(known) > 100
    seen_busy = sum(min(done[i], starts[i + 1]) - starts[i] for i in known) / 1e9
    assert seen_busy == pytest.approx(sum(busy[i] for i in known), abs=0.008 * len(known))


def test_the_pace_trusts_the_host_only_while_it_does_nothing_between_steps() -> None:
    pace, now = Pace(), 0
    for ordinal in range(128):
        pace.called(ordinal, now)
        pace.took(MS)
        pace.looked_at(ordinal, now, now + MS)
        now += MS + MS // 200
    assert pace.host_tells
    probes = [ordinal for ordinal in range(4096) if pace.is_probe(ordinal)]
    assert len(probes) == pytest.approx(4096 / STEPS_PER_PROBE, rel=0.1)
    for ordinal in range(128, 131):
        assert pace.host_tells  # one stall is no habit
        pace.looked_at(ordinal, now, now + MS)
        pace.called(ordinal + 1, now := now + 2 * MS)
    assert not pace.host_tells


def test_one_step_that_was_over_at_once_does_not_make_the_others_short() -> None:
    pace = Pace()
    for took in (11 * MS, 11 * MS, MS // 10, 11 * MS):
        pace.took(took)
    assert not pace.waits_together(1)


def test_short_steps_that_are_waited_for_together_end_evenly(seen: Observation) -> None:
    step, params, x = step_that_works(20), {"w": jnp.ones(3)}, jnp.ones((96, 96)) / 96
    params, loss = step(params, x)
    loss.block_until_ready()
    begun = seen.hooks.recorder.now()
    for _ in range(200):
        params, loss = step(params, x)
    loss.block_until_ready()
    mean = (seen.hooks.recorder.now() - begun) / 200
    time.sleep(0.1)
    seen.hooks.uninstall()
    done = {event.step: event.time for event in seen.of(Kind.DEVICE)}
    told = [done[ordinal] for ordinal in range(1, 201) if ordinal in done]
    assert len(told) > 150 and told == sorted(told)
    took = sorted(b - a for a, b in itertools.pairwise(told))
    assert took[len(took) // 2] == pytest.approx(mean, rel=0.5)


def test_long_steps_are_looked_at_each() -> None:
    pace, now = Pace(), 0
    for ordinal in range(128):
        pace.called(ordinal, now)
        pace.took(100 * MS)
        pace.looked_at(ordinal, now, now + 100 * MS)
        now += 100 * MS
    assert not pace.host_tells


@pytest.mark.parametrize("function", [Jitted.__call__, Steady.begins, Steady.ends, Loop.call, Loop._begins, Loop.ends])
def test_an_interrupt_at_any_line_of_a_hook_leaves_nothing_open(seen: Observation, function: Any) -> None:
    step, params, x = step_function(), {"w": jnp.ones(3)}, jnp.ones(4)
    for _ in range(6):
        params, _ = step(params, x)
    code, reached = function.__code__, 0
    source = linecache.getlines(code.co_filename.removesuffix(WRAPPER))
    lines = {line for _, _, line in code.co_lines() if line is not None and source[line - 1].strip() != "try:"}

    def interrupting(at: int) -> Any:
        def trace(frame: Any, event: str, arg: Any) -> Any:
            if frame.f_code is not code:
                return trace if event == "call" else None
            if event == "line" and frame.f_lineno == at:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        return trace

    for line in sorted(lines):
        if function.__qualname__.startswith("Loop"):
            the_loop(seen.hooks).steady = None
        sys.settrace(interrupting(line))
        try:
            params, _ = step(params, x)
        except KeyboardInterrupt:
            reached += 1
        finally:
            sys.settrace(None)
        assert not thread.frames, line
        before = seen.hooks.recorder.steps
        for _ in range(6):
            params, _ = step(params, x)
        assert seen.hooks.recorder.steps == before + 6, line
    assert reached > 2
    assert seen.hooks.guard.on


def test_a_result_of_another_order_is_learnt_anew(seen: Observation) -> None:
    @functools.partial(jax.jit, static_argnames="first")
    def step(params: Any, x: Any, first: bool = False) -> Any:
        new = optax.apply_updates(params, jax.tree.map(lambda p: 1e-6 * p, params))
        loss = (x * params["w"].sum()).sum()
        return (loss, new) if first else (new, loss)

    params, x = {"w": jnp.ones(3), "b": jnp.ones(2)}, jnp.ones(4)
    for _ in range(20):
        params, _ = step(params, x)
    for _ in range(20):
        _, params = step(params, x, first=True)
    seen.hooks.uninstall()
    done = {event.step for event in seen.of(Kind.DEVICE)}
    assert len([ordinal for ordinal in done if ordinal is not None and ordinal >= 30]) >= 5


def test_a_host_that_is_nearly_at_its_recursion_limit_does_not_switch_the_plugin_off() -> None:
    with observed((jax, install_jax), (optax, install_optax), errors_are_raised=False) as seen:
        step, params, x = step_function(), {"w": jnp.ones(3)}, jnp.ones(4)
        for _ in range(6):
            params, _ = step(params, x)

        def deep(left: int) -> None:
            if left:
                deep(left - 1)
            else:
                step(params, x)

        for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
            with contextlib.suppress(RecursionError):
                deep(depth)
        assert seen.hooks.guard.on
        before = seen.hooks.recorder.steps
        for _ in range(6):
            params, _ = step(params, x)
        assert seen.hooks.recorder.steps == before + 6


def test_a_host_that_waits_no_more_is_not_taken_to_wait(seen: Observation) -> None:
    """After many steps that the host waited for come some that are not done when the next is called."""
    step, params, x = step_that_works(60), {"w": jnp.ones(3)}, jnp.ones((256, 256)) / 256
    took: list[float] = []
    for _ in range(60):
        begun = time.perf_counter()
        params, loss = step(params, x)
        loss.block_until_ready()
        took.append(time.perf_counter() - begun)
    queued: list[float] = []
    for _ in range(8):
        params, loss = step(params, x)
        queued.append(time.perf_counter())
    loss.block_until_ready()
    ended = time.perf_counter()
    time.sleep(0.1)
    seen.hooks.uninstall()
    assert ended - queued[-1] > 4 * min(took)
    starts = [event.time for event in seen.of(Kind.STEP)]
    done = {event.step: event.time for event in seen.of(Kind.DEVICE)}
    last = max(ordinal for ordinal in done if ordinal is not None)
    assert last == 67
    assert (done[67] - starts[67]) / 1e9 == pytest.approx(ended - queued[-1], abs=0.03)
