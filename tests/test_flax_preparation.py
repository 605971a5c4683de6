"""Building a model, a train state or an optimizer is preparation: outermost only, with its name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import flax.linen
import flax.nnx
import flax.training.train_state
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState
from observing import Observation, observed

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.flax.install import install_linen, install_nnx, install_train_state
from goodput_plugins.jax.install import install_jax

X = jnp.ones((1, 8))


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(
        (jax, install_jax),
        (flax.linen, install_linen),
        (flax.training.train_state, install_train_state),
        (flax.nnx, install_nnx),
    ) as observation:
        yield observation


class Slow(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x: Any) -> Any:
        time.sleep(0.2)
        return flax.linen.Dense(2)(x)


class Nested(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        time.sleep(0.2)
        self.inner = nnx.Linear(8, 2, rngs=rngs)


def prepared(seen: Observation) -> list[str | None]:
    return [event.name for event in seen.of(Kind.BEGIN, Activity.PREPARATION)]


def test_linen_initialization_lasts_as_long_as_it_took(seen: Observation) -> None:
    key = jax.random.key(0)
    begun = time.perf_counter()
    Slow().init(key, X)
    measured = time.perf_counter() - begun
    assert prepared(seen) == ["Slow.init"]
    assert abs(seen.seconds(Activity.PREPARATION) - measured) < 0.1
    assert measured > 0.2


def test_a_train_state_is_prepared_under_its_own_class_name(seen: Observation) -> None:
    class MyState(TrainState):  # type: ignore[misc]
        extra: Any = None

    model = Slow()
    state = MyState.create(apply_fn=model.apply, params={"w": X}, tx=optax.adam(1e-3), extra=3)
    assert type(state) is MyState
    assert state.extra == 3
    assert prepared(seen) == ["MyState.create"]


def test_an_nnx_module_and_its_optimizer_are_prepared_once_each(seen: Observation) -> None:
    model = Nested(nnx.Rngs(0))
    nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    assert prepared(seen) == ["Nested", "Optimizer"]
    assert seen.seconds(Activity.PREPARATION, "Nested") >= 0.2


def test_a_jitted_initialization_is_one_stretch_under_the_functions_name(seen: Observation) -> None:
    @jax.jit
    def make(key: Any) -> Any:
        model = Slow()
        return TrainState.create(apply_fn=model.apply, params=model.init(key, X)["params"], tx=optax.adam(1e-3))

    make(jax.random.key(0))
    make(jax.random.key(1))
    assert prepared(seen) == [make.__qualname__]
    (first,) = seen.of(Kind.SPAN, Activity.PREPARATION)
    trace = seen.of(Kind.BEGIN, Activity.TRACE, "make")[0]
    assert first.name == make.__qualname__
    assert first.duration is not None
    assert first.time < trace.time < first.time + first.duration


def test_an_initialization_that_fails_is_closed(seen: Observation) -> None:
    with pytest.raises(TypeError):
        Slow().init(jax.random.key(0))
    assert len(seen.stretches(Activity.PREPARATION)) == 1
    assert seen.steps == []
