"""What the switch costs a JAX loop: host time added to each step of 1 ms, and whether that is within the bound.

    python benchmarks/jax_loop.py [--rounds 40] [--steps 100]

Two processes run the same loop, one with ``GOODPUT_PLUGINS=auto`` and one without, in turns of a few steps
(off, on, on, off), so that whatever else the machine does meets both. A round gives one difference; their
mean and its 95 % upper bound are printed, for the time that the training thread needed a processor, and for
the time that passed. The first is judged (exit code 1 above the bound): the second has the machine's noise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from timing import upper_bound

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
block(200)
print("ready", flush=True)
for line in sys.stdin:
    print(*block(int(line)), flush=True)
"""


@dataclass
class Turn:
    """A step's time in one turn, in us."""

    wall: float
    processor: float


class Worker:
    """A process that runs the loop when it is told."""

    def __init__(self, folder: str, depth: int, **variables: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GOODPUT_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER.format(depth=depth)],
            env=environ | {"JAX_PLATFORMS": "cpu", "GOODPUT_DIR": folder} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def turn(self, steps: int) -> Turn:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        wall, processor = map(float, self._answer().split())
        return Turn(wall * 1e6, processor * 1e6)

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the loop's process has ended")
        return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=100, help="in each turn")
    parser.add_argument("--depth", type=int, default=8, help="how much a step computes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        off = Worker(folder, options.depth)
        on = Worker(folder, options.depth, GOODPUT_PLUGINS="auto")
        rounds = [[worker.turn(options.steps) for worker in (off, on, on, off)] for _ in range(options.rounds)]
        for worker in (off, on):
            worker.close()
    print(f"a step takes {statistics.median(turns[0].wall for turns in rounds) / 1e3:.2f} ms without the switch")
    bounds = {}
    for kind in ("processor", "wall"):
        figures = [[getattr(turn, kind) for turn in turns] for turns in rounds]
        differences = [(b + c - a - d) / 2 for a, b, c, d in figures]
        bounds[kind] = upper_bound(differences)
        without = statistics.median((a + d) / 2 for a, _, _, d in figures)
        mean, median = statistics.mean(differences), statistics.median(differences)
        print(f"{kind:>9}: {without:.0f} us a step without it; {mean:+.1f} us with it (median {median:+.1f}),", end=" ")
        print(f"95 % upper bound of the mean {bounds[kind]:+.1f} us")
    return int(bounds["processor"] > BOUND_US)


if __name__ == "__main__":
    sys.exit(main())
