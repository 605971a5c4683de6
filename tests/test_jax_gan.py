"""A GAN: two step functions that take turns are one sequence of steps, with figures for each function."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from running import Runner, reported

ROUNDS, DISCRIMINATOR, GENERATOR = 12, 0.04, 0.16
SCRIPT = f"""
import time
import jax, jax.numpy as jnp, numpy as np, optax

def slowly(x, seconds):  # so long is the device's work
    def wait(x):
        time.sleep(seconds)
        return x
    return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

def generate(generator, noise):
    return jnp.tanh(noise @ generator["w"])

def judge(discriminator, x):
    return jax.nn.sigmoid(x @ discriminator["w"])

tx = optax.adam(1e-3)

@jax.jit
def discriminator_step(discriminator, state, generator, real, noise):
    def loss_of(discriminator):
        fake = judge(discriminator, generate(generator, noise))
        return -(jnp.log(judge(discriminator, real) + 1e-6) + jnp.log(1 - fake + 1e-6)).mean()
    loss, grads = jax.value_and_grad(loss_of)(discriminator)
    updates, state = tx.update(grads, state)
    return optax.apply_updates(discriminator, updates), state, slowly(loss, {DISCRIMINATOR})

@jax.jit
def generator_step(generator, state, discriminator, noise):
    def loss_of(generator):
        return -jnp.log(judge(discriminator, generate(generator, noise)) + 1e-6).mean()
    loss, grads = jax.value_and_grad(loss_of)(generator)
    updates, state = tx.update(grads, state)
    return optax.apply_updates(generator, updates), state, slowly(loss, {GENERATOR})

key = jax.random.key(0)
discriminator, generator = {{"w": jax.random.normal(key, (4, 1))}}, {{"w": jax.random.normal(key, (8, 4))}}
of_discriminator, of_generator = tx.init(discriminator), tx.init(generator)
for i in range({ROUNDS}):
    noise, real = jax.random.normal(jax.random.fold_in(key, i), (16, 8)), jnp.ones((16, 4))
    discriminator, of_discriminator, lost = discriminator_step(discriminator, of_discriminator, generator, real, noise)
    generator, of_generator, loss = generator_step(generator, of_generator, discriminator, noise)
jax.block_until_ready((lost, loss))
"""


def trained(run: Runner, **variables: str) -> dict[str, Any]:
    run(SCRIPT, GOODPUT_PLUGINS="auto", GOODPUT_RUN_NAME="gan", JAX_PLATFORMS="cpu", **variables)
    return reported(run.runs / "gan")


def test_two_functions_that_take_turns_have_figures_each_and_one_sequence_of_steps(run: Runner) -> None:
    steps = trained(run)["steps"]
    assert (steps["count"], steps["last"]) == (ROUNDS, ROUNDS - 1)
    generator, discriminator = steps["functions"]  # the dearest first
    assert (generator["name"], generator["calls"]) == ("generator_step", ROUNDS)
    assert (discriminator["name"], discriminator["calls"]) == ("discriminator_step", ROUNDS)
    # The first call may be seen late, while the next function is traced.
    assert generator["device_seconds"] == pytest.approx(ROUNDS * GENERATOR, abs=0.4)
    assert discriminator["device_seconds"] == pytest.approx(ROUNDS * DISCRIMINATOR, abs=0.4)
    command = [sys.executable, "-m", "goodput_plugins", "report", str(run.runs / "gan")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"generator_step      {ROUNDS:>5}" in shown and f"discriminator_step  {ROUNDS:>5}" in shown


def test_where_the_device_is_not_watched_calls_are_counted_and_times_are_unknown(run: Runner) -> None:
    functions = trained(run, GOODPUT_DEVICE_TIME="off")["steps"]["functions"]
    assert sorted((f["name"], f["calls"], f["device_seconds"]) for f in functions) == [
        ("discriminator_step", ROUNDS, None),
        ("generator_step", ROUNDS, None),
    ]
