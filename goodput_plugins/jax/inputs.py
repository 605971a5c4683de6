"""What a step call's inputs tell: the number of the step, and whether the call carries a state.

The number is read once per run, while the first step function is traced: before that call donates its
inputs, and without any JAX operation, which would become a part of the program being traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

NumberSource = Callable[[dict[int, Any]], "int | None"]
"""Takes a call's input leaves by ``id`` and returns the step number, if it knows one of them."""

NAMES = ("step", "count")
"""Names of leaves that hold a step number, best first: a train state's, optax's."""


def step_number(args: tuple[Any, ...], kwargs: dict[str, Any], sources: list[NumberSource]) -> int | None:
    """The number of the step that a call with these inputs takes; None if nothing says so."""
    try:
        leaves = jax.tree_util.tree_flatten_with_path((args, kwargs))[0]
    except (TypeError, ValueError):  # static arguments need not be trees
        return None
    by_id = {id(leaf): leaf for _, leaf in leaves}
    for source in sources:
        number = source(by_id)
        if number is not None:
            return number
    for name in NAMES:
        named = [(len(path), leaf) for path, leaf in leaves if name in map(_key_name, path)]
        for _, leaf in sorted(named, key=lambda item: item[0]):
            number = whole_number(leaf)
            if number is not None:
                return number
    return None


def whole_number(leaf: Any) -> int | None:
    """The value of an integer scalar, or of one that ``pmap`` replicated; None for anything else."""
    if type(leaf) is int:
        return leaf
    if getattr(getattr(leaf, "dtype", None), "kind", "") not in ("i", "u"):
        return None
    if isinstance(leaf, jax.Array):
        if leaf.is_deleted() or not (leaf.ndim == 0 or leaf.shape == (len(leaf.sharding.device_set),)):
            return None
        leaf = leaf.addressable_data(0)
    values = np.asarray(leaf)
    return int(values.reshape(-1)[0]) if values.size == 1 else None


def carries_state(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    """Whether the result, or one of its elements, has the structure of an input that is more than an array."""
    structure = jax.tree_util.tree_structure
    single = structure(0)
    try:
        elements = result if isinstance(result, tuple | list) else ()
        outputs = [structure(value) for value in (result, *elements)]
        inputs = [structure(value) for value in (*args, *kwargs.values())]
        return any(tree != single and tree.num_leaves > 0 and tree in outputs for tree in inputs)
    except (TypeError, ValueError):  # what a tree carries beside its leaves may refuse to be compared
        return False


def input_ids(args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    """The ``id`` of each input leaf."""
    try:
        return {id(leaf) for leaf in jax.tree_util.tree_leaves((args, kwargs))}
    except (TypeError, ValueError):  # static arguments need not be trees
        return set()


def _key_name(key: Any) -> str:
    return str(getattr(key, "name", getattr(key, "key", "")))
