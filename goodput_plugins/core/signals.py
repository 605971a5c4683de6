"""SIGTERM, the usual notice before a machine is taken away.

By default nothing of ours handles a signal. Where the host handles SIGTERM in Python, its handler is
chained: it runs as ever, and before it the notice is recorded. The host sees its own handler wherever
it looks. ``GOODPUT_SIGTERM=note`` asks for more: see :mod:`goodput_plugins.core.sigterm`.

A handler that a library set behind Python's back, as JAX's preemption service does, stays untouched.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from typing import Any

from goodput_plugins.core.guard import Guard, say
from goodput_plugins.core.patching import Patches, without_this_frame, wrapper
from goodput_plugins.core.sigterm import SigtermHandler, c_handler

SIGTERM = signal.SIGTERM


class Signals:
    """What this process does about SIGTERM while it records.

    Args:
        notice: tells that a SIGTERM arrived; called on any thread, also inside a signal handler.
        ends: tells that the process ends by it now.
        note: whether to handle it where nobody does.
    """

    def __init__(self, notice: Callable[[], None], ends: Callable[[], None], *, note: bool) -> None:
        self._guard = Guard("signals")
        self._patches = Patches()
        self._notice = notice
        self._getsignal = signal.getsignal
        self._ours = SigtermHandler(notice, ends) if note else None

    def install(self) -> None:
        """Chain what handles SIGTERM and what will; if asked, handle it where nothing does."""
        set_handler = signal.signal
        self._hook("signal", self._instead_of, self._shown)
        self._hook("getsignal", _as_given, self._shown)
        if self._ours is not None:
            self._hook("set_wakeup_fd", _as_given, self._ours.shown_wakeup_fd)
        present = self._getsignal(SIGTERM)
        if threading.current_thread() is not threading.main_thread():
            self._refuse("training begins on a thread that may not handle signals")
        elif _is_foreign(present) or _handed_back:
            self._refuse("another library handles SIGTERM, as JAX's preemption service does")
        elif callable(present):
            set_handler(SIGTERM, _Chained(present, self._noticed))
        elif present == signal.SIG_DFL and self._ours is not None:
            self._ours.take()
            _taken.append(self._ours)

    def uninstall(self) -> None:
        """Put everything back, as far as this thread may."""
        self.give_back()
        present = self._getsignal(SIGTERM)
        if not isinstance(present, _Chained):
            self._patches.undo()
        elif threading.current_thread() is threading.main_thread() and not _is_foreign(present):
            self._patches.undo()
            signal.signal(SIGTERM, present.host)

    def give_back(self) -> None:
        """Handle nothing ourselves any more: the process ends, or is a forked child."""
        if self._ours is not None:
            self._ours.give_back()

    def _noticed(self) -> None:
        self._guard(self._notice)

    def _refuse(self, why: str) -> None:
        if self._ours is not None:
            say(f"GOODPUT_SIGTERM=note does nothing here: {why}. What happens on SIGTERM stays as it was.")

    def _hook(self, name: str, given: Callable[..., Any], shown: Callable[..., Any]) -> None:
        """Hook a function of ``signal``: ``given`` may replace its last argument, ``shown`` its result."""
        original, guard = getattr(signal, name), self._guard

        @functools.wraps(original)
        @wrapper
        def hooked(*args: Any, **kwargs: Any) -> Any:
            ours = guard(given, *args, **kwargs) or (args, kwargs)
            try:
                result = original(*ours[0], **ours[1])
            except BaseException as error:
                without_this_frame(error)
                raise
            told = guard(shown, result, *args, **kwargs)
            return result if told is None else told

        self._patches.set(signal, name, hooked)

    def _instead_of(
        self, signalnum: Any = None, handler: Any = None, *rest: Any, **wrong: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments with which ``signal.signal`` is called; None: with those of the host."""
        if signalnum != SIGTERM:
            return None
        if callable(handler):
            return (signalnum, _Chained(handler, self._noticed)), {}
        if handler == signal.SIG_DFL and self._ours is not None and self._ours.taken:
            return (signalnum, self._ours), {}
        return None

    def _shown(self, stands: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What the host sees where this handler stands."""
        if isinstance(stands, _Chained):
            return stands.host
        return signal.SIG_DFL if isinstance(stands, SigtermHandler) else stands


class _Chained:
    """A handler of the host's, which tells us first."""

    def __init__(self, host: Callable[..., Any], noticed: Callable[[], None]) -> None:
        self.host = host
        self._noticed = noticed

    @wrapper
    def __call__(self, *args: Any) -> Any:
        self._noticed()
        try:
            return self.host(*args)
        except BaseException as error:
            without_this_frame(error)
            raise


_taken: list[SigtermHandler] = []
_handed_back = False


def hand_back() -> None:
    """Handle SIGTERM no more, for the life of this process: a library is about to."""
    global _handed_back
    _handed_back = True
    while _taken:
        _taken.pop().give_back()


def _as_given(*args: Any, **kwargs: Any) -> None:
    pass


def _is_foreign(handler: Any) -> bool:
    """Whether the system calls another handler for SIGTERM than the one that Python knows."""
    actual = c_handler(SIGTERM)
    if callable(handler):  # then Python's own function should be there, the same as for Ctrl-C
        return actual != c_handler(signal.SIGINT) or not callable(signal.getsignal(signal.SIGINT))
    return actual != {signal.SIG_DFL: 0, signal.SIG_IGN: 1}.get(handler)
