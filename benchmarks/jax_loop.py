"""What the switch costs a JAX loop: host time added to each step of 1 ms, and whether that is within the bound.

    python benchmarks/jax_loop.py [--rounds 40] [--steps 100]

Processes run the same loop, one with ``GOODPUT_PLUGINS=auto`` and one without (:mod:`turns`). A third shows the least
that a hook could do: its step function is wrapped by one that reads the clock twice, stores ten bytes and keeps the
result. Exit code 1 above the bound.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

from turns import Worker, compare

BOUND_US = 15.0
WORKER = """
import sys, time
import jax, jax.numpy as jnp, optax
tx = optax.adam(1e-3)
def loss_of(params, x):
    for _ in range({depth}):
        x = jnp.tanh(x @ params["w"])
    return (x ** 2).mean()
@jax.jit
def train_step(params, state, x):
    loss, grads = jax.value_and_grad(loss_of)(params, x)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss
params, x = {{"w": jnp.eye(96), "b": jnp.zeros(3)}}, jnp.ones((96, 96)) / 96
state = tx.init(params)
def block(steps):
    global params, state
    wall, processor = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        params, state, loss = train_step(params, state, x)
        loss.block_until_ready()
    return (time.perf_counter() - wall) / steps, (time.thread_time() - processor) / steps
{wrapped}
block(200)
print("ready", flush=True)
for line in sys.stdin:
    print(*block(int(line)), flush=True)
"""

LEAST = """
import itertools, mmap
def least(jitted, kept, mapping, now=time.perf_counter_ns):
    places = itertools.cycle(range(0, 4000, 10))
    def hooked(*args, **kwargs):
        at = next(places)
        mapping[at:at + 10] = b"%10d" % (now() % 10_000_000_000)
        result = jitted(*args, **kwargs)
        kept[:] = [result[2]]
        now()
        return result
    return hooked
train_step = least(train_step, [], mmap.mmap(-1, 4096))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=100, help="in each turn")
    parser.add_argument("--depth", type=int, default=8, help="how much a step computes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        variables = {"JAX_PLATFORMS": "cpu", "GOODPUT_DIR": folder}
        script, wrapped = (WORKER.format(depth=options.depth, wrapped=text) for text in ("", LEAST))
        measured = Worker(script, GOODPUT_PLUGINS="auto", **variables)
        workers = Worker(script, **variables), measured, Worker(wrapped, **variables)
        return compare(*workers, options.rounds, options.steps, BOUND_US)


if __name__ == "__main__":
    sys.exit(main())
