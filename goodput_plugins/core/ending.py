"""What runs at the very end of the process.

``atexit`` runs what was registered first last. To see the script's own exit functions run, ours has
to be registered before any of them: :func:`arm` is called at interpreter start when the switch is
set, long before there is anything to end; :func:`at_end` says what to do then.
"""

from __future__ import annotations

import atexit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_calls: list[Callable[[], None]] = []
_armed = False


def arm() -> None:
    """Take the place in ``atexit`` from which :func:`at_end` functions run; once is enough."""
    global _armed
    if not _armed:
        _armed = True
        atexit.register(_run)


def at_end(call: Callable[[], None]) -> None:
    """Call ``call``, which does not raise, when everything registered since :func:`arm` has run."""
    arm()
    _calls.append(call)


def _run() -> None:
    while _calls:
        _calls.pop()()
