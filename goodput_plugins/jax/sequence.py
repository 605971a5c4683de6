"""The one sequence of a loop's steps: which call begins the next step, and the number of each.

Usually each call of the step function is a step. But a call may take several at once (``lax.scan`` over
the steps), a step may take several calls (``optax.MultiSteps``), and a loop may have several step functions:

- those that take turns (discriminator and generator) are one step, which begins with the first of them;
- one that goes on with the counter of another (a warm-up, another task) takes steps of its own. Where no
  counter tells, a function is taken for a part of the step before it until it is called four times without
  the other in between: a round may well have several updates of one part.

The number is read once, from what the first call is given, and again after a restore; from there on steps are counted.
"""

from __future__ import annotations

import math

from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.jax.functions import Frame, Function, thread
from goodput_plugins.jax.inputs import Counter, NumberSource, counter_among, counts_on

CALLS_OF_ITS_OWN = 4
"""So many calls of a function without the one that leads, and it takes steps of its own."""
TRIES = 8
"""How many calls are searched for a step number before it stays unknown."""


class Sequence:
    """Tells a recorder the steps that the calls of step functions amount to.

    Attributes:
        sources: further ways to find a step number among a call's inputs.
        started: whether a step was told.
        frames: the calls open on the thread that took the last step.
        number: of the last step, ``ordinal`` its place in this attempt; ``next`` the number of the one to come.
        restored: a checkpoint was restored since the last step.
    """

    def __init__(self, recorder: NullRecorder) -> None:
        self.sources: list[NumberSource] = []
        self.started = self.restored = False
        self.frames: list[Frame] | None = None
        self._recorder = recorder
        self.next: int | None = None
        self.number: int | None = None
        self.ordinal = 0
        self._tries = TRIES
        self._leader: Function | None = None
        self._partners: set[Function] = set()
        self._guests: dict[Function, list[int]] = {}

    def read(self, frame: Frame) -> None:
        """Read what a call's inputs count, as long as they can be read: it may give them away."""
        function = frame.function
        if function.sequence is not self:  # what an earlier loop of this process counted is over
            function.sequence, function.counter, function.leader, function.micro_steps = self, None, None, 0
        if function.counter is None and frame.start is not None and self._tries:
            self._tries -= 1
            args, kwargs = thread.given or (frame.args, frame.kwargs)
            function.counter = counter_among(args, kwargs, self.sources)

    def step(self, frame: Frame) -> None:
        """A step function is called: tell the step, unless the call belongs to the one that was told."""
        assert frame.start is not None
        function = frame.function
        leader = function.leader
        if leader is None or self._leader is None:
            leader = self._place(frame)
        if leader is self._leader:
            if self.restored:
                self._goes_back(frame)
            if self._guests:
                self._partners.update(self._guests)
                self._guests.clear()
            if function.call_is_step and self.started:  # what ``tell`` does, without a call more for each step
                number = self.number = self.next
                self.next = None if number is None else number + 1
                self.ordinal = self._recorder.step(number, at=frame.start)
            elif count := self._begun(frame):
                self.tell(frame.start, None, count)
        elif leader not in self._partners:
            self._meets_guest(leader, frame.start)
        frame.ordinal = self.ordinal
        self.frames = frame.among

    def goes_on(self, frame: Frame) -> bool:
        """Whether the next call of this step's function is one step, and the next, if nothing else is called."""
        function = frame.function
        return (
            frame.among is self.frames
            and function.call_is_step
            and function.leader is self._leader
            and not self._guests
        )

    @property
    def takes_turns(self) -> bool:
        """Whether several functions make one step."""
        return bool(self._partners)

    def numbered(self, frame: Frame, number: int) -> None:
        """A step function is called, and the loop says itself which step it takes."""
        assert frame.start is not None
        self.restored = False
        self.tell(frame.start, number)
        frame.ordinal = self.ordinal
        self.frames = frame.among

    def tell(self, start: int, number: int | None, count: int = 1) -> None:
        """A step, or ``count`` of them in one call, began then; where ``number`` is None it is the next."""
        number = self.number = self.next if number is None else number
        self.next = None if number is None else number + count
        self.started = True
        self.ordinal = self._recorder.step(number, at=start)

    def late(self, function: Function, start: int) -> None:
        """A call that was over before it was known to be a step."""
        if self._leader is None:
            self._lead(function)
        self.tell(start, None)

    def failed(self, frame: Frame) -> None:
        """A step's call has raised: whoever goes on takes that step again."""
        function = frame.function
        if function.call_is_step and function.leader is self._leader and frame.ordinal == self.ordinal:
            self.next = self.number

    def begin_anew(self) -> None:
        """An optimizer was seen: what led so far was taken for a step function by mistake, or goes on apart."""
        self._leader = None
        self._guests.clear()

    def over(self, frame: Frame) -> None:
        """A step's call is over: while it was traced it may have shown how many calls a step takes."""
        function = frame.function
        if function.calls_per_step != function.counted_by:
            told = self._number_of(function, function.counted_by)
            self._adopt(function)
            function.micro_steps += 1
            number = self._number_of(function, function.calls_per_step)
            if number is not None:
                if number != told:
                    self._recorder.number(number)
                self.next = number + 1

    def recount(self, frame: Frame) -> None:
        """A step's call is being traced, with inputs of new shapes: it may take more steps than were told, or fewer."""
        function = frame.function
        taken = function.steps_in(frame.args, frame.kwargs)
        if taken != function.taken:
            before = function.micro_steps - function.taken
            more = self._steps_begun(function, before, before + taken) - self._steps_begun(
                function, before, function.micro_steps
            )
            function.micro_steps, function.taken = before + taken, taken
            self.next = None if self.next is None else self.next + more

    def _goes_back(self, frame: Frame) -> None:
        """Steps go on from a checkpoint, with the number that the inputs count; without one, the checkpoint tells."""
        self.restored = False
        args, kwargs = thread.given or (frame.args, frame.kwargs)
        if self.started and not counts_on(args, kwargs):
            function = frame.function
            function.counter = counter_among(args, kwargs, self.sources)
            self._adopt(function)
            self.next = self._number_of(function, function.counted_by)

    def _place(self, frame: Frame) -> Function:
        """The first call of a step function: whose steps does it take?"""
        function = frame.function
        self.read(frame)
        leader, counter = self._leader, function.counter
        if leader is None:
            return self._lead(function)
        goes_on = counter is not None and self.next is not None and counter.value == self.next
        function.leader = leader if goes_on else function
        return function.leader

    def _lead(self, function: Function) -> Function:
        """The sequence's steps are this function's."""
        self._leader = function.leader = function
        self._adopt(function)
        if self.next is None:
            self.next = self._number_of(function, function.calls_per_step)
        return function

    def _meets_guest(self, guest: Function, start: int) -> None:
        """A function that has not yet taken turns with the leader."""
        starts = self._guests.setdefault(guest, [])
        starts.append(start)
        if len(starts) == CALLS_OF_ITS_OWN:
            self._guests.clear()
            self._leader = guest
            for began in starts:
                self.tell(began, None)

    def _adopt(self, function: Function) -> None:
        """Count a function's calls by what its inputs counted before."""
        function.counted_by = function.calls_per_step
        function.call_is_step = function.counted_by == function.steps_per_call == 1
        if function.counter is not None:
            counter = function.counter
            function.micro_steps = counter.micro_step if counter.in_steps else counter.value % function.counted_by

    @staticmethod
    def _number_of(function: Function, calls_per_step: int) -> int | None:
        counter: Counter | None = function.counter
        if counter is None:
            return None
        return counter.value if counter.in_steps else counter.value // calls_per_step

    def _begun(self, frame: Frame) -> int:
        """How many steps begin in this call."""
        function, before = frame.function, frame.function.micro_steps
        function.taken = function.steps_in(frame.args, frame.kwargs)
        function.micro_steps = before + function.taken
        begun = self._steps_begun(function, before, function.micro_steps)
        return begun if self.started else max(1, begun)

    @staticmethod
    def _steps_begun(function: Function, before: int, after: int) -> int:
        """How many steps begin between so many micro-steps and so many."""
        return math.ceil(after / function.counted_by) - math.ceil(before / function.counted_by)
