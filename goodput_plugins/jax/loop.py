"""Which calls are the steps of a training loop, and which number each step has.

A step is a call of a function that applies an optimizer's update, made outside any other call that is
observed and outside any tracing. It is told as soon as it is known: before the call if the function is
known, else while the call traces it. A function that only differentiates and returns a state like one of
its inputs may be hand-written SGD, or the gradient half of a split step whose other half is about to
follow: it counts from its second call on, the first told late, and only while no optimizer was seen.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from jax._src.core import trace_state_clean

from goodput_plugins.core.events import Activity
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.patching import Hooks, without_this_frame, wrapper
from goodput_plugins.core.recorder import NullRecorder
from goodput_plugins.environ import DEVICE_TIME
from goodput_plugins.jax.device import DeviceWatch
from goodput_plugins.jax.functions import Frame, Function, thread
from goodput_plugins.jax.inputs import NumberSource, carries_state, step_number

TRIES = 8
"""How many calls are searched for a step number before it stays unknown."""


class Annotation:
    """An open ``StepTraceAnnotation``: what runs in it is at most one step."""

    __slots__ = ("number", "start", "told")

    def __init__(self, number: int | None, start: int) -> None:
        self.number = number
        self.start = start
        self.told = False


class _Annotations(threading.local):
    def __init__(self) -> None:
        self.open: list[Annotation | None] = []


class Loop:
    """Tells a recorder the steps that the observed calls amount to.

    Attributes:
        number_sources: further ways to find a step number among a call's inputs.
        annotations: the open ``StepTraceAnnotation`` of each thread.
    """

    def __init__(self, recorder: NullRecorder, device: DeviceWatch | None) -> None:
        self.recorder = recorder
        self.number_sources: list[NumberSource] = []
        self.annotations = _Annotations()
        self._device = device
        self._open = True
        self._sees_optimizer = False
        self._sees_steps = False
        self._next_number: int | None = None
        self._tries = TRIES
        self._candidates: weakref.WeakKeyDictionary[Function, int | None] = weakref.WeakKeyDictionary()

    @wrapper
    def call(
        self, guard: Guard, function: Function, host: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """``host(*args, **kwargs)``, observed as a call of ``function``."""
        frame = guard(self._begins, function, args, kwargs)
        try:
            result = host(*args, **kwargs)
        except BaseException as error:
            if frame is not None:
                frame.among.pop()
                guard(self._failed, frame)
            without_this_frame(error)
            raise
        if frame is not None:
            frame.among.pop()
            guard(self._ends, frame, result)
        return result

    @wrapper
    def trace(
        self, guard: Guard, function: Function, host: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """``host(*args, **kwargs)``, which only traces ``function``: facts are learnt, no step is told."""
        frame = guard(self._traces, function, args, kwargs)
        try:
            result = host(*args, **kwargs)
        except BaseException as error:
            if frame is not None:
                frame.among.pop()
            without_this_frame(error)
            raise
        if frame is not None:
            frame.among.pop()
        return result

    def annotation_begins(self, number: int | None, *, is_step: bool) -> None:
        """A ``StepTraceAnnotation`` opens; ``is_step``: it may be told as a step by itself."""
        self.annotations.open.append(Annotation(number, self.recorder.now()) if is_step else None)

    def annotation_ends(self) -> None:
        """The innermost ``StepTraceAnnotation`` closes; alone in a loop of unknown functions it is the step."""
        open_ = self.annotations.open
        annotation = open_.pop() if open_ else None
        if annotation is not None and not annotation.told and not self._sees_steps and self._open:
            self._tell(annotation.start, annotation.number)

    def close(self) -> None:
        """Tell what is still held back, stop the device thread and observe nothing more."""
        if not self._sees_optimizer:
            for function in list(self._candidates):
                self._confirm(function)
        self._open = False
        if self._device is not None:
            self._device.close()

    def _begins(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        frame = Frame(self, function, args, kwargs)
        self._told(frame)
        frame.among.append(frame)
        return frame

    def _traces(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame:
        frame = Frame(self, function, args, kwargs)
        frame.among.append(frame)
        return frame

    def _told(self, frame: Frame) -> None:
        """Tell what is known of a call before it is made."""
        if not self._open:
            return
        function = frame.function
        if thread.frames:
            learn(function)
            return
        if function.initializes and not function.optimizes:
            frame.preparing = True
            self.recorder.begin(Activity.PREPARATION, name=function.name)
        if not trace_state_clean():
            return
        frame.start = self.recorder.now()
        if function.optimizes:
            self._sees_optimizer = True
            self._step(frame)
        elif self._candidates and not self._sees_optimizer and function in self._candidates:
            self._confirm(function)
            self._step(frame)

    def _ends(self, frame: Frame, result: Any) -> None:
        function = frame.function
        if frame.preparing:
            self.recorder.finish(Activity.PREPARATION, name=function.name)
        elif frame.start is None:
            return
        elif function.initializes and frame.ordinal is None:
            duration = self.recorder.now() - frame.start
            self.recorder.span(Activity.PREPARATION, frame.start, duration, name=function.name)
        else:
            if frame.ordinal is None and function.differentiates and not self._sees_optimizer:
                self._consider(frame, result)
            if frame.ordinal is not None and self._device is not None:
                self._device.watch(frame, frame.ordinal, result)

    def _failed(self, frame: Frame) -> None:
        if frame.preparing:
            self.recorder.finish(Activity.PREPARATION, name=frame.function.name)

    def optimizer_seen(self, frame: Frame) -> None:
        """The call ``frame`` applies an optimizer's update."""
        self._sees_optimizer = True
        if frame.start is not None and frame.ordinal is None:
            self._step(frame)

    def learn_number(self, frame: Frame) -> None:
        """Read the next step's number from a call's inputs, where nothing has told it yet."""
        if self._next_number is None and self._tries and frame.start is not None:
            self._tries -= 1
            self._next_number = step_number(frame.args, frame.kwargs, self.number_sources)

    def _step(self, frame: Frame) -> None:
        assert frame.start is not None
        annotations = self.annotations.open
        annotation = annotations[-1] if annotations else None
        number = None if annotation is None else annotation.number
        if annotation is None or not annotation.told:
            if number is None and self._next_number is None:
                self.learn_number(frame)
            frame.ordinal = self._tell(frame.start, number)
        if annotation is not None:
            annotation.told = True
        self._sees_steps = True

    def _tell(self, start: int, number: int | None) -> int:
        number = self._next_number if number is None else number
        self._next_number = None if number is None else number + 1
        return self.recorder.step(number, at=start)

    def _consider(self, frame: Frame, result: Any) -> None:
        """A first call that differentiates has ended: may it be hand-written SGD?"""
        function = frame.function
        if function.carries_state is None:
            function.carries_state = carries_state(frame.args, frame.kwargs, result)
        if not function.carries_state:
            return
        if self.annotations.open:
            self._candidates[function] = None
            self._step(frame)
        else:
            self._candidates[function] = frame.start

    def _confirm(self, function: Function) -> None:
        start = self._candidates[function]
        if start is not None:
            self._candidates[function] = None
            self._tell(start, None)


