"""Train a small convolutional network on the handwritten digits that scikit-learn ships.

    python examples/digits.py --workdir /tmp/digits

Interrupt it whenever you like: the same command goes on from the newest checkpoint.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import torch
from flax.training.train_state import TrainState
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Subset, TensorDataset


class Network(nn.Module):
    """Two convolutions and a hidden layer."""

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = nn.relu(nn.Conv(16, (3, 3))(images))
        x = nn.relu(nn.Conv(32, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), strides=(2, 2)).reshape(len(x), -1)
        return nn.Dense(10)(nn.relu(nn.Dense(128)(x)))


@partial(jax.jit, static_argnames="learning_rate")
def create_state(key: jax.Array, learning_rate: float) -> TrainState:
    network = Network()
    params = network.init(key, jnp.zeros((1, 8, 8, 1)))["params"]
    return TrainState.create(apply_fn=network.apply, params=params, tx=optax.adamw(learning_rate))


@jax.jit
def train_step(state: TrainState, images: jax.Array, labels: jax.Array) -> tuple[TrainState, jax.Array]:
    def loss_of(params: optax.Params) -> jax.Array:
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


@jax.jit
def eval_step(state: TrainState, images: jax.Array, labels: jax.Array) -> jax.Array:
    return (state.apply_fn({"params": state.params}, images).argmax(-1) == labels).sum()


def accuracy(state: TrainState, images: np.ndarray, labels: np.ndarray, size: int = 90) -> float:
    """The share of images that the network reads right."""
    starts = range(0, len(labels), size)
    return sum(int(eval_step(state, images[i : i + size], labels[i : i + size])) for i in starts) / len(labels)


def batches(data: TensorDataset, size: int, start: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches without end from step ``start`` on, shuffled by epoch: a resumed run sees what it would have seen."""
    per_epoch = len(data) // size
    for epoch in itertools.count(start // per_epoch):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
        done = max(0, start - epoch * per_epoch) * size
        for images, labels in DataLoader(Subset(data, order[done:].tolist()), size, drop_last=True):
            yield images.numpy(), labels.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a network that reads handwritten digits.")
    parser.add_argument("--workdir", type=Path, default=Path("digits"), help="where checkpoints go")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--eval-every", type=int, default=100, help="steps between evaluations")
    parser.add_argument("--log-every", type=int, default=50, help="steps between lines of progress")
    args = parser.parse_args()

    digits = load_digits()
    images, labels = (digits.images[..., None] / 16).astype(np.float32), digits.target.astype(np.int32)
    train = TensorDataset(torch.from_numpy(images[360:]), torch.from_numpy(labels[360:]))
    test = images[:360], labels[:360]

    state = create_state(jax.random.key(0), args.learning_rate)

    options = ocp.CheckpointManagerOptions(
        save_interval_steps=args.save_every, save_on_steps=[args.steps - 1], max_to_keep=3
    )
    with ocp.CheckpointManager(args.workdir.absolute(), options=options) as manager:
        start = 0
        if (latest := manager.latest_step()) is not None:
            state = manager.restore(latest, args=ocp.args.StandardRestore(state))
            start = latest + 1
            print(f"resumed from the checkpoint of step {latest}")

        began = time.perf_counter()
        steps = range(start, args.steps)
        for step, batch in zip(steps, batches(train, args.batch_size, start), strict=False):
            state, loss = train_step(state, *batch)
            manager.save(step, args=ocp.args.StandardSave(state))
            if step % args.log_every == 0:
                print(f"step {step:4}   loss {loss:.4f}   {time.perf_counter() - began:5.1f} s")
            if step % args.eval_every == args.eval_every - 1:
                print(f"step {step:4}   accuracy {accuracy(state, *test):.1%}")

    print(f"done: {args.steps} steps, accuracy {accuracy(state, *test):.1%}")


if __name__ == "__main__":
    main()
