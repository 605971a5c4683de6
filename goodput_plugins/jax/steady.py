"""The short way of a call that is known to be the next step of a loop that goes on as before.

Between two steps a processor waits, and what a hook touches has to come from memory again: what takes 7 us in a
tight loop takes 50 us there. So once a function has taken two steps in a row by the long way
(:mod:`~goodput_plugins.jax.loop`), its calls take this one, which touches little. Any other call that the
loop observes, an annotation or a new trace ends that: :attr:`Loop.steady` is None again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from jax._src import core

from goodput_plugins.core.clock import parts
from goodput_plugins.jax.figures import MOST_IN_FLIGHT
from goodput_plugins.jax.followed import Followed
from goodput_plugins.jax.functions import Frame
from goodput_plugins.jax.in_flight import InFlight, answers
from goodput_plugins.jax.outputs import Walk, follow

if TYPE_CHECKING:
    from goodput_plugins.core.guard import Guard
    from goodput_plugins.jax.loop import Loop

_trace: Any = getattr(core, "trace_state_strong_ref", None)
_RUNS = getattr(core, "eval_trace", None)
can_tell_traces = _RUNS is not None and hasattr(_trace, "value")
"""Whether this JAX tells quickly if a call is only traced."""

WAITED_FOR = 16
"""Once the host has waited for so many steps in a row, it is asked in one of as many whether it still does."""


class _Seldom:
    """Whether to ask now: always as long as the answer is yes, down to once in 16 times as long as it is no."""

    __slots__ = ("_pause", "left")

    MOST = 15

    def __init__(self) -> None:
        self._pause = self.left = 0

    def answer(self, *, yes: bool) -> None:
        self._pause = self.left = 0 if yes else min(2 * self._pause + 1, self.MOST)


class Steady:
    """A step function whose next call is the next step.

    Attributes:
        function: it.
    """

    __slots__ = (
        "_anchor",
        "_at_end",
        "_at_next",
        "_figures",
        "_followed",
        "_frame",
        "_frames",
        "_guard",
        "_in_flight",
        "_kind",
        "_last",
        "_loop",
        "_pick",
        "_read",
        "_recorder",
        "_sequence",
        "_thread",
        "_trust",
        "_waited_for",
        "_watch",
        "function",
    )

    def __init__(self, loop: Loop, frame: Frame, guard: Guard) -> None:
        self.function = function = frame.function
        self._loop = loop
        self._guard = guard
        self._recorder = loop.recorder
        self._sequence = loop.sequence
        self._figures = loop.functions.of(function.name)
        self._frames = frame.among
        self._thread = get_ident()
        self._frame: Any = Frame(loop, function, (), {})
        self._in_flight = loop.device.in_flight if loop.device is not None else None
        self._pick = _picker(function.output.walk)
        self._last: InFlight | None = None
        self._kind: type | None = None
        self._anchor, self._read = parts(loop.recorder.now)
        self._at_end, self._at_next = _Seldom(), _Seldom()
        self._waited_for = self._trust = 0
        self._watch = loop.device
        self._followed: Followed | None = None

    def begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """The function is called: tell the step. False: nothing was told, the call takes the long way."""
        frames = self._frames
        if frames or get_ident() != self._thread or _trace.value is not _RUNS or not self._guard.on:
            return False
        try:
            recorder, sequence, frame = self._recorder, self._sequence, self._frame
            number = sequence.next
            frame.start = start = self._anchor + self._read()
            run = recorder.run
            if run is not None and not recorder.by_hand and run.step(start, number):  # as the recorder does it
                ordinal = recorder.steps
                recorder.steps = ordinal + 1
            else:
                ordinal = recorder.step(number, at=start)
                if recorder.by_hand:  # several of these are one step
                    self._followed, self._waited_for = None, 0
            frame.ordinal = sequence.ordinal = ordinal
            sequence.number = number
            if number is not None:
                sequence.next = number + 1
            self._figures.calls += 1
            frame.args = args
            frame.kwargs = kwargs
            frames.append(frame)
            followed = self._followed
            if self._trust and followed is not None:
                self._trust -= 1
                followed.newest = None
                followed.calls.append(start)
            elif followed is not None or self._last is not None:
                self._look_back(start)
        except Exception as error:
            self._guard.failed(error)
            return False
        return True

    def ends(self, result: Any) -> None:
        """The call that began has returned."""
        frame = self._frame
        self._frames.pop()
        try:
            followed = self._followed
            if followed is not None and self._loop.steady is self:
                leaf = self._pick(result)
                if type(leaf) is self._kind:
                    followed.newest = leaf
                else:
                    self._followed = None
            elif self._at_end.left and self._loop.steady is self and self._in_flight is not None:
                self._at_end.left -= 1
                leaf = self._pick(result)
                if type(leaf) is not self._kind:  # a result of another structure
                    self._ends(frame, result)
                elif len(self._in_flight) < MOST_IN_FLIGHT:
                    step = InFlight()
                    step.leaf = leaf
                    step.ordinal = frame.ordinal
                    step.dispatched = frame.start
                    step.name = self.function.name
                    step.done = None
                    self._in_flight.append(step)
                    self._last = None if self._at_next.left else step
                    self._at_next.left -= bool(self._at_next.left)
            else:
                self._ends(frame, result)
        except (LookupError, AttributeError, TypeError):  # likewise
            self._guard(self._ends, frame, result)
        except Exception as error:
            self._guard.failed(error)
        frame.args = frame.kwargs = None

    def failed(self, kwargs: dict[str, Any]) -> None:
        """The call with these keywords has raised, or an interrupt came while it began or ended."""
        frame, frames = self._frame, self._frames
        if frame.kwargs is not kwargs:  # another, inside the one that began
            return
        if frames and frames[-1] is frame:
            frames.pop()
            self._guard(self._loop.failed, frame)
        frame.args = frame.kwargs = None

    def _ends(self, frame: Frame, result: Any) -> None:
        """See whether the work is done already; if not, the next calls need not look."""
        self._last = self._loop.ends(frame, result)
        self._kind = None if self._last is None else type(self._last.leaf)
        self._at_end.answer(yes=self._last is None)

    def _look_back(self, now: int) -> None:
        """Another step is called: is the one before done? It is not asked again.

        The result is let go here: what another processor's thread frees is far away from this one's, which would use
        it next.
        """
        last, steps = self._last, self._followed
        ready = _done(last, now) if last is not None else steps is not None and answers(steps.newest)
        self._last = None
        if ready is None:  # it was donated, or the thread was faster
            self._followed = None
            return
        self._waited_for = self._waited_for + 1 if ready else 0
        self._at_next.answer(yes=ready)
        if self._watch is None or self._waited_for < WAITED_FOR or not self._watch.host_tells or self._recorder.by_hand:
            self._followed = None
        elif steps is None or steps.over or len(steps.calls) > MOST_IN_FLIGHT:
            self._followed, self._trust = self._watch.follow(self._frame.ordinal, now), WAITED_FOR
        else:
            steps.newest = None
            steps.calls.append(now)
            self._trust = WAITED_FOR


def _done(last: InFlight, now: int) -> bool | None:
    """Whether a step is done by now; None if it cannot be asked."""
    ready = last.done is not None or answers(last.leaf)
    if ready:
        last.done = last.done or now
        last.leaf = None
    return ready


def _picker(walk: Walk | None) -> Callable[[Any], Any]:
    """What goes that way from a result to the output to ask."""
    if walk is not None and len(walk) == 1 and walk[0][0] is operator.getitem:
        return operator.itemgetter(walk[0][1])
    return functools.partial(follow, walk or ())
