"""Loops over optax alone, over Equinox's way of jitting, and over nothing but JAX."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import optax
from loops.registry import BATCHES, ONES, SMALLER, batches, loop, loss_of, named, updated, weights

NOTHING_TELLS = (None,) * BATCHES


@loop()
def optax_and_jit() -> Any:
    tx, params = optax.adam(1e-2), weights()
    train_step = jax.jit(named("train_step", lambda *args: updated(tx, *args)))
    eval_step = jax.jit(named("eval_step", loss_of))
    state = tx.init(params)
    for x, evaluations in batches():
        params, state, _ = train_step(params, state, x)
        for _ in range(evaluations):
            eval_step(params, ONES)
    return params


@loop()
def pjit() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from jax.experimental.pjit import pjit as pjitted
    tx, params = optax.adam(1e-2), weights()
    train_step = pjitted(named("train_step", lambda *args: updated(tx, *args)))
    eval_step = pjitted(named("eval_step", loss_of))
    state = tx.init(params)
    for x, evaluations in batches():
        params, state, _ = train_step(params, state, x)
        for _ in range(evaluations):
            eval_step(params, ONES)
    return params


@loop(compiled_in=(0, 1, SMALLER))  # again for what the first step gave back, which is laid out otherwise
def shard_map() -> Any:
    tx, params = optax.adam(1e-2), weights()
    replicated, sharded = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("batch")
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("batch",))

    def local_step(params: Any, state: Any, x: Any) -> Any:
        grads = jax.lax.pmean(jax.grad(loss_of)(params, x), "batch")
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    stepped = jax.shard_map(
        local_step, mesh=mesh, in_specs=(replicated, replicated, sharded), out_specs=replicated, check_vma=False
    )
    train_step = jax.jit(named("train_step", stepped), donate_argnums=(0, 1))
    eval_step = jax.jit(named("eval_step", loss_of))
    state = tx.init(params)
    for x, evaluations in batches():
        params, state = train_step(params, state, x)
        for _ in range(evaluations):
            eval_step(params, ONES)
    return params


@loop(compiled_in=(-1, -1))
def compiled_ahead_of_time() -> Any:
    tx, params = optax.adam(1e-2), weights()
    state = tx.init(params)
    train_step = jax.jit(named("train_step", lambda *args: updated(tx, *args)), donate_argnums=(0, 1))
    eval_step = jax.jit(named("eval_step", loss_of))
    programs = {rows: train_step.lower(params, state, jnp.ones((rows, 8))).compile() for rows in (4, 3)}
    for x, evaluations in batches():
        params, state, _ = programs[len(x)](params, state, x)
        for _ in range(evaluations):
            eval_step(params, ONES)
    return params


@loop()
def split_gradients_and_update() -> Any:
    tx, params = optax.adam(1e-2), weights()
    gradients = jax.jit(named("train_step", jax.grad(loss_of)))
    eval_step = jax.jit(named("eval_step", loss_of))
    state = tx.init(params)

    @jax.jit
    def update(grads: Any, state: Any, params: Any) -> Any:
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for x, evaluations in batches():
        params, state = update(gradients(params, x), state, params)
        for _ in range(evaluations):
            eval_step(params, ONES)
    return params


@loop(numbers=NOTHING_TELLS, program="no program", compiled_in=())
def eager() -> Any:
    tx, params = optax.adam(1e-2), weights()
    state = tx.init(params)
    eval_step = jax.jit(named("eval_step", loss_of))
    for x, evaluations in batches():
        updates, state = tx.update(jax.grad(loss_of)(params, x), state, params)
        params = optax.apply_updates(params, updates)
        for _ in range(evaluations):
            eval_step(params, ONES)
    return params


@loop(numbers=NOTHING_TELLS)
def hand_written_sgd() -> Any:
    @jax.jit
    def train_step(params: Any, x: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss

    eval_step = jax.jit(named("eval_step", loss_of))
    params = weights()
    for x, evaluations in batches():
        params, _ = train_step(params, x)
        for _ in range(evaluations):
            eval_step(params, ONES)
    return params


@loop(numbers=NOTHING_TELLS)
def hand_written_sgd_on_one_array() -> Any:
    @jax.jit
    def train_step(w: Any, x: Any) -> Any:
        return w - 0.1 * jax.grad(lambda w: ((x @ w) ** 2).mean())(w)

    eval_step = jax.jit(named("eval_step", lambda w, x: (x @ w).mean()))
    w = weights()["w"]
    for x, evaluations in batches():
        w = train_step(w, x)
        for _ in range(evaluations):
            eval_step(w, ONES)
    return w


@loop(numbers=range(500, 500 + BATCHES))
def step_trace_annotation() -> Any:
    tx, params = optax.adam(1e-2), weights()
    train_step = jax.jit(named("train_step", lambda *args: updated(tx, *args)))
    eval_step = jax.jit(named("eval_step", loss_of))
    state = tx.init(params)
    for i, (x, evaluations) in enumerate(batches()):
        with jax.profiler.StepTraceAnnotation("train", step_num=500 + i):
            params, state, _ = train_step(params, state, x)
        for _ in range(evaluations):
            eval_step(params, ONES)
    return params


@loop()
def equinox() -> Any:
    import equinox as eqx

    tx, model = optax.adam(1e-2), eqx.nn.Linear(8, 1, key=jax.random.key(0))

    def loss(model: Any, x: Any) -> Any:
        return (jax.vmap(model)(x) ** 2).mean()

    @eqx.filter_jit
    def train_step(model: Any, state: Any, x: Any) -> Any:
        value, grads = eqx.filter_value_and_grad(loss)(model, x)
        updates, state = tx.update(grads, state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), state, value

    eval_step = eqx.filter_jit(named("eval_step", loss))
    state = tx.init(eqx.filter(model, eqx.is_array))
    for x, evaluations in batches():
        model, state, _ = train_step(model, state, x)
        for _ in range(evaluations):
            eval_step(model, ONES)
    return eqx.filter(model, eqx.is_array)
