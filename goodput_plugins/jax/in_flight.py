"""What is queued on the device, and whether it is done."""

from __future__ import annotations

from typing import Any

EVALUATION = "EVAL"
"""The name of the custom event that an evaluation is."""


class InFlight:
    """Work that was queued on the device.

    It has no initializer, which would be a call more for each step: whoever makes one sets all of it.

    Attributes:
        ordinal: of the step; None for other work.
        dispatched: when it was called.
        leaf: the output to ask; None once it has answered.
        name: of the function.
        done: when it was first seen to be ready; None as long as it was not.
    """

    __slots__ = ("dispatched", "done", "leaf", "name", "ordinal")

    ordinal: int | None
    dispatched: int
    leaf: Any
    name: str
    done: int | None


class Part(InFlight):
    """Work that may be one of several pieces of a step: between two of them the device may have nothing to do.

    Attributes:
        follows: what was called before it is in the queue too.
        counts: it has a place of its own among the pieces, from 0.
    """

    __slots__ = ("counts", "follows")

    counts: int
    follows: bool


class Evaluation:
    """An evaluation that goes on.

    Attributes:
        thread: that began it, as the recorder calls it.
        over: the next step was called.
    """

    __slots__ = ("_last", "over", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.over = False
        self._last: InFlight | None = None

    def goes_on(self, leaf: Any, now: int) -> None:
        """Another of its calls has returned, with a result to ask."""
        self._last = in_flight(None, now, leaf, EVALUATION)

    def look(self, now: int) -> None:
        """Note that its last result is ready, if it is."""
        last = self._last
        if last is not None and last.done is None and answers(last.leaf) is not False:
            last.done = now

    @property
    def end(self) -> int | None:
        """When its last result was ready; None as long as it is not."""
        last = self._last
        return None if last is None else last.done


def in_flight(ordinal: int | None, dispatched: int, leaf: Any, name: str) -> InFlight:
    work = InFlight()
    work.ordinal, work.dispatched, work.leaf, work.name, work.done = ordinal, dispatched, leaf, name, None
    return work


def answers(leaf: Any) -> bool | None:
    """Whether an array is ready; None if it cannot be asked: it is none, or was donated to a later call."""
    try:
        return None if leaf is None else leaf.is_ready()
    except (RuntimeError, AttributeError):
        return None
