"""Step functions of JAX, and the loop that the hooks see."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from goodput_plugins.core.patching import Hooks
from goodput_plugins.jax.loop import Loop
from goodput_plugins.jax.sharing import loop_of


def the_loop(hooks: Hooks) -> Loop:
    return loop_of(hooks)


def step_that_works(times: int) -> Any:
    """One whose work on the device takes a while."""

    def step(params: Any, x: Any) -> Any:
        y = x
        for _ in range(times):
            y = jnp.tanh(y @ x)
        return optax.apply_updates(params, jax.tree.map(lambda p: 1e-6 * p, params)), y.sum()

    return jax.jit(step)
