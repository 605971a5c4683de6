"""One jitted function that trains or evaluates, as a static argument tells it: each is counted as what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from loops.registry import loss_of, updated, weights
from observing import Observation, observed

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.jax.flags import MOST_VARIANTS, flags_of
from goodput_plugins.jax.functions import Function
from goodput_plugins.jax.install import install_jax, install_optax

X = jnp.ones((4, 8))
Mode = Enum("Mode", ["TRAIN", "EVAL"])
OPTIMIZERS = {"counts": optax.adam(1e-2), "counts nothing": optax.sgd(1e-2)}


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed((jax, install_jax), (optax, install_optax)) as observation:
        yield observation


def numbered(optimizer: str, count: int) -> list[int | None]:
    return list(range(count)) if optimizer == "counts" else [None] * count


def body(tx: Any) -> Callable[..., Any]:
    def step(params: Any, state: Any, x: Any, train: bool = True, log: bool = False) -> Any:
        if train:
            return updated(tx, params, state, x)
        return params, state, loss_of(params, x)

    return step


@pytest.mark.parametrize(
    ("optimizer", "settings", "by_name"),
    [
        ("counts", {"static_argnames": ("train", "log")}, True),
        ("counts", {"static_argnums": (3, 4)}, False),
        ("counts nothing", {"static_argnames": ("train", "log")}, False),
        ("counts nothing", {"static_argnums": (3, 4)}, True),
    ],
)
def test_a_call_that_is_told_not_to_train_is_an_evaluation(
    seen: Observation, optimizer: str, settings: dict[str, Any], by_name: bool
) -> None:
    tx, params = OPTIMIZERS[optimizer], weights()
    state, step = tx.init(params), jax.jit(body(tx), **settings)

    def called(train: bool) -> Any:
        return step(params, state, X, train=train) if by_name else step(params, state, X, train)

    for _ in range(3):
        for _ in range(5):
            params, state, _ = called(True)
        for _ in range(2):
            _, _, loss = called(False)
        jax.block_until_ready(loss)
    params, state, _ = called(True)
    assert seen.steps == numbered(optimizer, 16)
    seen.hooks.uninstall()
    assert len(seen.of(Kind.BEGIN, Activity.CUSTOM, "EVAL")) == 3


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_that_are_switched_otherwise_are_of_one_sequence(seen: Observation, optimizer: str) -> None:
    tx, params = OPTIMIZERS[optimizer], weights()
    state, step = tx.init(params), jax.jit(body(tx), static_argnames=("train", "log"))
    for at in range(12):
        params, state, _ = step(params, state, X, log=at % 5 == 0)
    assert seen.steps == numbered(optimizer, 12)


def test_an_evaluation_that_comes_first_and_one_compiled_ahead(seen: Observation) -> None:
    tx, params = OPTIMIZERS["counts nothing"], weights()
    state, step = tx.init(params), jax.jit(static_argnames="train")(body(tx))
    step(params, state, X, train=False)
    trains, evaluates = (step.lower(params, state, X, train=train).compile() for train in (True, False))
    for _ in range(4):
        params, state, _ = trains(params, state, X)
        evaluates(params, state, X)
    for _ in range(3):
        params, state, _ = step(params, state, X, train=True)
    assert len(seen.steps) == 7


def test_more_sizes_than_switches_are_one_function(seen: Observation) -> None:
    tx, params = OPTIMIZERS["counts nothing"], weights()
    state = tx.init(params)

    @partial(jax.jit, static_argnums=3)
    def step(params: Any, state: Any, x: Any, size: int) -> Any:
        return updated(tx, params, state, x[:1] * size)

    count = MOST_VARIANTS + 4
    for size in range(count):
        params, state, _ = step(params, state, X, size)
    assert len(seen.steps) == count


def test_a_function_that_is_jitted_twice_may_have_other_switches() -> None:
    function, host = Function("host", jitted=True), body(OPTIMIZERS["counts"])
    train, log = (flags_of(function, host, {"static_argnames": name}) for name in ("train", "log"))
    assert train is not None and log is not None
    trains, logs = train.set((), {"train": True}), log.set((), {"log": True})
    assert trains is not logs
    assert train.set((), {"train": True}) is trains


def test_what_is_no_switch_tells_nothing() -> None:
    def host(model: Any, x: Any, train: bool) -> None: ...

    function = Function("host", jitted=True)
    assert flags_of(function, host, {}) is None
    flags = flags_of(function, host, {"static_argnums": (0, 2)})
    assert flags is not None
    first = flags.set((object(), X, True), {})
    assert first is function
    assert flags.set(([], X), {"train": True}) is flags.set((print, X, True), {})  # no hash, and a function
    evaluates = flags.set(([], X, False), {})
    assert evaluates is not first and evaluates.evaluates and not first.evaluates
    assert flags_of(function, print, {"static_argnums": -1}) is not None  # a builtin has no signature


class Odd:
    """Its hash cannot be had."""

    def __hash__(self) -> int:
        raise RuntimeError("a fault of the host's")


def test_a_static_value_is_told_apart_as_jax_tells_it() -> None:
    flags = flags_of(Function("host", jitted=True), print, {"static_argnums": 0})
    assert flags is not None
    train, other = flags.set((("sgd", 1),), {}), flags.set((("sgd", 2),), {})
    assert train is not other and flags.set((("sgd", 1),), {}) is train
    assert flags.set((Odd(),), {}) is flags.set((None,), {})


class Model(eqx.Module):
    """Switched by a leaf that is no array."""

    weights: Any
    inference: bool = False


def by_tuple(step: Callable[..., Any]) -> Callable[..., Any]:
    jitted = jax.jit(lambda *args: step(*args[:-1], args[-1][1]), static_argnums=3)
    return lambda *args: jitted(*args[:-1], ("train", args[-1]))


def by_self(step: Callable[..., Any]) -> Callable[..., Any]:
    @dataclass(frozen=True)
    class Trainer:
        train: bool

        @partial(jax.jit, static_argnums=0)
        def call(self, *args: Any) -> Any:
            return step(*args, self.train)

    return lambda *args: Trainer(args[-1]).call(*args[:-1])


def by_filter_jit(step: Callable[..., Any]) -> Callable[..., Any]:
    return eqx.filter_jit(lambda *args: step(*args))


def by_inference_mode(step: Callable[..., Any]) -> Callable[..., Any]:
    jitted = eqx.filter_jit(lambda model, *args: step(model.weights, *args, not model.inference))
    return lambda params, *args: jitted(Model(params, not args[-1]), *args[:-1])


@pytest.mark.parametrize("switched", [by_tuple, by_self, by_filter_jit, by_inference_mode])
def test_other_static_values_switch_too(seen: Observation, switched: Callable[..., Any]) -> None:
    tx, params = OPTIMIZERS["counts nothing"], weights()
    state, step = tx.init(params), switched(body(tx))
    for _ in range(3):
        for _ in range(4):
            params, state, _ = step(params, state, X, True)
        for _ in range(2):
            step(params, state, X, False)[2].block_until_ready()
    assert len(seen.steps) == 12


@pytest.mark.parametrize("word", ["valid", "validation", "test", ("a", "test"), Mode.EVAL])
def test_a_word_may_say_so_too(word: Any) -> None:
    flags = flags_of(Function("host", jitted=True), print, {"static_argnums": 0})
    assert flags is not None
    assert not flags.set(("train",), {}).evaluates and not flags.set((Mode.TRAIN,), {}).evaluates
    assert flags.set((word,), {}).evaluates


def test_libraries_that_hand_static_arguments_on(seen: Observation) -> None:
    tx, params = OPTIMIZERS["counts nothing"], weights()
    state = tx.init(params)

    def whole(params: Any, state: Any, x: Any, train: bool) -> Any:
        return body(tx)(params, state, x, train)

    for step in (eqx.filter_jit(whole), nnx.jit(whole, static_argnums=3)):
        seen.hooks.recorder.steps = 0
        for _ in range(4):
            params, state, _ = step(params, state, X, True)
        assert seen.hooks.recorder.steps == 4


@pytest.mark.parametrize("entry", ["goodput_plugins.jax.flags.Flags.set", "goodput_plugins.jax.jitted.flags_of"])
def test_training_goes_on_when_the_switches_cannot_be_read(
    entry: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a fault of ours")

    def trained() -> list[float]:
        tx, params = OPTIMIZERS["counts"], weights()
        state, step = tx.init(params), jax.jit(body(tx), static_argnames="train")
        losses = []
        for at in range(6):
            params, state, loss = step(params, state, X, train=at % 3 != 2)
            losses.append(float(loss))
        return losses

    plain = trained()
    monkeypatch.setattr(entry, fails)
    with observed((jax, install_jax), (optax, install_optax), errors_are_raised=False) as seen:
        assert trained() == plain
        assert not seen.hooks.guard.on
    assert capsys.readouterr().err.count("failed and is off from here on") == 1
