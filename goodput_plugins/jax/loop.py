"""Which calls are the steps of a training loop.

A step is a call of a function that applies an optimizer's update, made outside any other call that is
observed and outside any tracing. It is told as soon as it is known: before the call if the function is
known, else while the call traces it. Where no optimizer is seen, hand-written SGD counts
(:mod:`~goodput_plugins.jax.candidates`). What a step's number is, and how several functions make one
step, is in :mod:`~goodput_plugins.jax.sequence`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax._src.core import trace_state_clean

from goodput_plugins.core.events import Activity
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.core.patching import without_this_frame, wrapper
from goodput_plugins.jax.accumulation import Gradients
from goodput_plugins.jax.candidates import Candidates
from goodput_plugins.jax.device import DeviceWatch
from goodput_plugins.jax.evaluation import Evaluations
from goodput_plugins.jax.figures import StepFunctions
from goodput_plugins.jax.functions import Annotation, Annotations, Frame, Function, thread
from goodput_plugins.jax.in_flight import InFlight
from goodput_plugins.jax.learning import learn
from goodput_plugins.jax.sequence import Sequence
from goodput_plugins.jax.steady import Steady, can_tell_traces


class Loop:
    """Tells a recorder the steps that the observed calls amount to.

    Attributes:
        sequence: the steps, with their numbers.
        annotations: the open ``StepTraceAnnotation`` of each thread.
        device: what sees when steps are done; None: nothing does.
        functions: how often each step function was called.
        steady: the function whose calls may take the short way.
    """

    def __init__(self, recorder: NullRecorder, device: DeviceWatch | None) -> None:
        self.recorder = recorder
        self.sequence = Sequence(recorder)
        self.annotations = Annotations()
        self.device = device
        self.functions = StepFunctions(recorder) if device is None else device.functions
        self.steady: Steady | None = None
        self._evaluations = Evaluations(recorder, device)
        self._candidates = Candidates(self.sequence)
        self._open = True
        self._annotated = False
        self._sees_optimizer = False
        self._sees_steps = False
        self._last: Function | None = None
        self._gradients = Gradients()
        recorder.at_restored = self._restored

    @wrapper
    def call(
        self, guard: Guard, function: Function, host: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """``host(*args, **kwargs)``, observed as a call of ``function``."""
        frame, among = None, thread.frames
        depth = len(among)
        try:
            if guard.on and self._open:
                try:  # what calling the guard does, without two calls more for each of the host's
                    frame = self._begins(function, args, kwargs)
                except Exception as error:
                    guard.failed(error)
            result = host(*args, **kwargs)
            del among[depth:]
        except BaseException as error:  # an interrupt may come anywhere
            del among[depth:]
            if frame is not None:
                guard(self.failed, frame)
            without_this_frame(error)
            raise
        if frame is not None and (frame.start is not None or frame.preparing) and guard.on:
            try:
                self.ends(frame, result)
                if frame.again and self._goes_on(frame):
                    self.steady = Steady(self, frame, guard)
            except Exception as error:
                guard.failed(error)
        return result

    @wrapper
    def trace(
        self, guard: Guard, function: Function, host: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """``host(*args, **kwargs)``, which only traces ``function``: facts are learnt, no step is told."""
        among = thread.frames
        depth = len(among)
        try:
            if self._open:
                guard(self._traces, function, args, kwargs)
            return host(*args, **kwargs)
        except BaseException as error:
            without_this_frame(error)
            raise
        finally:
            del among[depth:]

    def annotation_begins(self, number: int | None, *, is_step: bool) -> None:
        """A ``StepTraceAnnotation`` opens; ``is_step``: it may be told as a step by itself."""
        self._annotated = True
        self.steady = None
        self.annotations.open.append(Annotation(number, self.recorder.now()) if is_step else None)

    def annotation_ends(self) -> None:
        """The innermost ``StepTraceAnnotation`` closes; alone in a loop of unknown functions it is the step."""
        open_ = self.annotations.open
        annotation = open_.pop() if open_ else None
        if annotation is not None and not annotation.told and not self._sees_steps and self._open:
            self._evaluations.over()
            self.sequence.frames = thread.frames
            self.sequence.tell(annotation.start, annotation.number)

    def close(self) -> None:
        """Tell what is still held back, stop the device thread and observe nothing more."""
        self._candidates.tell_all()
        self._open = False
        self.steady = None
        self.recorder.at_restored = None
        self._evaluations.over()
        if self.device is not None:
            self.device.close()
        self.functions.tell(all_of_it=True)

    def _restored(self) -> None:
        self.steady = None
        self.sequence.restored = True
        self._gradients.clear()

    def _begins(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        frame = Frame(self, function, args, kwargs)
        self._told(frame)
        frame.among.append(frame)
        return frame

    def _traces(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = Frame(self, function, args, kwargs)
        frame.among.append(frame)

    def _told(self, frame: Frame) -> None:
        """Tell what is known of a call before it is made."""
        function = frame.function
        if frame.among:
            learn(function)
            return
        if self._last is function:
            frame.again = self.steady is None
        elif function.optimizes or frame.among is self.sequence.frames:
            self.steady, self._last = None, function
        if function.initializes and not function.optimizes:
            frame.preparing = True
            self.recorder.begin(Activity.PREPARATION, name=function.name)
        if not trace_state_clean():
            return
        if self.device is not None:
            self.device.look_at_part()
        frame.start = self.recorder.now()
        if function.optimizes:
            if not self._sees_optimizer:
                self._optimizes()
            self._step(frame)
        elif not self._sees_optimizer and self._candidates.are_steps(frame):
            self._step(frame)
        elif function.jitted and not frame.preparing:
            self._between(frame)

    def ends(self, frame: Frame, result: Any) -> InFlight | None:
        """A call is over. Returns its work on the device if it was a step, and that goes on."""
        if frame.ordinal is None or frame.preparing:
            self._other_ends(frame, result)
        ordinal, function = frame.ordinal, frame.function
        if ordinal is None:
            return None
        if function.calls_per_step != function.counted_by:
            self.sequence.over(frame)
        if self.device is None:
            return None
        if frame.part or function.counted_by > 1 or self.sequence.takes_turns:
            self.device.watch_part(frame, result)
            return None
        return self.device.watch(frame, ordinal, result)

    def _goes_on(self, frame: Frame) -> bool:
        """Whether the next call of a function that was called twice in a row is the next step for certain."""
        return (
            frame.ordinal is not None
            and frame.function.optimizes
            and not (self._annotated or frame.preparing or self.functions.several)
            and (self.device is None or frame.function.output.learnt)
            and can_tell_traces
            and self.sequence.goes_on(frame)
        )

    def _other_ends(self, frame: Frame, result: Any) -> None:
        """A call that is not known to be a step is over: it was one, or preparation, or came between two."""
        function = frame.function
        if frame.preparing:
            self.recorder.finish(Activity.PREPARATION, name=function.name)
            self._gradients.clear()
        elif frame.start is not None and function.initializes:
            duration = self.recorder.now() - frame.start
            self.recorder.span(Activity.PREPARATION, frame.start, duration, name=function.name)
        elif function.differentiates and self._proves_a_step(frame, result):
            self._step(frame)
        elif frame.part or function.differentiates:
            self._part_ends(frame, result)
        elif frame.between:
            self._evaluations.ends(frame, result)

    def _part_ends(self, frame: Frame, result: Any) -> None:
        """What is likely a piece of the step that is told next was queued."""
        if frame.function.differentiates and (self.sequence.frames is None or self.sequence.frames is frame.among):
            self._gradients.taken(frame)
        if self.device is not None:
            self.device.watch_part(frame, result)

    def _proves_a_step(self, frame: Frame, result: Any) -> bool:
        annotated = bool(self.annotations.open)
        return not self._sees_optimizer and self._candidates.consider(frame, result, in_annotation=annotated)

    def failed(self, frame: Frame) -> None:
        """A call has raised."""
        if frame.preparing:
            self.recorder.finish(Activity.PREPARATION, name=frame.function.name)
        elif frame.ordinal is not None:
            self.sequence.failed(frame)

    def optimizer_seen(self, frame: Frame) -> None:
        """The call ``frame`` applies an optimizer's update."""
        self._optimizes()
        if frame.start is not None and frame.ordinal is None:
            self._step(frame)
        elif not frame.function.call_is_step:
            self.sequence.recount(frame)

    def _optimizes(self) -> None:
        if not self._sees_optimizer:
            self.sequence.begin_anew()
        self._sees_optimizer = True
        self._candidates.clear()

    def _step(self, frame: Frame) -> None:
        function = frame.function
        if function.differentiates or not function.optimizes:
            self._gradients.clear()
        elif (begun := self._gradients.applied(function)) is not None:
            frame.called, frame.start, frame.part = frame.start, begun, True
        if self._evaluations.open is not None:
            self._evaluations.over()
        self._sees_steps = True
        self.functions.of(function.name).calls += 1
        annotation = self._annotation() if self._annotated else None
        if annotation is None:
            self.sequence.step(frame)
            return
        if annotation.told:
            frame.ordinal = self.sequence.ordinal
            self.annotations.hold_parts = True
        elif annotation.number is None:
            self.sequence.step(frame)
        else:
            self.sequence.numbered(frame, annotation.number)
        annotation.told = True
        frame.part |= self.annotations.hold_parts

    def _annotation(self) -> Annotation | None:
        """The innermost ``StepTraceAnnotation`` that is open on this thread."""
        open_ = self.annotations.open
        return open_[-1] if open_ else None

    def _between(self, frame: Frame) -> None:
        """A jitted function that is no step is called before one or after it."""
        function, gradients = frame.function, self._gradients
        if function.differentiates:
            if self._evaluations.open is not None and gradients.knows(function):
                self._evaluations.over()  # the next step begins
        elif not function.evaluates and gradients.goes_with(frame):
            frame.part = True
        elif frame.among is self.sequence.frames:
            annotation = self._annotation() if self._annotated else None
            if annotation is None or annotation.told:
                self._evaluations.begins(frame)
