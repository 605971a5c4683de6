"""Stretches between two pieces of work in which the device had nothing to do.

Inside a step that is made of several calls they are the host's time: it waited for data, or saved, or did what no hook
sees. Between two steps they are told as well, and change nothing. An evaluation is no work of a step's.
"""

from __future__ import annotations

from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.jax.in_flight import Part

SHORTEST = 1_000_000
"""A shorter pause is not told, ns."""


class Pauses:
    """Tells ``recorder`` of them."""

    def __init__(self, recorder: NullRecorder) -> None:
        self._recorder = recorder
        self._begun: int | None = None
        self._evaluated = 0

    def begins(self, done: int | None) -> None:
        """What was queued was done then, if that is known."""
        self._begun = done

    def evaluated(self, end: int) -> None:
        """An evaluation was over then."""
        self._evaluated = end

    def ends(self, part: Part) -> None:
        """A piece of work was queued."""
        begun, end = self._begun, max(part.dispatched, self._evaluated)
        if part.follows and begun is not None and end - begun > SHORTEST:
            self._recorder.device_idle(begun, end - begun)
