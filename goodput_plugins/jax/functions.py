"""Facts about functions, learnt while they are traced, and the calls open on each thread.

JAX traces a function once and remembers the result by the Python function itself, so what was learnt
is kept by the same key: a second ``jax.jit`` of it, or a call after ``eval_shape``, is not traced again.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from goodput_plugins.jax.outputs import SmallOutput

if TYPE_CHECKING:
    from goodput_plugins.jax.loop import Loop


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
    """

    __slots__ = (
        "__weakref__",
        "carries_state",
        "differentiates",
        "initializes",
        "jitted",
        "name",
        "optimizes",
        "output",
    )

    def __init__(self, name: str, *, jitted: bool = False, optimizes: bool = False, initializes: bool = False) -> None:
        self.name = name
        self.jitted = jitted
        self.optimizes = optimizes
        self.differentiates = False
        self.initializes = initializes
        self.carries_state: bool | None = None
        self.output = SmallOutput()


class Frame:
    """One call, from its begin to its end.

    Attributes:
        among: the calls open on its thread.
        start: when it began; None if it cannot be a step (it runs inside another, or is only traced).
        ordinal: of the step that it was told to be.
        preparing: whether it was told to be preparation.
    """

    __slots__ = ("among", "args", "function", "kwargs", "loop", "ordinal", "preparing", "start")

    def __init__(self, loop: Loop, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.among = thread.frames
        self.loop = loop
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.start: int | None = None
        self.ordinal: int | None = None
        self.preparing = False


class _Thread(threading.local):
    """The observed calls open on this thread, outermost first."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []


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
