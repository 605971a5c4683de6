"""Every way of writing a training loop that is tested, with what is to be seen of it.

A loop takes its batches from :func:`batches`: twelve, of which the eighth is smaller, so that the step is
compiled again in mid-run. After the fourth and the tenth it evaluates, with two calls. It returns its
parameters, which have to be the same to the bit whether it is watched or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

BATCHES, SMALLER = 12, 7
EVALUATED_AFTER = (3, 9)
ONES = jnp.ones((4, 8))
"""What is evaluated."""


@dataclass(frozen=True)
class Loop:
    """A loop and what is to be seen of it.

    Attributes:
        numbers: of its steps.
        compiled_in: the step, counted from 0, of each compilation of the program.
        program: what the compiler calls the step's program.
        evaluations: how many.
    """

    train: Callable[[], Any]
    numbers: Sequence[int | None]
    compiled_in: Sequence[int]
    program: str
    evaluations: int


LOOPS: dict[str, Loop] = {}


def loop(
    *,
    numbers: Sequence[int | None] = tuple(range(BATCHES)),
    compiled_in: Sequence[int] = (0, SMALLER),
    program: str = "jit(train_step)",
    evaluations: int = 2,
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enter a function into the registry."""

    def enter(train: Callable[[], Any]) -> Callable[[], Any]:
        LOOPS[train.__name__] = Loop(train, numbers, compiled_in, program, evaluations)
        return train

    return enter


def batches() -> Iterator[tuple[Any, int]]:
    """The batches; and how often to call the evaluation when the loop is done with each."""
    for i in range(BATCHES):
        yield jax.random.normal(jax.random.key(i), (4 if i != SMALLER else 3, 8)), 2 if i in EVALUATED_AFTER else 0


def weights() -> dict[str, Any]:
    return {"w": jax.random.normal(jax.random.key(7), (8, 1))}


def loss_of(params: Any, x: Any) -> Any:
    return ((x @ params["w"]) ** 2).mean()


def updated(tx: Any, params: Any, state: Any, x: Any) -> Any:
    """Parameters, optimizer state and loss after one step of optax."""
    import optax

    loss, grads = jax.value_and_grad(loss_of)(params, x)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A new function of that name that does the same, so that it is traced anew."""

    def renamed(*args: Any) -> Any:
        return function(*args)

    renamed.__name__ = renamed.__qualname__ = name
    return renamed
