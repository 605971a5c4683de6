"""Hooking a framework: replace an attribute, and put it back.

Every adapter uses :func:`around`, so every hook has the same shape and the same promise: the host's
call is made exactly once, with the host's arguments, outside our guard; its result and its errors
are its own. Only ``before`` and ``after`` are ours, and the guard stands around both.

A function that calls the host in the host's stead is a :func:`wrapper`, and lets an error of the host
go through :func:`without_this_frame`, so that neither a traceback nor a warning shows it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from goodput_plugins.core.guard import Guard
from goodput_plugins.core.null_recorder import NullRecorder

Before = Callable[..., Any]
"""Called with the host's arguments; what it returns is handed to ``after``."""
After = Callable[[Any, Any, BaseException | None], None]
"""Called with what ``before`` returned, the host's result (None if it raised) and its error."""

F = TypeVar("F", bound=Callable[..., Any])

WRAPPER = " (skipped like importlib._bootstrap)"
"""What follows the file's name in the code of a :func:`wrapper`."""


def wrapper(function: F) -> F:
    """Mark a function that calls the host in the host's stead.

    The ``stacklevel`` of ``warnings.warn`` passes over frames of the import system, which it knows by
    these words in their file's name; so a warning of the host still names the line that called it.
    """
    code = function.__code__
    function.__code__ = code.replace(co_filename=code.co_filename + WRAPPER)
    return function


def without_this_frame(error: BaseException) -> None:
    """Take the caller's own frame off the traceback of ``error``, which a bare ``raise`` then passes on."""
    traceback = error.__traceback__
    if traceback is not None and traceback.tb_frame is sys._getframe(1):
        BaseException.with_traceback(error, traceback.tb_next)  # an error's class may forbid to set attributes


class Patches:
    """Attributes that were replaced, and what stood there before."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any, Any, bool]] = []

    @property
    def places(self) -> list[tuple[Any, str]]:
        """Which attributes of which objects are replaced."""
        return [(owner, name) for owner, name, *_ in self._undo]

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name`` to ``value``; :meth:`undo` restores it."""
        own = vars(owner)
        self._undo.append((owner, name, value, own.get(name), name in own))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Restore everything, newest first; what somebody else has replaced since is theirs and stays."""
        while self._undo:
            owner, name, ours, value, own = self._undo.pop()
            if vars(owner).get(name) is not ours:
                continue
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
        self.guard.anyway(self.patches.undo)
        self.close()

    def close(self) -> None:
        """Stop what the adapter runs, each part for itself, also if the plugin is off."""
        while self.at_close:
            self.guard.anyway(self.at_close.pop())


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
    @wrapper
    def hooked(*args: Any, **kwargs: Any) -> Any:
        token = None
        if before is not None and guard.on:
            try:  # what calling the guard does, without a call more for each of the host's
                token = before(*args, **kwargs)
            except Exception as error:
                guard.failed(error)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if after is not None:
                guard(after, token, None, error)
            without_this_frame(error)
            raise
        if after is not None and guard.on:
            try:
                after(token, result, None)
            except Exception as error:
                guard.failed(error)
        return result

    value: Any = type(static)(hooked) if isinstance(static, classmethod | staticmethod) else hooked
    patches.set(owner, name, value)
