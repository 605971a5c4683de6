"""How the process ends: completed, stopped by its user, with an exception, or with a code.

The interpreter remembers the exception that it has printed, but not the code of a ``SystemExit``. So
``sys.exit``, ``exit`` and ``quit`` are hooked: each raises its ``SystemExit`` as ever, and that carries
a witness which sees where the exception is dropped. Under a running frame the script caught it and
goes on; under none the process ends with it. A ``raise SystemExit(3)`` of the script's own cannot be
seen and looks like a completion.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from goodput_plugins.core.events import EXIT_CODE
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.patching import Patches, around, without_this_frame, wrapper


class Exits:
    """Sees with which code the process is asked to end.

    Args:
        progress: counts what the process has done; what goes on after an exit was asked for did not exit.
    """

    def __init__(self, progress: Callable[[], int]) -> None:
        self._progress = progress
        self._guard = Guard("exit")
        self._patches = Patches()
        self._asked: dict[int, tuple[int, bool, int]] = {}
        self._real: tuple[int, bool] | None = None
        self._expected: tuple[str, int] | None = None

    def install(self) -> None:
        """Hook what raises a ``SystemExit``."""
        self._patches.set(sys, "exit", _Exit(sys.exit, self._exiting))
        quitter = getattr(sys.modules.get("_sitebuiltins"), "Quitter", None)
        if quitter is not None:
            around(self._patches, quitter, "__call__", self._guard, after=lambda *ended: self._note(ended[-1]))

    def uninstall(self) -> None:
        """Put everything back."""
        self._patches.undo()

    def expect(self, how: str) -> None:
        """A trainer gave up for this reason, and is leaving the process unless something goes on after all."""
        self._expected = how, self._progress()

    def how(self) -> tuple[str, dict[str, int] | None]:
        """How the process ends, as END names it, and its data; for an exit function to ask."""
        error = getattr(sys, "last_type", None)
        if error is not None and not hasattr(sys, "ps1"):  # at a prompt, an error ends nothing
            return ("user" if issubclass(error, KeyboardInterrupt) else f"exception:{error.__name__}"), None
        code, by_user = self._real or self._last_asked()
        if by_user:
            return "user", {EXIT_CODE: code}
        if self._expected is not None and self._expected[1] == self._progress():
            how = self._expected[0]
            if code or how.startswith("signal:"):  # an exception that leaves no code was caught
                return how, ({EXIT_CODE: code} if code else None)
        return ("exception:SystemExit", {EXIT_CODE: code}) if code else ("completed", None)

    def _last_asked(self) -> tuple[int, bool]:
        """The newest exit whose exception is still held by something, if nothing has happened since."""
        code, by_user, progress = list(self._asked.values())[-1] if self._asked else (0, False, -1)
        return (code, by_user) if progress == self._progress() else (0, False)

    def _exiting(self, error: BaseException) -> None:
        self._guard(self._note, error)

    def _note(self, error: BaseException | None) -> None:
        if isinstance(error, SystemExit) and threading.current_thread() is threading.main_thread():
            witness = _Witness(self._dropped)
            self._asked[id(witness)] = status(error.code), _during_interrupt(error), self._progress()
            error.__dict__["_goodput_witness"] = witness

    def _dropped(self, witness: int, exits: bool) -> None:
        code, by_user, _ = self._asked.pop(witness)
        if exits:
            self._real = code, by_user


class _Witness:
    """Rides on an exception and tells when that is dropped, if need be after all modules are gone."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[int, bool], None]) -> None:
        self._tell = tell

    def __del__(
        self,
        frame: Callable[[], FrameType] = sys._getframe,
        here: Callable[[], int] = threading.get_ident,
        main: int | None = threading.main_thread().ident,
    ) -> None:
        self._tell(id(self), frame().f_back is None and here() == main)


class _Exit:
    """``sys.exit``, seen; like a built-in it does not become a method of a class that keeps it."""

    def __init__(self, host: Callable[..., Any], exiting: Callable[[BaseException], None]) -> None:
        self._host = host
        self._exiting = exiting
        self.__name__ = self.__qualname__ = "exit"
        self.__module__ = "sys"
        self.__doc__ = host.__doc__

    @wrapper
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], tuple):  # Python 3.11 exits otherwise where somebody has caught the exception
            return self._host(*args, **kwargs)
        try:
            return self._host(*args, **kwargs)
        except BaseException as error:
            self._exiting(error)
            without_this_frame(error)
            raise

    def __reduce__(self) -> str:
        return "exit"


def status(code: object) -> int:
    """The exit status that a ``SystemExit`` with this code gives, as a shell sees it."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _during_interrupt(error: BaseException | None) -> bool:
    """Whether a Ctrl-C was being handled when this was raised."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__context__
    return False
