"""What stands in for a jitted function, so that its calls are seen.

``jax.jit`` returns an object of a C++ type that can be neither subclassed nor patched. A :class:`Jitted`
behaves like the one it holds: same attributes, same class to ``isinstance``, same binding as a method, same
pickles and copies; only ``type(f)`` tells them apart. JAX itself jits by another name and gets none.
"""

from __future__ import annotations

import copy
import functools
import types
from typing import Any

import jax

from goodput_plugins.core.guard import Guard
from goodput_plugins.core.patching import Hooks, around, without_this_frame, wrapper
from goodput_plugins.jax.flags import Flags, flags_of
from goodput_plugins.jax.functions import Function, jitted_function, remember_stage, stage_function
from goodput_plugins.jax.loop import Loop
from goodput_plugins.jax.sharing import loop_of

TRACERS = ("lower", "trace", "eval_shape")
"""Methods of a jitted function that trace it without running it."""


class Jitted:
    """A jitted function whose calls are observed.

    ``__dict__`` is a copy of the jitted function's and holds nothing of ours: whoever wraps the function
    (``functools.wraps``, another ``jax.jit``) copies it.
    """

    __slots__ = ("__dict__", "__weakref__", "_goodput")

    def __init__(self, jitted: Any, function: Function, flags: Flags | None, loop: Loop, guard: Guard) -> None:
        self._goodput = (jitted, function, flags, loop, guard)
        functools.update_wrapper(self, jitted)
        self.__dict__["__wrapped__"] = getattr(jitted, "__wrapped__", jitted)
        for name in TRACERS:
            if name in self.__dict__:
                self.__dict__[name] = _tracing(getattr(jitted, name), function, flags, loop, guard)

    @wrapper
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        jitted, function, flags, loop, guard = self._goodput
        steady = loop.steady
        try:
            if flags is not None:
                function = guard(flags.set, args, kwargs) or function
            if steady is None or steady.function is not function or not steady.begins(args, kwargs):
                return loop.call(guard, function, jitted, args, kwargs)
            result = jitted(*args, **kwargs)
            steady.ends(result)
            return result
        except BaseException as error:
            if steady is not None:
                steady.failed(kwargs)
            without_this_frame(error)
            raise

    @wrapper
    def __getattr__(self, name: str) -> Any:
        jitted, function, flags, loop, guard = self._goodput
        try:
            value = getattr(jitted, name)
        except BaseException as error:
            without_this_frame(error)
            raise
        if name in TRACERS:
            return guard(_tracing, value, function, flags, loop, guard) or value
        return value

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return repr(self._goodput[0])

    def __reduce_ex__(self, protocol: Any) -> Any:
        jitted = self._goodput[0]
        if isinstance(jitted, types.FunctionType):  # functions are pickled by name
            return jitted.__qualname__
        return jitted.__reduce_ex__(protocol)

    def __copy__(self) -> Jitted:
        return self._goodput_again(copy.copy(self._goodput[0]))

    def __deepcopy__(self, memo: dict[int, Any]) -> Jitted:
        return self._goodput_again(copy.deepcopy(self._goodput[0], memo))

    def _goodput_again(self, jitted: Any) -> Jitted:
        held, function, flags, loop, guard = self._goodput
        return self if jitted is held else Jitted(jitted, function, flags, loop, guard)

    @property
    def __class__(self) -> Any:
        return type(self._goodput[0])

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError("__class__ assignment is not supported for jitted functions")


def _tracing(method: Any, function: Function, flags: Flags | None, loop: Loop, guard: Guard) -> Any:
    """A method that traces a jitted function, observed."""

    @functools.wraps(method)
    @wrapper
    def hooked(*args: Any, **kwargs: Any) -> Any:
        traced = function if flags is None else guard(flags.set, args, kwargs) or function
        try:
            stage = loop.trace(guard, traced, method, args, kwargs)
        except BaseException as error:
            without_this_frame(error)
            raise
        if isinstance(stage, jax.stages.Traced | jax.stages.Lowered):
            guard(remember_stage, stage, traced)
        return stage

    return hooked


def install_jitted(hooks: Hooks) -> None:
    """Make ``jax.jit`` and ``jax.pmap`` return :class:`Jitted`, and observe compiled stages."""
    for name in ("jit", "pmap"):
        hooks.patches.set(jax, name, observed_maker(hooks, getattr(jax, name)))
    around(hooks.patches, jax.stages.Traced, "lower", hooks.guard, before=_self, after=_passes_on)
    around(hooks.patches, jax.stages.Lowered, "compile", hooks.guard, before=_self, after=_passes_on)
    _observe_compiled(hooks)


def observed_maker(hooks: Hooks, original: Any) -> Any:
    """``original``, which makes jitted functions, making :class:`Jitted`."""
    guard, loop = hooks.guard, loop_of(hooks)

    def wrap(jitted: Any, settings: dict[str, Any]) -> Jitted:
        host = getattr(jitted, "__wrapped__", jitted)
        function = jitted_function(host)
        return Jitted(jitted, function, flags_of(function, host, settings), loop, guard)

    def observed(make: Any, settings: dict[str, Any]) -> Any:
        @functools.wraps(make)
        @wrapper
        def hooked(*args: Any, **kwargs: Any) -> Any:
            try:
                result = make(*args, **kwargs)
            except BaseException as error:
                without_this_frame(error)
                raise
            # Without ``lower`` it was called as in ``@jax.jit(static_argnums=0)``, and makes what is jitted later.
            return guard(wrap if hasattr(result, "lower") else observed, result, settings | kwargs) or result

        return hooked

    return observed(original, {})


def _observe_compiled(hooks: Hooks) -> None:
    original, guard, loop = jax.stages.Compiled.__call__, hooks.guard, loop_of(hooks)

    @functools.wraps(original)
    @wrapper
    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        function = guard(stage_function, self)
        try:
            if function is None:
                return original(self, *args, **kwargs)
            return loop.call(guard, function, functools.partial(original, self), args, kwargs)
        except BaseException as error:
            without_this_frame(error)
            raise

    hooks.patches.set(jax.stages.Compiled, "__call__", hooked)


def _self(stage: Any, *args: Any, **kwargs: Any) -> Any:
    return stage


def _passes_on(stage: Any, result: Any, error: BaseException | None) -> None:
    function = stage_function(stage)
    if function is not None and result is not None:
        remember_stage(result, function)
