"""Functions that may be hand-written SGD: they differentiate and give back a state like one they took.

Each may as well be the gradient half of a split step whose other half, the optimizer's, is about to
follow. So it counts only while no optimizer was seen, and once it is given what it gave before; its calls up to
there are told late. Where something like that was given beside it and stays the same, as parameters do while
gradients are added up, and where a function gives a tree, many calls count: what it gave may be a gradient that the
loop applies itself.
"""

from __future__ import annotations

import weakref
from typing import Any

from goodput_plugins.jax.functions import Frame, Function
from goodput_plugins.jax.inputs import carried, input_ids, likely_states, twins
from goodput_plugins.jax.sequence import Sequence

CALLS_THAT_PROVE = 32
"""More than a loop is likely to add gradients of before its first update."""


class Candidate:
    """A function that may take steps.

    Attributes:
        starts: when its calls began, as long as they are not told as steps.
        returned: of what it gave back last, what may come in again; None once it was proven.
        tree: that was a tree.
        given: what is like it among the inputs of the last call.
        adds: it was given what it gave, and beside that what it was given before.
    """

    __slots__ = ("adds", "given", "returned", "starts", "tree")

    def __init__(self, *, tree: bool) -> None:
        self.starts: list[int] = []
        self.returned: list[weakref.ref[Any]] | None = []
        self.given: list[weakref.ref[Any]] = []
        self.tree = tree
        self.adds = False

    def is_step(self, frame: Frame) -> bool:
        """Whether its next call proves it."""
        if self.returned is not None:
            inputs = input_ids(frame.args, frame.kwargs)
            comes_again = _any_among(self.returned, inputs)
            self.adds = comes_again and _any_among(self.given, inputs)
            many = (self.adds or self.tree) and len(self.starts) >= CALLS_THAT_PROVE
            if not many and (self.adds or not comes_again):
                return False
            self.returned, self.given = None, []
        return True


class Candidates:
    """The candidates of a loop; empty as soon as an optimizer was seen."""

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._known: weakref.WeakKeyDictionary[Function, Candidate] = weakref.WeakKeyDictionary()

    def are_steps(self, frame: Frame) -> bool:
        """Whether the call that begins is a step; the one before it is told, if it was not."""
        candidate = self._known.get(frame.function) if self._known else None
        if candidate is None or not candidate.is_step(frame):
            return False
        self._tell(frame.function, candidate)
        return True

    def consider(self, frame: Frame, result: Any, *, in_annotation: bool) -> bool:
        """A call that differentiates has ended. Returns whether it is a step for certain."""
        function = frame.function
        if function.carries_state is None:
            function.carries_state = bool(carried(frame.args, frame.kwargs, result))
        states = (carried if function.carries_state else likely_states)(frame.args, frame.kwargs, result)
        if frame.start is None or not states:
            return False
        candidate = self._known.setdefault(function, Candidate(tree=function.carries_state))
        if in_annotation:
            candidate.starts, candidate.returned = [], None
            return True
        candidate.starts = [*(candidate.starts if candidate.tree or candidate.adds else ()), frame.start]
        candidate.returned = [weakref.ref(array) for array in states]
        candidate.given = [weakref.ref(array) for array in twins(frame.args, frame.kwargs, result, candidate.tree)]
        return False

    def tell_all(self) -> None:
        """At the end: who gave a tree took a step in each call."""
        for function, candidate in list(self._known.items()):
            if candidate.returned is None or candidate.tree or candidate.adds:
                self._tell(function, candidate)

    def _tell(self, function: Function, candidate: Candidate) -> None:
        starts, candidate.starts = candidate.starts, []
        for start in starts:
            self._sequence.late(function, start)

    def clear(self) -> None:
        """An optimizer was seen."""
        self._known.clear()


def _any_among(arrays: list[weakref.ref[Any]], inputs: set[int]) -> bool:
    return any((array := ref()) is not None and id(array) in inputs for ref in arrays)
