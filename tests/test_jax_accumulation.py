"""Steps of several calls: exact counts and numbers; what the host does while the device is idle in between is its own.

The device's work is a sleep of known length in each call, so that what the report says can be compared with what the
loop did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from loops.registry import loss_of, weights
from observing import Observation, observed, report_on

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Activity, Fact, Kind
from goodput_plugins.core.report import Breakdown
from goodput_plugins.jax.install import install_jax, install_optax

STEPS, PARTS = 6, 3
WORK, PAUSE = 0.06, 0.12
SIZE = 250
X = jnp.ones((4, 8))
TX = optax.adam(1e-3)


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed((jax, install_jax), (optax, install_optax)) as observation:
        yield observation


def slowly(x: Any, seconds: float = WORK) -> Any:
    """So long the device works."""

    def work(x: Any) -> Any:
        time.sleep(seconds)
        return x

    return jax.pure_callback(work, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def behind_the_host(x: Any) -> Any:
    """Some work on the device that no call waits for."""
    y = jnp.ones((SIZE, SIZE)) * (x / SIZE)
    for _ in range(4):
        y = jnp.tanh(y @ y.T)
    return x + 0 * y.sum()


def slow_gradients(params: Any, x: Any) -> Any:
    loss, grads = jax.value_and_grad(loss_of)(params, x)
    return slowly(loss), grads


def applied(params: Any, state: Any, grads: Any) -> Any:
    updates, state = TX.update(grads, state, params)
    return optax.apply_updates(params, updates), state


def added(total: Any, grads: Any) -> Any:
    return jax.tree.map(jnp.add, total, grads)


Between = Callable[[], None]


def sleeps() -> None:
    time.sleep(PAUSE)


class Timed:
    """What is done between two calls, and how long that took, by the script's own clock."""

    def __init__(self, between: Between) -> None:
        self._between = between
        self._stretches: list[tuple[int, int]] = []

    def __call__(self) -> None:
        start = time.time_ns()
        self._between()
        self._stretches.append((start, time.time_ns()))

    def took(self, since: int) -> int:
        """How long from that moment on, ns."""
        return sum(end - start for start, end in self._stretches if start >= since)


def parts_of_a_step(between: Between) -> Iterator[None]:
    for part in range(PARTS):
        if part:
            between()
        yield


def multi_steps(between: Between, wait: bool) -> None:
    tx = optax.MultiSteps(TX, PARTS)

    @jax.jit
    def micro_step(params: Any, state: Any, x: Any) -> Any:
        loss, grads = slow_gradients(params, x)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    params = weights()
    state = tx.init(params)
    for _ in range(STEPS):
        for _ in parts_of_a_step(between):
            params, state, loss = micro_step(params, state, X)
            if wait:
                loss.block_until_ready()
    jax.block_until_ready(params)


def by_hand(between: Between, wait: bool, steps: int = STEPS, begun: Any = None, validate: Any = None) -> Any:
    """Gradients by one function, added up by another, applied by a third."""
    gradients, add, update = jax.jit(lambda *args: slow_gradients(*args)), jax.jit(added), jax.jit(applied)
    params, state = begun or (weights(), TX.init(weights()))
    for _ in range(steps):
        total = None
        for _ in parts_of_a_step(between):
            loss, grads = gradients(params, X)
            total = grads if total is None else add(total, grads)
            if wait:
                jax.block_until_ready((loss, total))
        params, state = update(params, state, total)
        if validate is not None:
            validate(params)
    jax.block_until_ready(params)
    return params, state


def threaded_through(between: Between, wait: bool) -> None:
    """The sum of the gradients goes into the next call."""

    @jax.jit
    def gradients(params: Any, total: Any, x: Any) -> Any:
        loss, grads = slow_gradients(params, x)
        return added(total, grads), loss

    update = jax.jit(applied)
    params = weights()
    state = TX.init(params)
    for _ in range(STEPS):
        total = jax.tree.map(jnp.zeros_like, params)
        for _ in parts_of_a_step(between):
            total, loss = gradients(params, total, X)
            if wait:
                loss.block_until_ready()
        params, state = update(params, state, total)
    jax.block_until_ready(params)


def in_annotations(between: Between, wait: bool) -> None:
    """Each step is an annotation with several calls of a function that steps."""

    @jax.jit
    def micro_step(params: Any, state: Any, x: Any) -> Any:
        loss, grads = slow_gradients(params, x)
        return *applied(params, state, grads), loss

    params = weights()
    state = TX.init(params)
    for step in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            for _ in parts_of_a_step(between):
                params, state, loss = micro_step(params, state, X)
                if wait:
                    loss.block_until_ready()
    jax.block_until_ready(params)


LOOPS = [multi_steps, by_hand, threaded_through, in_annotations]


def of_stepping(seen: Observation) -> Breakdown:
    """Where the time went from the second step on: the first one compiles."""
    seen.hooks.uninstall()  # what the device's thread has not told yet is told
    second, end = seen.of(Kind.STEP)[1].time, max(event.time for event in seen.events)
    return report_on(seen, window=(second, end)).breakdown


