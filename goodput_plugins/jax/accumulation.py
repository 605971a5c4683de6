"""Gradients that are added up by hand: which calls the next update begins with.

``for micro in batch: loss, g = gradients(params, micro); total = add(total, g)``, then ``update(params, total)``: the
step begins with the first of its gradients. Which functions compute them is learnt: the last one that was called before
an update, and every one that was called before that update each time.
"""

from __future__ import annotations

from goodput_plugins.jax.functions import Frame, Function

MOST_FUNCTIONS = 64
"""More than these are no gradients of one step but a function that is made anew again and again."""


class Gradients:
    """The gradients that were taken since the last update."""

    def __init__(self) -> None:
        self._among: list[Frame] | None = None
        self._firsts: dict[Function, int] = {}
        self._last: Function | None = None
        self._applied: dict[Function, frozenset[Function]] = {}
        self._known: frozenset[Function] = frozenset()

    def knows(self, function: Function) -> bool:
        """Whether an update has applied what this function computes."""
        return function in self._known

    def goes_with(self, frame: Frame) -> bool:
        """Whether a call follows gradients, in its thread, which the next update will apply, as far as is known."""
        return self._among is frame.among and (not self._known or not self._known.isdisjoint(self._firsts))

    def taken(self, frame: Frame) -> None:
        """A function that differentiates, and is no step, was called."""
        if frame.start is not None and len(self._firsts) < MOST_FUNCTIONS:
            self._among = frame.among
            self._firsts.setdefault(frame.function, frame.start)
            self._last = frame.function

    def applied(self, update: Function) -> int | None:
        """They are applied: when the first of them was called; None if there was none."""
        firsts, last = self._firsts, self._last
        self.clear()
        if last is None:
            return None
        before = self._applied.get(update, frozenset())
        parts = {last, *(function for function in firsts if function in before)}
        if len(self._applied) < MOST_FUNCTIONS or update in self._applied:
            self._applied[update] = frozenset(firsts)
        if not self._known >= parts and len(self._known) < MOST_FUNCTIONS:
            self._known |= parts
        return min(firsts[function] for function in parts)

    def clear(self) -> None:
        """What was taken so far is applied, or never will be."""
        self._firsts, self._last, self._among = {}, None, None
