"""Evaluations last from their first call to their last result; what only looks like one is told as a fact."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from loops.registry import ONES, named, updated, weights
from observing import Observation, observed

from goodput_plugins.core.events import Activity, Fact, Kind
from goodput_plugins.jax.functions import Function
from goodput_plugins.jax.install import install_jax, install_optax


def heavy(x: Any) -> Any:
    """Tens of milliseconds on the host's processors."""
    return jax.lax.fori_loop(0, 20, lambda i, y: jnp.tanh(y @ x), x).sum()


LARGE = jnp.ones((500, 500)) / 500


class Trainer:
    """A loop that can be stopped between steps."""

    def __init__(self) -> None:
        tx, self.params = optax.adam(1e-2), weights()
        self.state = tx.init(self.params)
        self._step = jax.jit(named("train_step", lambda *args: updated(tx, *args)))

    def step(self) -> None:
        self.params, self.state, loss = self._step(self.params, self.state, ONES)
        loss.block_until_ready()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Observation]:
    for name, value in getattr(request, "param", {}).items():
        monkeypatch.setenv(name, value)
    with observed((jax, install_jax), (optax, install_optax)) as observation:
        yield observation


def modes(**variables: str) -> Any:
    return pytest.mark.parametrize("seen", [variables], indirect=True, ids=["-".join(variables.values())])


def test_an_evaluation_lasts_from_its_first_call_to_its_last_result(seen: Observation) -> None:
    trainer, eval_step = Trainer(), jax.jit(named("eval_step", heavy))
    trainer.step()
    begun = time.perf_counter()
    eval_step(LARGE).block_until_ready()
    time.sleep(0.2)
    eval_step(LARGE).block_until_ready()
    measured = time.perf_counter() - begun
    time.sleep(0.3)
    trainer.step()
    seen.hooks.uninstall()
    assert measured <= 0.02 + seen.seconds(Activity.CUSTOM, "EVAL")
    assert seen.seconds(Activity.CUSTOM, "EVAL") < measured + 0.15


def test_an_evaluation_that_runs_on_when_the_next_step_is_called_ends_when_its_result_is_ready(
    seen: Observation,
) -> None:
    trainer, eval_step = Trainer(), jax.jit(named("eval_step", heavy))
    trainer.step()
    eval_step(LARGE).block_until_ready()
    trainer.step()
    result = None
    for _ in range(5):
        result = eval_step(LARGE)
    trainer.params, trainer.state, _ = trainer._step(trainer.params, trainer.state, ONES)
    assert result is not None
    result.block_until_ready()
    ready = seen.hooks.recorder.now()
    time.sleep(0.1)
    _, last = seen.stretches(Activity.CUSTOM, "EVAL")[-1]
    assert abs(last.time - ready) < 0.05 * 1e9


@modes(GOODPUT_DEVICE_TIME="off")
def test_without_device_time_it_ends_with_the_next_steps_call(seen: Observation) -> None:
    trainer, eval_step = Trainer(), jax.jit(named("eval_step", heavy))
    trainer.step()
    eval_step(LARGE)
    time.sleep(0.1)
    trainer.step()
    (stretch,) = seen.stretches(Activity.CUSTOM, "EVAL")
    assert stretch[1].time <= seen.of(Kind.STEP)[1].time + 10_000_000
    assert seen.seconds(Activity.CUSTOM, "EVAL") > 0.1


def test_the_last_evaluation_ends_with_the_run(seen: Observation) -> None:
    trainer, eval_step = Trainer(), jax.jit(named("eval_step", heavy))
    trainer.step()
    eval_step(LARGE).block_until_ready()
    seen.hooks.uninstall()
    assert len(seen.stretches(Activity.CUSTOM, "EVAL")) == 1


def test_a_call_before_the_first_step_is_no_evaluation(seen: Observation) -> None:
    eval_step = jax.jit(named("eval_step", heavy))
    eval_step(LARGE)
    Trainer().step()
    assert seen.of(Kind.BEGIN, Activity.CUSTOM) == []


def other_work(seen: Observation) -> list[str]:
    trainer, helper = Trainer(), jax.jit(named("score_step", heavy))
    helper(LARGE).block_until_ready()
    trainer.step()
    helper(LARGE)
    trainer.step()
    time.sleep(0.2)
    seen.hooks.uninstall()
    return [str(event.data) for event in seen.of(Kind.FACT, name=Fact.OTHER_WORK)]


def test_other_work_between_steps_is_told_with_its_time(seen: Observation) -> None:
    assert other_work(seen) == ["score_step"]
    (fact,) = seen.of(Kind.FACT, name=Fact.OTHER_WORK)
    assert fact.duration is not None
    assert fact.duration > 1_000_000
    assert seen.of(Kind.BEGIN, Activity.CUSTOM) == []


@modes(GOODPUT_EVAL="auto")
def test_with_auto_other_work_is_an_evaluation(seen: Observation) -> None:
    assert other_work(seen) == []
    assert len(seen.stretches(Activity.CUSTOM, "EVAL")) == 1


@modes(GOODPUT_EVAL="off")
def test_with_off_nothing_is(seen: Observation) -> None:
    trainer, eval_step = Trainer(), jax.jit(named("eval_step", heavy))
    trainer.step()
    eval_step(LARGE)
    assert other_work(seen) == []
    assert seen.of(Kind.BEGIN, Activity.CUSTOM) == []


@pytest.mark.parametrize(
    ("name", "evaluates"),
    [
        ("eval_step", True),
        ("Trainer.validate", True),
        ("main.<locals>.test_step", True),
        ("Evaluator.step", True),
        ("run_eval", True),
        ("test_something.<locals>.train_step", False),
        ("latest", False),
        ("invalidate", False),
        ("train_step", False),
    ],
)
def test_a_name_says_whether_a_function_evaluates(name: str, evaluates: bool) -> None:
    assert Function(name, jitted=True).evaluates is evaluates
