"""Preparation: the outermost call that builds a model or a train state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from goodput_plugins.core.patching import Hooks
from goodput_plugins.jax.functions import Function
from goodput_plugins.jax.loop import loop_of


def preparing(hooks: Hooks, owner: Any, name: str, title: Callable[..., str | None]) -> None:
    """Observe the calls of the method ``owner.name`` as preparation.

    Args:
        title: given the call's arguments, the name of what is prepared; None: not worth telling.
    """
    loop, guard = loop_of(hooks), hooks.guard
    static = vars(owner)[name]
    original = static.__func__ if isinstance(static, classmethod) else static

    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        named = guard(title, *args, **kwargs)
        if named is None:
            return original(*args, **kwargs)
        return loop.call(guard, Function(named, initializes=True), original, args, kwargs)

    hooks.patches.set(owner, name, classmethod(observed) if isinstance(static, classmethod) else observed)
