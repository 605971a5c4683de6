"""Hooking a framework: replace an attribute, and put it back.

Every adapter uses :func:`around`, so every hook has the same shape and the same promise: the host's
call is made exactly once, with the host's arguments, outside our guard; its result and its errors
are its own. Only ``before`` and ``after`` are ours, and the guard stands around both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from goodput_plugins.core.guard import Guard
from goodput_plugins.core.recorder import NullRecorder

Before = Callable[..., Any]
"""Called with the host's arguments; what it returns is handed to ``after``."""
After = Callable[[Any, Any, BaseException | None], None]
"""Called with what ``before`` returned, the host's result (None if it raised) and its error."""


class Patches:
    """Attributes that were replaced, and what stood there before."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, bool]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` to ``value``; :meth:`undo` restores it."""
        own = vars(owner)
        self._undo.append((owner, name, own.get(name), name in own))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore everything, newest first."""
        while self._undo:
            owner, name, value, own = self._undo.pop()
            if own:
                setattr(owner, name, value)
            else:
                delattr(owner, name)


@dataclass
class Hooks:
    """What an adapter's ``install(module, hooks)`` is given.

    Attributes:
        recorder: where its hooks tell what they see.
        guard: what its own code runs under.
        patches: through which it replaces attributes.
        at_close: functions to call before the process ends, e.g. to stop a thread of the adapter.
    """

    recorder: NullRecorder
    guard: Guard
    patches: Patches = field(default_factory=Patches)
    at_close: list[Callable[[], None]] = field(default_factory=list)

    def uninstall(self) -> None:
        """Put everything back as it was."""
        self.patches.undo()
        for call in self.at_close:
            self.guard(call)
        self.at_close.clear()


def around(
    patches: Patches,
    owner: Any,
    name: str,
    guard: Guard,
    *,
    before: Before | None = None,
    after: After | None = None,
) -> None:
    """Make ``owner.name`` (a function, or a method of a class) call ``before`` and ``after`` too.

    Raises:
        AttributeError: ``owner`` has no ``name``: this version of the framework is unknown to us.
    """
    original = getattr(owner, name)
    static = vars(owner).get(name)
    function = static.__func__ if isinstance(static, classmethod | staticmethod) else original

    @functools.wraps(function)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        token = guard(before, *args, **kwargs) if before is not None else None
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if after is not None:
                guard(after, token, None, error)
            raise
        if after is not None:
            guard(after, token, result, None)
        return result

    wrapper: Any = type(static)(hooked) if isinstance(static, classmethod | staticmethod) else hooked
    patches.set(owner, name, wrapper)
