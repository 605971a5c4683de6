"""Loops over Flax: linen's train state, nnx's optimizer."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import jax_utils, linen, nnx
from flax.training.train_state import TrainState
from loops.registry import BATCHES, ONES, SMALLER, batches, loop, named


def linen_state(tx: Any) -> TrainState:
    net = linen.Dense(1)
    params = net.init(jax.random.key(0), jnp.ones((4, 8)))["params"]
    return TrainState.create(apply_fn=net.apply, params=params, tx=tx)


def linen_step(state: Any, x: Any) -> Any:
    loss, grads = jax.value_and_grad(lambda params: (state.apply_fn({"params": params}, x) ** 2).mean())(state.params)
    return state.apply_gradients(grads=grads), loss


def linen_evaluation(state: Any, x: Any) -> Any:
    return (state.apply_fn({"params": state.params}, x) ** 2).mean()


@loop()
def linen_train_state() -> Any:
    train_step = jax.jit(named("train_step", linen_step))
    eval_step = jax.jit(named("eval_step", linen_evaluation))
    state = linen_state(optax.adam(1e-2))
    for x, evaluations in batches():
        state, _ = train_step(state, x)
        for _ in range(evaluations):
            eval_step(state, ONES)
    return state.params


@loop()
def linen_train_state_donated() -> Any:
    train_step = jax.jit(named("train_step", linen_step), donate_argnums=0)
    eval_step = jax.jit(named("eval_step", linen_evaluation))
    state = linen_state(optax.adam(1e-2))
    for x, evaluations in batches():
        state, _ = train_step(state, x)
        for _ in range(evaluations):
            eval_step(state, ONES)
    return state.params


@loop(numbers=range(100, 100 + BATCHES))
def linen_train_state_resumed() -> Any:
    train_step = jax.jit(named("train_step", linen_step))
    validate = jax.jit(named("Trainer.validate", linen_evaluation))
    state = linen_state(optax.sgd(1e-2)).replace(step=jnp.array(100))
    for x, evaluations in batches():
        state, _ = train_step(state, x)
        for _ in range(evaluations):
            validate(state, ONES)
    return state.params


@loop(compiled_in=(0, 1, SMALLER))  # again for what the first step gave back, which is laid out otherwise
def pmap() -> Any:
    train_step = jax.pmap(named("train_step", linen_step), axis_name="batch")
    test_step = jax.pmap(named("test_step", linen_evaluation))
    state = jax_utils.replicate(linen_state(optax.adam(1e-2)))
    devices = jax.local_device_count()
    for x, evaluations in batches():
        state, _ = train_step(state, jnp.stack([x] * devices))
        for _ in range(evaluations):
            test_step(state, jnp.stack([ONES] * devices))
    return state.params


@loop(numbers=range(0, 3 * BATCHES, 3))
def scan_of_three_steps_a_call() -> Any:
    @partial(jax.jit, donate_argnums=0)
    def train_step(state: Any, xs: Any) -> Any:
        return jax.lax.scan(linen_step, state, xs)

    eval_step = jax.jit(named("eval_step", linen_evaluation))
    state = linen_state(optax.adam(1e-2))
    for x, evaluations in batches():
        state, _ = train_step(state, jnp.stack([x, x * 2, x * 3]))
        for _ in range(evaluations):
            eval_step(state, ONES)
    return state.params


@loop(numbers=range(0, 3 * BATCHES, 3))
def fori_loop_of_three_steps_a_call() -> Any:
    eval_step = jax.jit(named("eval_step", linen_evaluation))

    @jax.jit
    def train_step(state: Any, x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, state: linen_step(state, x)[0], state)

    state = linen_state(optax.adam(1e-2))
    for x, evaluations in batches():
        state = train_step(state, x)
        for _ in range(evaluations):
            eval_step(state, ONES)
    return state.params


@loop(numbers=range(BATCHES // 4), compiled_in=(0, 1))
def multi_steps_of_four_calls() -> Any:
    train_step = jax.jit(named("train_step", linen_step))
    eval_step = jax.jit(named("eval_step", linen_evaluation))
    state = linen_state(optax.MultiSteps(optax.adam(1e-2), 4))
    for x, evaluations in batches():
        state, _ = train_step(state, x)
        for _ in range(evaluations):
            eval_step(state, ONES)
    return state.params


def nnx_loss(model: Any, x: Any) -> Any:
    return (model(x) ** 2).mean()


def nnx_pair() -> tuple[Any, Any]:
    model = nnx.Linear(8, 1, rngs=nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)


def nnx_trained(model: Any, optimizer: Any) -> Any:
    @nnx.jit
    def train_step(model: Any, optimizer: Any, x: Any) -> Any:
        loss, grads = nnx.value_and_grad(nnx_loss)(model, x)
        optimizer.update(model, grads)
        return loss

    eval_step = nnx.jit(named("eval_step", nnx_loss))
    for x, evaluations in batches():
        train_step(model, optimizer, x)
        for _ in range(evaluations):
            eval_step(model, ONES)
    return nnx.state(model)


@loop()
def nnx_jit() -> Any:
    return nnx_trained(*nnx_pair())


@loop(numbers=range(30, 30 + BATCHES))
def nnx_optimizer_that_was_merged() -> Any:
    model, optimizer = nnx_pair()
    optimizer.step[...] = jnp.uint32(30)
    definition, state = nnx.split((model, optimizer))
    del model, optimizer
    return nnx_trained(*nnx.merge(definition, state))


@loop(numbers=range(30, 30 + BATCHES))
def nnx_split_and_merged_in_each_step() -> Any:
    model, optimizer = nnx_pair()
    optimizer.step[...] = jnp.uint32(30)
    definition, state = nnx.split((model, optimizer))

    @jax.jit
    def train_step(state: Any, x: Any) -> Any:
        model, optimizer = nnx.merge(definition, state)
        loss, grads = nnx.value_and_grad(nnx_loss)(model, x)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    @jax.jit
    def eval_step(state: Any, x: Any) -> Any:
        return nnx_loss(nnx.merge(definition, state)[0], x)

    for x, evaluations in batches():
        state, _ = train_step(state, x)
        for _ in range(evaluations):
            eval_step(state, ONES)
    return state


@loop()
def two_functions_that_take_turns() -> Any:
    discriminator_step = jax.jit(named("train_step", linen_step))
    generator_step = jax.jit(named("generator_step", linen_step))
    eval_step = jax.jit(named("eval_step", linen_evaluation))
    discriminator, generator = linen_state(optax.adam(1e-2)), linen_state(optax.sgd(1e-2))
    for x, evaluations in batches():
        discriminator, _ = discriminator_step(discriminator, x)
        generator, _ = generator_step(generator, x)
        for _ in range(evaluations):
            eval_step(generator, ONES)
    return discriminator.params, generator.params


@loop(compiled_in=(0,))
def two_functions_after_each_other() -> Any:
    warmup_step = jax.jit(named("train_step", linen_step))
    train_step = jax.jit(named("full_step", linen_step))
    eval_step = jax.jit(named("eval_step", linen_evaluation))
    state = linen_state(optax.adam(1e-2))
    for i, (x, evaluations) in enumerate(batches()):
        state, _ = (warmup_step if i < 5 else train_step)(state, x)
        for _ in range(evaluations):
            eval_step(state, ONES)
    return state.params
