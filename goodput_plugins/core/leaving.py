"""How this process leaves: watched from the first sign of training on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from goodput_plugins import environ as env
from goodput_plugins.core.exits import Exits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from goodput_plugins.core.signals import Signals


class Leaving:
    """What asks this process to end, or ends it.

    Args:
        environ: the environment.
        progress: as :class:`Exits` takes it.

    Attributes:
        exits: exit codes and exceptions.
    """

    def __init__(self, environ: Mapping[str, str], progress: Callable[[], int]) -> None:
        self.exits = Exits(progress)
        self._environ = environ
        self._signals: Signals | None = None

    def watch(self, notice: Callable[[], None], ends: Callable[[], None]) -> None:
        """Hook what raises a ``SystemExit``, and SIGTERM as :class:`Signals` does."""
        from goodput_plugins.core.signals import Signals

        self.exits.install()
        self._signals = Signals(notice, ends, note=env.SIGTERM.read(self._environ) == "note")
        self._signals.install()

    def unwatch(self) -> None:
        """Put everything back."""
        self.exits.uninstall()
        if self._signals is not None:
            self._signals.uninstall()

    def give_back(self) -> None:
        """In a forked child: leave signals to it."""
        if self._signals is not None:
            self._signals.give_back()
