"""Functions that may be hand-written SGD: they differentiate and give back a state like one they took.

Each may as well be the gradient half of a split step whose other half, the optimizer's, is about to
follow. So it counts from its second call on, the first told late, and only while no optimizer was seen. One
that takes and gives a single array has to be given, the second time, what it gave the first.
"""

from __future__ import annotations

import weakref
from typing import Any

from goodput_plugins.jax.functions import Frame, Function
from goodput_plugins.jax.inputs import carries_state, likely_states
from goodput_plugins.jax.sequence import Sequence


class Candidate:
    """A function that may take steps.

    Attributes:
        start: when its last call began; None once that was told as a step.
        returned: of what it gave back, what may come in again; None if that is not asked.
    """

    __slots__ = ("returned", "start")

    def __init__(self, start: int, returned: list[weakref.ref[Any]] | None) -> None:
        self.start: int | None = start
        self.returned = returned

    def is_step(self, frame: Frame) -> bool:
        """Whether its next call proves it."""
        if self.returned is not None:
            arguments = {id(value) for value in (*frame.args, *frame.kwargs.values())}
            if not any((array := ref()) is not None and id(array) in arguments for ref in self.returned):
                return False
            self.returned = None
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
            function.carries_state = carries_state(frame.args, frame.kwargs, result)
        returned = None
        if not function.carries_state:
            returned = [weakref.ref(array) for array in likely_states(frame.args, frame.kwargs, result)]
        if returned == [] or frame.start is None:
            return False
        candidate = self._known[function] = Candidate(frame.start, returned)
        if in_annotation:
            candidate.start = candidate.returned = None
        return in_annotation

    def tell_all(self) -> None:
        """At the end: who was called once took that one step."""
        for function, candidate in list(self._known.items()):
            if candidate.returned is None:
                self._tell(function, candidate)

    def _tell(self, function: Function, candidate: Candidate) -> None:
        start, candidate.start = candidate.start, None
        if start is not None:
            self._sequence.late(function, start)

    def clear(self) -> None:
        """An optimizer was seen."""
        self._known.clear()
