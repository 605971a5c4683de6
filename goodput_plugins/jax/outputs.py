"""Which output of a step tells that its work is done: a small array that no later call takes.

All outputs of a program are ready together. The state among them is usually donated to the next call,
and a donated array cannot be asked any more; the loss can. Which outputs come back as inputs is seen
on a function's first calls; from then on one short walk finds the array.
"""

from __future__ import annotations

import heapq
import operator
import weakref
from collections.abc import Callable
from typing import Any

import jax

from goodput_plugins.jax.inputs import input_ids

LEARNING_CALLS = 3
CANDIDATES = 16

Walk = tuple[tuple[Callable[[Any, Any], Any], Any], ...]


class SmallOutput:
    """Finds, in each result of one function, the array to watch.

    Attributes:
        walk: the way to it, as far as it is known.
    """

    def __init__(self) -> None:
        self._calls = 0
        self.walk: Walk | None = None
        self._carried: set[Walk] = set()
        self._seen: list[tuple[Walk, weakref.ref[Any]]] = []

    @property
    def learnt(self) -> bool:
        """Whether the way will not change as long as results are of one structure."""
        return self._calls >= LEARNING_CALLS

    def pick(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any | None:
        """The array to watch in ``result``; None if there is none."""
        if self._calls < LEARNING_CALLS:
            self._calls += 1
            self._learn(args, kwargs, result)
        if self.walk is None:
            return None
        try:
            leaf = follow(self.walk, result)
        except (LookupError, AttributeError, TypeError):
            leaf = None
        if hasattr(leaf, "is_ready"):
            return leaf
        self._calls = 0  # a result of another structure: learn anew
        return None

    def _learn(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        inputs = input_ids(args, kwargs)
        self._carried |= {walk for walk, seen in self._seen if (leaf := seen()) is not None and id(leaf) in inputs}
        small = _smallest_arrays(result, but=inputs)
        kept = [walk for walk, _ in small if walk not in self._carried] or [walk for walk, _ in small]
        self.walk = kept[0] if kept else None
        self._seen = [] if self._calls == LEARNING_CALLS else [(walk, weakref.ref(leaf)) for walk, leaf in small]


def follow(walk: Walk, node: Any) -> Any:
    """What lies at the end of the way; raises LookupError, AttributeError or TypeError where it is not there."""
    for get, key in walk:
        node = get(node, key)
    return node


def _smallest_arrays(result: Any, *, but: set[int]) -> list[tuple[Walk, Any]]:
    """The smallest arrays of ``result``, the later first among equals; without inputs handed through."""
    paths = jax.tree_util.tree_flatten_with_path(result)[0]
    arrays = [
        (leaf.size, -place, path, leaf)
        for place, (path, leaf) in enumerate(paths)
        if isinstance(leaf, jax.Array) and id(leaf) not in but
    ]
    smallest = heapq.nsmallest(CANDIDATES, arrays, key=operator.itemgetter(0, 1))
    walks = [(_walk_of(path, result), leaf) for _, _, path, leaf in smallest]
    return [(walk, leaf) for walk, leaf in walks if walk is not None]


def _walk_of(path: tuple[Any, ...], node: Any) -> Walk | None:
    """How to reach a leaf by plain indexing and attributes; None where that would run code."""
    steps: list[tuple[Callable[[Any, Any], Any], Any]] = []
    for key in path:
        if isinstance(key, jax.tree_util.SequenceKey):
            step: tuple[Callable[[Any, Any], Any], Any] = (operator.getitem, key.idx)
        elif isinstance(key, jax.tree_util.DictKey):
            step = (operator.getitem, key.key)
        elif isinstance(key, jax.tree_util.GetAttrKey) and not isinstance(
            getattr(type(node), key.name, None), property
        ):
            step = (getattr, key.name)
        else:
            return None
        node = step[0](node, step[1])
        steps.append(step)
    return tuple(steps)
