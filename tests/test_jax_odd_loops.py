"""Loops as people write them: what is unusual about each changes no count."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from loops.registry import loss_of, updated, weights
from observing import Observation, observed

from goodput_plugins.jax.install import install_jax, install_optax

X = jnp.ones((4, 8))
TX = optax.adam(1e-2)
Numbers = list[int | None]
COUNTED: Numbers = [0, 1, 2, 3, 4]
CASES: dict[str, tuple[Callable[[], None], Numbers]] = {}


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed((jax, install_jax), (optax, install_optax)) as observation:
        yield observation


def case(numbers: Numbers = COUNTED) -> Callable[[Callable[[], None]], None]:
    def enter(train: Callable[[], None]) -> None:
        CASES[train.__name__] = train, numbers

    return enter


def step_of(tx: Any = TX) -> Callable[..., Any]:
    """A new function that takes a step."""
    return lambda params, state, x: updated(tx, params, state, x)


def begun() -> tuple[Any, Any]:
    params = weights()
    return params, TX.init(params)


def run(step: Callable[..., Any], times: int = 5) -> None:
    params, state = begun()
    for _ in range(times):
        params, state = step(params, state, X)[:2]


@case()
def jitted_in_a_class() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.params, self.state = begun()
            self._step = jax.jit(self._train)

        def _train(self, params: Any, state: Any, x: Any) -> Any:
            return updated(TX, params, state, x)

        def train(self, x: Any) -> Any:
            self.params, self.state, loss = self._step(self.params, self.state, x)
            return loss

    trainer = Trainer()
    for _ in range(5):
        trainer.train(X)


@case()
def a_decorator_made_by_partial() -> None:
    @partial(jax.jit, static_argnames=("train",), donate_argnums=(0, 1))
    def step(params: Any, state: Any, x: Any, train: bool = True) -> Any:
        return updated(TX, params, state, x)

    run(partial(step, train=True))


@case()
def jits_inside_jits() -> None:
    inner = jax.jit(step_of())
    run(jax.jit(lambda *args: jax.jit(lambda *again: inner(*again))(*args)))


@case()
def a_partial_of_a_lambda() -> None:
    run(jax.jit(partial(lambda unused, *args: updated(TX, *args), 3)))


@case()
def jitted_anew_each_time() -> None:
    step = step_of()
    run(lambda *args: jax.jit(step)(*args))


@case()
def a_new_function_each_time() -> None:
    run(lambda *args: jax.jit(step_of())(*args))


@case()
def cells_of_a_notebook() -> None:
    cells = {"jax": jax, "updated": updated, "tx": TX, "begun": begun, "x": X}
    exec("@jax.jit\ndef step(*args):\n    return updated(tx, *args)\nparams, state = begun()", cells)
    for _ in range(5):
        exec("params, state, loss = step(params, state, x)", cells)


@case()
def everything_donated() -> None:
    step = jax.jit(step_of(), donate_argnums=(0, 1))
    run(step)


@case()
def a_state_in_a_dict() -> None:
    @jax.jit
    def step(carry: Any, x: Any) -> Any:
        params, state, loss = updated(TX, carry["params"], carry["state"], x)
        return {"carry": {"params": params, "state": state}, "metrics": {"loss": loss}}

    params, state = begun()
    carry = {"params": params, "state": state}
    for _ in range(5):
        carry = step(carry, X)["carry"]


@case()
def on_a_thread() -> None:
    thread = threading.Thread(target=run, args=(jax.jit(step_of()),))
    thread.start()
    thread.join()


@case()
def with_jit_disabled() -> None:
    with jax.disable_jit():
        run(jax.jit(step_of()))


@case([None] * 5)  # a count for each member
def an_ensemble_by_vmap() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    params = jax.vmap(lambda key: {"w": jax.random.normal(key, (8, 1))})(keys)
    state = jax.vmap(TX.init)(params)
    step = jax.jit(jax.vmap(step_of(), in_axes=(0, 0, None)))
    for _ in range(5):
        params, state, _ = step(params, state, X)


@case()
def two_models_in_one_function() -> None:
    @jax.jit
    def step(first: Any, second: Any, x: Any) -> Any:
        return updated(TX, *first, x)[:2], updated(TX, *second, x)[:2]

    first = second = begun()
    for _ in range(5):
        first, second = step(first, second, X)


@case()
def an_update_that_may_be_skipped() -> None:
    def step(params: Any, state: Any, x: Any) -> Any:
        fine = jnp.isfinite(loss_of(params, x))
        return jax.lax.cond(fine, lambda kept: updated(TX, *kept, x)[:2], lambda kept: kept, (params, state))

    run(jax.jit(step))


@case()
def rematerialised_and_with_a_scan_in_the_model() -> None:
    def loss(params: Any, x: Any) -> Any:
        deep, _ = jax.lax.scan(lambda y, _: (jnp.tanh(y * params["w"].mean()), None), x, None, length=7)
        return loss_of(params, deep)

    def step(params: Any, state: Any, x: Any) -> Any:
        updates, state = TX.update(jax.grad(jax.checkpoint(loss))(params, x), state, params)
        return optax.apply_updates(params, updates), state

    run(jax.jit(step))


@case()
def gradients_added_up_by_a_scan() -> None:
    def step(params: Any, state: Any, x: Any) -> Any:
        def add(total: Any, x: Any) -> Any:
            return jax.tree.map(jnp.add, total, jax.grad(loss_of)(params, x)), None

        total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), jnp.stack([x] * 6))
        updates, state = TX.update(total, state, params)
        return optax.apply_updates(params, updates), state

    run(jax.jit(step))


@case([0, 1, 2])
def gradients_added_up_by_hand() -> None:
    gradients = jax.jit(jax.grad(lambda params, x: loss_of(params, x)))

    @jax.jit
    def update(params: Any, state: Any, grads: Any) -> Any:
        updates, state = TX.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params, state = begun()
    for _ in range(3):
        total = gradients(params, X)
        for _ in range(3):
            total = jax.tree.map(jnp.add, total, gradients(params, X))
        params, state = update(params, state, total)


@case([0, 1, 2, 2, 3, 4])  # the step that failed is taken again
def a_step_that_fails_and_is_taken_again() -> None:
    step = jax.jit(step_of())
    params, state = begun()
    for i in range(5):
        if i == 2:
            with pytest.raises(TypeError):
                step(params, state, "no array")
        params, state, _ = step(params, state, X)


@case()
def several_updates_of_one_part_in_each_round() -> None:
    generator_step, critic_step = jax.jit(step_of()), jax.jit(step_of())
    generator, critic = begun(), begun()
    for _ in range(5):
        generator = generator_step(*generator, X)[:2]
        for _ in range(3):
            critic = critic_step(*critic, X)[:2]


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_counted_twice_or_missed(seen: Observation, name: str) -> None:
    train, numbers = CASES[name]
    train()
    assert seen.steps == numbers
