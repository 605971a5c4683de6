"""How a trainer's exception ends the process.

A Ctrl-C ends in ``sys.exit(1)``, which the core sees for what it is. Lightning's answer to a SIGTERM, an exception of
its own, leaves the process with code 0; and a child that was spawned hands its exception to its parent and exits.
"""

from __future__ import annotations

from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.core.session import current


def tell_ending(recorder: NullRecorder, error: BaseException) -> None:
    """A trainer stops because of ``error``, which will leave the process unless it is caught."""
    session = current()
    if session.recorder is recorder and not isinstance(error, KeyboardInterrupt):
        session.ends_by("signal:SIGTERM" if _is_sigterm(error) else f"exception:{type(error).__name__}")


def _is_sigterm(error: BaseException) -> bool:
    return any(base.__name__ == "SIGTERMException" for base in type(error).__mro__)