def near(ns: float) -> Any:
    return pytest.approx(ns, abs=0.25e9)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_the_host_does_between_two_calls_of_a_step_is_not_the_steps(seen: Observation, loop: Any) -> None:
    between = Timed(sleeps)
    loop(between, True)
    assert seen.steps == list(range(STEPS))
    spent, slept = of_stepping(seen), between.took(seen.of(Kind.STEP)[1].time)
    assert slept > (STEPS - 1) * (PARTS - 1) * PAUSE * 1e9
    assert spent.detail(Bucket.OTHER)["HOST_GAP"] == near(slept)
    assert spent.goodput == near(spent.elapsed - slept)
    assert not [fact for fact in seen.of(Kind.FACT) if fact.name == Fact.OTHER_WORK]


@pytest.mark.parametrize("loop", LOOPS)
def test_where_the_host_runs_ahead_all_of_a_step_is_the_steps(
    seen: Observation, loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "slowly", behind_the_host)
    loop(lambda: time.sleep(0.005), False)
    assert seen.steps == list(range(STEPS))
    spent = of_stepping(seen)
    assert spent.detail(Bucket.OTHER).get("HOST_GAP", 0) / 1e9 == pytest.approx(0, abs=0.05)
    worked = spent.goodput + spent[Bucket.PROGRAM_STARTUP]  # the first step may end behind the call of the second
    assert worked == near(spent.elapsed)


def test_a_wait_for_data_and_a_save_between_two_calls_keep_their_buckets(seen: Observation) -> None:
    recorder = seen.hooks.recorder
    waits, saves = Timed(sleeps), Timed(lambda: time.sleep(PAUSE / 2))

    def between() -> None:
        with recorder.activity(Activity.DATA):
            waits()
        with recorder.activity(Activity.SAVE):
            saves()

    by_hand(between, True)
    assert seen.steps == list(range(STEPS))
    spent, since = of_stepping(seen), seen.of(Kind.STEP)[1].time
    waited, saved = waits.took(since), saves.took(since)
    assert spent[Bucket.DATA_LOADING_SYNC] == near(waited)
    assert spent[Bucket.SAVE] == near(saved)
    assert spent.goodput == near(spent.elapsed - waited - saved)


def test_the_first_step_begins_with_its_first_gradient(seen: Observation) -> None:
    called: list[int] = []
    by_hand(lambda: called.append(seen.hooks.recorder.now()), True, steps=1)
    (step,) = seen.of(Kind.STEP)
    assert step.time < called[0] - WORK * 1e9


def test_evaluations_between_steps_are_none_of_them(seen: Observation) -> None:
    def evaluate(params: Any, x: Any) -> Any:
        return slowly(loss_of(params, x))

    jitted = jax.jit(evaluate)
    sensitivity = jax.jit(lambda params, x: slowly(jnp.square(jax.grad(loss_of, 1)(params, x)).sum()))
    rounds: list[int] = []

    def validate(params: Any) -> None:
        rounds.append(len(rounds))
        if rounds[-1] % 2 == 0:
            jitted(params, X).block_until_ready()
            sensitivity(params, X).block_until_ready()

    between = Timed(sleeps)
    by_hand(between, True, validate=validate)
    assert seen.steps == list(range(STEPS))
    evaluations = seen.stretches(Activity.CUSTOM, "EVAL")
    assert len(evaluations) == STEPS // 2
    for begin, end in evaluations[1:]:  # the first one compiles
        assert end.time - begin.time == near(WORK * 1e9)
    spent, slept = of_stepping(seen), between.took(seen.of(Kind.STEP)[1].time)
    assert spent.detail(Bucket.OTHER)["HOST_GAP"] > slept - 0.1e9  # and what "sensitivity" takes lies between steps
    evaluated = sum(end.time - begin.time for begin, end in evaluations[1:])
    assert spent[Bucket.CUSTOM] == near(evaluated)


def test_a_restart_goes_on_with_the_number_that_the_optimizer_counts() -> None:
    lives = []
    begun = None
    for steps in (4, 3):
        with observed((jax, install_jax), (optax, install_optax)) as seen:
            begun = by_hand(sleeps, True, steps=steps, begun=begun)
        lives.append(seen)
    assert [life.steps for life in lives] == [[0, 1, 2, 3], [4, 5, 6]]
    report = report_on(*lives)
    assert report.disruptions == 1 and report.breakdown[Bucket.WASTED_PROGRESS] == 0


def test_sgd_by_hand_beside_parameters_that_stay_is_counted_late_but_in_full(seen: Observation) -> None:
    @jax.jit
    def step(params: Any, target: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: loss_of(p, x) + loss_of(target, x))(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss

    params = target = weights()
    for _ in range(40):
        params, _ = step(params, target, X)
    assert len(seen.steps) == 40
