"""Facts about functions, learnt while they are traced, and the calls open on each thread.

JAX traces a function once and remembers the result by the Python function itself, so what was learnt
is kept by the same key: a second ``jax.jit`` of it, or a call after ``eval_shape``, is not traced again.
"""

from __future__ import annotations

import re
import threading
import weakref
from typing import TYPE_CHECKING, Any

from goodput_plugins.jax.inputs import Counter, shapes
from goodput_plugins.jax.outputs import SmallOutput

if TYPE_CHECKING:
    from goodput_plugins.jax.loop import Loop
    from goodput_plugins.jax.sequence import Sequence


EVALUATES = re.compile(r"(?<![A-Za-z])(?:[Ee]val|[Vv]alid|[Tt]est)|(?:Eval|Valid|Test)")
"""In the name of what evaluates."""


class Function:
    """What is known of a function.

    Attributes:
        name: as a person would call it.
        jitted: whether the facts below may be learnt from what it calls.
        optimizes: it applies an optimizer's update.
        differentiates: it computes gradients.
        initializes: it builds a model or a train state.
        carries_state: it returns something of the structure of an input; None if not yet known.
        output: by which of its outputs the end of its work is recognized.
        evaluates: its name says that it evaluates.
        counter: what its first call's inputs counted; None: not read, or nothing was found.
        calls_per_step: how many calls make a step.
        counted_by: by which ``calls_per_step`` its calls are counted.
        micro_steps: where several calls make a step, how many were made.
        call_is_step: each of its calls is just one step.
        taken: for how many steps its last call was taken.
        leader: the function whose steps it takes; None before its first step.
        sequence: the one that its calls are counted in.
        variants: the same of the function as each combination of its static arguments switches it.
    """

    __slots__ = (
        "__weakref__",
        "_steps_by_shapes",
        "call_is_step",
        "calls_per_step",
        "carries_state",
        "counted_by",
        "counter",
        "differentiates",
        "evaluates",
        "initializes",
        "jitted",
        "leader",
        "micro_steps",
        "name",
        "optimizes",
        "output",
        "sequence",
        "steps_per_call",
        "taken",
        "variants",
    )

    def __init__(self, name: str, *, jitted: bool = False, optimizes: bool = False, initializes: bool = False) -> None:
        self.name = name
        self.jitted = jitted
        self.optimizes = optimizes
        self.differentiates = False
        self.initializes = initializes
        self.carries_state: bool | None = None
        self.output = SmallOutput()
        self.evaluates = jitted and EVALUATES.search(name.rpartition("<locals>.")[2]) is not None
        self.counter: Counter | None = None
        self.calls_per_step = self.counted_by = 1
        self.micro_steps = 0
        self.leader: Function | None = None
        self.sequence: Sequence | None = None
        self.steps_per_call = self.taken = 1
        self.call_is_step = True
        self._steps_by_shapes: dict[Any, int] = {}
        self.variants: dict[tuple[Any, ...], Function] = {}

    def takes_steps(self, count: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call with such inputs takes ``count`` steps."""
        self.call_is_step &= count == 1
        self.steps_per_call = count
        self._steps_by_shapes[shapes(args, kwargs)] = count

    def steps_in(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """How many steps a call with these inputs takes."""
        known = self._steps_by_shapes
        return known.get(shapes(args, kwargs), self.steps_per_call) if len(known) > 1 else self.steps_per_call


class Frame:
    """One call, from its begin to its end.

    Attributes:
        among: the calls open on its thread.
        start: when it began; None if it cannot be a step (it runs inside another, or is only traced).
        called: when it was called, where it is a step that began before.
        ordinal: of the step that it was told to be.
        preparing: whether it was told to be preparation.
        depth: how many loops over steps (``lax.scan``) were being traced around it.
        between: it is no step, but was called between two.
        part: it is no step, but a piece of the one that is told next.
        again: the call before it was of the same function, and took the long way too.
    """

    __slots__ = (
        "again",
        "among",
        "args",
        "between",
        "called",
        "depth",
        "function",
        "kwargs",
        "loop",
        "ordinal",
        "part",
        "preparing",
        "start",
    )

    def __init__(self, loop: Loop, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.among = thread.frames
        self.depth = len(thread.scans)
        self.loop = loop
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.start: int | None = None
        self.called: int | None = None
        self.ordinal: int | None = None
        self.preparing = False
        self.between = self.part = self.again = False


class Annotation:
    """An open ``StepTraceAnnotation``: what runs in it is at most one step."""

    __slots__ = ("number", "start", "told")

    def __init__(self, number: int | None, start: int) -> None:
        self.number = number
        self.start = start
        self.told = False


class Annotations(threading.local):
    """Those that are open on this thread, outermost first; None for one that is no step's.

    Attributes:
        hold_parts: there was one in which several step functions were called.
    """

    def __init__(self) -> None:
        self.open: list[Annotation | None] = []
        self.hold_parts = False


class _Thread(threading.local):
    """What is open on this thread, outermost first: observed calls, and loops that are being traced.

    Attributes:
        compiled: when the last compilation on it ended.
        given: the arguments of the innermost call of a library that hands them on in another form.
    """

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.scans: list[int] = []
        self.compiled = 0
        self.given: tuple[Any, Any] | None = None


thread = _Thread()

_jitted: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()
_stages: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()


def jitted_function(fun: Any) -> Function:
    """The facts about the Python function ``fun`` that is being jitted."""
    name = getattr(fun, "__qualname__", None) or getattr(getattr(fun, "func", None), "__qualname__", None)
    new = Function(name or type(fun).__qualname__, jitted=True)
    try:
        return _jitted.setdefault(fun, new)
    except Exception:  # a callable may refuse to be hashed or compared; then its facts are not shared
        return new


def remember_stage(stage: Any, function: Function) -> None:
    """``stage`` (traced, lowered, compiled) comes from ``function``."""
    _stages[stage] = function


def stage_function(stage: Any) -> Function | None:
    """Which function a traced, lowered or compiled stage comes from."""
    return _stages.get(stage)
