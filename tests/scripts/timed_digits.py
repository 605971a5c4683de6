"""A copy of examples/digits.py that times itself, with sleeps planted where a real job loses time.

    python timed_digits.py WORKDIR TIMES

Every stretch that it times is a line of the file TIMES, ``[name, step, start, end]`` in ns since the
epoch, written through at once, so that a SIGKILL takes none. It knows nothing of goodput-plugins.
"""

import atexit
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORKDIR, TIMES = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
STEPS, SAVE_EVERY, EVAL_EVERY, BATCH = 100, 40, 25, 128
SLEEP_IN_PREPARATION, SLEEP_IN_DATA, SLEEP_IN_EVAL, SLEEP_IN_TEARDOWN = 0.8, 0.02, 0.3, 0.6


def note(name: str, start: int, end: int, step: int | None = None) -> None:
    os.write(TIMES, json.dumps([name, step, start, end]).encode() + b"\n")


@contextmanager
def timing(name: str, step: int | None = None) -> Iterator[None]:
    start = time.time_ns()
    yield
    note(name, start, time.time_ns(), step)


atexit.register(lambda: note("exit", time.time_ns(), time.time_ns()))  # registered first, so it runs last

with timing("imports"):
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import orbax.checkpoint as ocp
    import torch
    from flax.training.train_state import TrainState
    from sklearn.datasets import load_digits
    from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate


class Network(nn.Module):
    @nn.compact
    def __call__(self, images):
        x = nn.relu(nn.Conv(32, (3, 3))(images))
        x = nn.relu(nn.Conv(64, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), strides=(2, 2)).reshape(len(x), -1)
        return nn.Dense(10)(nn.relu(nn.Dense(128)(x)))


@jax.jit
def create_state(key):
    params = Network().init(key, jnp.zeros((1, 8, 8, 1)))["params"]
    return TrainState.create(apply_fn=Network().apply, params=params, tx=optax.adamw(3e-4))


@jax.jit
def train_step(state, images, labels):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


@jax.jit
def eval_step(state, images, labels):
    return (state.apply_fn({"params": state.params}, images).argmax(-1) == labels).sum()


def evaluate(state, images, labels, size=90):
    for i in range(0, len(labels), size):
        with timing("eval-call"):
            eval_step(state, images[i : i + size], labels[i : i + size]).block_until_ready()
        if i == 0:
            time.sleep(SLEEP_IN_EVAL)


def slow_collate(samples):
    time.sleep(SLEEP_IN_DATA)
    return default_collate(samples)


def batches(data, start):
    per_epoch = len(data) // BATCH
    for epoch in itertools.count(start // per_epoch):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
        rest = order[max(0, start - epoch * per_epoch) * BATCH :].tolist()
        yield from DataLoader(Subset(data, rest), BATCH, drop_last=True, collate_fn=slow_collate)


def prepare():
    """The data and the train state."""
    digits = load_digits()
    images, labels = (digits.images[..., None] / 16).astype(np.float32), digits.target.astype(np.int32)
    time.sleep(SLEEP_IN_PREPARATION)
    with timing("device-init"):
        jax.devices()
    for name in ("compile-and-run", "run"):
        with timing(name):
            state = jax.block_until_ready(create_state(jax.random.key(0)))
    return images, labels, state


def main():
    images, labels, state = prepare()
    data = TensorDataset(torch.from_numpy(images[360:]), torch.from_numpy(labels[360:]))
    options = ocp.CheckpointManagerOptions(save_interval_steps=SAVE_EVERY, save_on_steps=[STEPS - 1], max_to_keep=3)
    manager = ocp.CheckpointManager(WORKDIR.absolute(), options=options)
    start = 0
    if (latest := manager.latest_step()) is not None:
        with timing("restore", latest):
            state = manager.restore(latest, args=ocp.args.StandardRestore(state))
        start = latest + 1

    loader = batches(data, start)
    for step in range(start, STEPS):
        with timing("data", step):
            batch = [tensor.numpy() for tensor in next(loader)]
        with timing("step", step):
            state, loss = train_step(state, *batch)
            loss.block_until_ready()
        asked = time.time_ns()
        saved = manager.save(step, args=ocp.args.StandardSave(state))
        note("save" if saved else "no save", asked, time.time_ns(), step)
        if step % EVAL_EVERY == EVAL_EVERY - 1:
            with timing("eval", step):
                evaluate(state, images[:360], labels[:360])
        print(step, flush=True)

    note("loop-end", time.time_ns(), time.time_ns())
    with timing("save"):
        manager.wait_until_finished()
    manager.close()
    time.sleep(SLEEP_IN_TEARDOWN)


if __name__ == "__main__":
    main()
