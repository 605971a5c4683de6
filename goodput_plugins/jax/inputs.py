"""What a step call's inputs tell: the number of the step, and whether the call carries a state.

The number is read once per run, while the first step function is traced: before that call donates its
inputs, and without any JAX operation, which would become a part of the program being traced.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import jax
import numpy as np


class Counter(NamedTuple):
    """What a call's inputs count.

    Attributes:
        value: how many updates were made before it.
        in_steps: ``value`` counts whole steps even where several calls make one (``optax.MultiSteps``).
        micro_step: then, how many calls the step that is open has had.
    """

    value: int
    in_steps: bool = False
    micro_step: int = 0


NumberSource = Callable[[dict[int, Any]], "int | None"]
"""Takes a call's input leaves by ``id`` and returns the step number, if it knows one of them."""

MOST_WATCHED = 16
"""So many arrays of a state are enough to recognize it."""

NAMES = ("step", "count")
"""Names of leaves that hold a step number, best first: a train state's, optax's."""


def counter_among(args: tuple[Any, ...], kwargs: dict[str, Any], sources: list[NumberSource]) -> Counter | None:
    """What counts the steps among these inputs; None if nothing does."""
    try:
        leaves = jax.tree_util.tree_flatten_with_path((args, kwargs))[0]
    except (TypeError, ValueError):  # static arguments need not be trees
        return None
    steps, micro_step = _named(leaves, "gradient_step"), _named(leaves, "mini_step")
    if steps is not None and micro_step is not None:
        return Counter(steps, True, micro_step)
    by_id = {id(leaf): leaf for _, leaf in leaves}
    numbers = chain((source(by_id) for source in sources), (_named(leaves, name) for name in NAMES))
    return next((Counter(number) for number in numbers if number is not None), None)


def _named(leaves: list[tuple[Any, Any]], name: str) -> int | None:
    """The whole number under that name, the outermost of several."""
    named = [(len(path), leaf) for path, leaf in leaves if name in map(_key_name, path)]
    numbers = (whole_number(leaf) for _, leaf in sorted(named, key=lambda item: item[0]))
    return next((number for number in numbers if number is not None), None)


def shapes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The shapes of a call's inputs, in order."""
    try:
        return tuple(getattr(leaf, "shape", ()) for leaf in jax.tree_util.tree_leaves((args, kwargs)))
    except (TypeError, ValueError):  # static arguments need not be trees
        return ()


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


def counts_on(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a whole number among the inputs is still being computed: a step counts on, and to read it would wait."""
    try:
        leaves = jax.tree_util.tree_leaves((args, kwargs))
        numbers = [leaf for leaf in leaves if isinstance(leaf, jax.Array) and leaf.dtype.kind in "iu" and not leaf.ndim]
        return any(not leaf.is_deleted() and not leaf.is_ready() for leaf in numbers)
    except (TypeError, ValueError, RuntimeError):  # static arguments need not be trees
        return False


def carried(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> list[Any]:
    """The arrays in what, of the result or its elements, has the structure of an input that is more than an array."""
    structure = jax.tree_util.tree_structure
    single = structure(0)
    try:
        elements = result if isinstance(result, tuple | list) else ()
        inputs = [tree for value in (*args, *kwargs.values()) if (tree := structure(value)) != single]
        states = [value for value in (result, *elements) if structure(value) in inputs]
        return [leaf for leaf in jax.tree_util.tree_leaves(states) if isinstance(leaf, jax.Array)][:MOST_WATCHED]
    except (TypeError, ValueError):  # what a tree carries beside its leaves may refuse to be compared
        return []


def likely_states(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> list[Any]:
    """The arrays of a result, or its elements, that are like an input in shape and type."""
    outputs = result if isinstance(result, tuple | list) else (result,)
    inputs = {_likeness(value) for value in (*args, *kwargs.values())} - {None}
    return [value for value in outputs if _likeness(value) in inputs]


def twins(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, trees: bool) -> list[Any]:
    """An array of each input that is like the result, or an element of it, in structure and shapes.

    Args:
        args: of a call.
        kwargs: likewise.
        result: what it gave.
        trees: they are more than an array each; else each is one.
    """
    outputs = (result, *result) if isinstance(result, tuple | list) else (result,)
    try:
        forms = [form for value in outputs if (form := _form(value, trees)) is not None]
        alike = [value for value in (*args, *kwargs.values()) if _form(value, trees) in forms]
        return [jax.tree_util.tree_leaves(value)[0] for value in alike][:MOST_WATCHED]
    except (TypeError, ValueError):  # what a tree carries beside its leaves may refuse to be compared
        return []


def _form(value: Any, tree: bool) -> tuple[Any, ...] | None:
    """Structure and shapes of parameters; None for what cannot be any."""
    leaves, structure = jax.tree_util.tree_flatten(value)
    if not leaves or not all(isinstance(leaf, jax.Array) for leaf in leaves):
        return None
    if (structure != jax.tree_util.tree_structure(0)) != tree or (not tree and _likeness(value) is None):
        return None
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _likeness(value: Any) -> tuple[Any, ...] | None:
    """What two arrays of parameters have in common; None for what cannot be one."""
    if isinstance(value, jax.Array) and value.ndim and value.dtype.kind in "fV":
        return value.shape, value.dtype
    return None


def input_ids(args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    """The ``id`` of each input leaf."""
    try:
        return {id(leaf) for leaf in jax.tree_util.tree_leaves((args, kwargs))}
    except (TypeError, ValueError):  # static arguments need not be trees
        return set()


def _key_name(key: Any) -> str:
    return str(getattr(key, "name", getattr(key, "key", "")))
