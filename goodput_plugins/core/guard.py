"""The one guard that stands between our code and the training job.

An adapter never calls our own code from inside a framework except through a guard::

    guard = Guard("orbax")
    guard(recorder.begin, Activity.SAVE)       # ours: cannot raise into the host
    result = save(*args)                       # the host's: not guarded, its errors are its own

The first fault of a plugin is written once to stderr, with a traceback and the plugin's name, and
switches that plugin off; from then on its guard does nothing. ``BaseException`` (Ctrl-C, exit)
passes. In tests :func:`goodput_plugins.testing.strict` makes every swallowed error re-raise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

strict = False
"""Tests set this: an error of ours is raised instead of said."""


class Guard:
    """Runs our code for one plugin; the first error switches the plugin off.

    Attributes:
        plugin: the plugin's name, as the table in ``auto`` spells it.
        on: False after the first fault.
    """

    __slots__ = ("on", "plugin")

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.on = True

    def __call__(self, ours: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        """The result of ``ours(*args, **kwargs)``, or None if it failed or the plugin is off."""
        if not self.on:
            return None
        try:
            return ours(*args, **kwargs)
        except Exception as error:
            self.failed(error)
            return None

    def anyway(self, ours: Callable[[], object], /) -> None:
        """Run ``ours`` also if the plugin is off: what puts things back."""
        try:
            ours()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Switch the plugin off and say so once."""
        if strict:
            raise error
        if not self.on or isinstance(error, RecursionError):  # the host's own depth, which left us no room
            return
        self.on = False
        say(
            f"the plugin '{self.plugin}' failed and is off from here on; training is not affected.",
            "Its buckets will miss what comes after. Please report this traceback:",
            error=error,
        )
        _record_fault(self.plugin)


def _record_fault(plugin: str) -> None:
    """Put it into the journal as well, if this process has one and that is not what failed."""
    session = sys.modules.get("goodput_plugins.core.session")
    try:
        if session is not None:
            session.note_fault(plugin)
    except Exception:  # it was said
        pass


of_process: dict[str, Guard] = {}
"""The guards that :func:`guard_of` has given."""


def guard_of(plugin: str) -> Guard:
    """The one guard of a plugin in this process: whichever way the plugin comes in, it says its fault once."""
    guard = of_process.get(plugin)
    if guard is None:
        guard = of_process[plugin] = Guard(plugin)
    return guard


def say(*sentences: str, error: BaseException | None = None) -> None:
    """Write a message to stderr, prefixed with our name; never raises, never uses ``logging``."""
    try:
        text = "goodput: " + " ".join(sentences) + "\n"
        if error is not None:
            import traceback

            text += "".join(traceback.format_exception(error))
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:  # a closed or broken stderr is not the training job's problem
        pass
