"""Preparation: the outermost call that builds a model or a train state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from goodput_plugins.core.patching import Hooks, without_this_frame, wrapper
from goodput_plugins.jax.functions import Function
from goodput_plugins.jax.sharing import loop_of


def preparing(hooks: Hooks, owner: Any, name: str, title: Callable[..., str | None]) -> None:
    """Observe the calls of the method ``owner.name`` as preparation.

    Args:
        title: given the call's arguments, the name of what is prepared; None: not worth telling.
    """
    loop, guard = loop_of(hooks), hooks.guard
    static = vars(owner)[name]
    original = static.__func__ if isinstance(static, classmethod) else static

    def prepares(*args: Any, **kwargs: Any) -> Function | None:
        named = title(*args, **kwargs)
        return None if named is None else Function(named, initializes=True)

    @functools.wraps(original)
    @wrapper
    def observed(*args: Any, **kwargs: Any) -> Any:
        function = guard(prepares, *args, **kwargs)
        try:
            if function is None:
                return original(*args, **kwargs)
            return loop.call(guard, function, original, args, kwargs)
        except BaseException as error:
            without_this_frame(error)
            raise

    hooks.patches.set(owner, name, classmethod(observed) if isinstance(static, classmethod) else observed)