def learn(what: Function) -> None:
    """A function like ``what`` runs inside the calls open on this thread: they do what it does."""
    frames = thread.frames
    for frame in frames:
        function = frame.function
        if function.jitted:
            function.optimizes |= what.optimizes
            function.differentiates |= what.differentiates
            function.initializes |= what.initializes
    if what.optimizes and frames[0].function.jitted:
        frames[0].loop.optimizer_seen(frames[0])


def gradient_taken() -> None:
    """``jax.grad`` runs: the jitted functions open on this thread differentiate."""
    frames = thread.frames
    for frame in frames:
        frame.function.differentiates |= frame.function.jitted
    if frames:
        frames[0].loop.learn_number(frames[0])


def observing(hooks: Hooks, owner: Any, name: str, function: Function) -> None:
    """Observe the calls of ``owner.name`` as calls of ``function``.

    With ``optimizes`` set: called while a jitted function is traced, it makes that one a step function;
    called by itself, it is a step.
    """
    loop, guard = loop_of(hooks), hooks.guard
    original = getattr(owner, name)

    @functools.wraps(original)
    @wrapper
    def observed(*args: Any, **kwargs: Any) -> Any:
        try:
            return loop.call(guard, function, original, args, kwargs)
        except BaseException as error:
            without_this_frame(error)
            raise

    hooks.patches.set(owner, name, observed)


_loops: dict[int, Loop] = {}


def loop_of(hooks: Hooks) -> Loop:
    """The loop of the recorder that ``hooks`` tell; adapters that share a recorder share it."""
    key = id(hooks.recorder)
    loop = _loops.get(key)
    if loop is None:
        off = DEVICE_TIME.read() == "off"
        loop = Loop(hooks.recorder, None if off else DeviceWatch(hooks.recorder, hooks.guard))
        _loops[key] = loop
        hooks.at_close.append(functools.partial(_close, key))
    return loop


def _close(key: int) -> None:
    loop = _loops.pop(key, None)
    if loop is not None:
        loop.close()
