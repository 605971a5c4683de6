"""Trains five steps of a tiny model, then ends as its argument says.

python ending.py [completed | exception | SIGTERM | SIGKILL]
"""

import os
import signal
import sys

import jax
import jax.numpy as jnp
import optax

optimizer = optax.adam(0.1)  # its state counts the steps


@jax.jit
def train_step(params, state):
    gradients = jax.grad(lambda p: (p**2).sum())(params)
    updates, state = optimizer.update(gradients, state)
    return optax.apply_updates(params, updates), state


params = jnp.ones(8)
state = optimizer.init(params)
for _ in range(5):
    params, state = train_step(params, state)
print(params.sum(), "goodput_plugins" in sys.modules, flush=True)

match sys.argv[1]:
    case "exception":
        raise ValueError("the loss is not a number")
    case "SIGTERM" | "SIGKILL" as name:
        os.kill(os.getpid(), signal.Signals[name])
