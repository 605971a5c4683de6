"""The heartbeat of a recording process: a daemon thread of its own.

At the end that thread also stops what plugins run, so that the exit can stop waiting for a plugin that hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from goodput_plugins.core.guard import Guard, say

INTERVAL = 5.0
"""Seconds between two heartbeats."""
PATIENCE = 2.0
"""How long the exit waits for what plugins run, seconds."""


class Heart:
    """Beats until the process ends.

    Args:
        beat: what to do every :data:`INTERVAL`.
        guard: that of the session.

    Attributes:
        at_stop: functions to call once, at the end, e.g. to stop a thread of an adapter.
    """

    def __init__(self, beat: Callable[[], None], guard: Guard) -> None:
        self.at_stop: list[Callable[[], None]] = []
        self._beat = beat
        self._guard = guard
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to beat; where no thread can be started, say so."""
        thread = threading.Thread(target=self._guard, args=(self._run,), name="goodput-heartbeat", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            say(f"no heartbeat is recorded ({error}); a watcher may take the run for lost. Training goes on.")
        else:
            self._thread = thread

    def still(self) -> None:
        """Beat no more, and wait for nothing."""
        self._ended.set()

    def stop(self) -> None:
        """Beat no more; call what is to be called, and wait for it as long as :data:`PATIENCE`."""
        self._ended.set()
        if self._thread is None:
            self._call_all()
            return
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            say(f"a plugin did not stop within {PATIENCE:.0f} s; the process ends without it.")

    def abandon(self) -> None:
        """This is a forked child, in which the thread does not exist."""
        self.at_stop.clear()
        self._thread = None
        self._ended = threading.Event()  # another thread of the parent may have held its lock

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self._guard(self._beat)
        self._call_all()

    def _call_all(self) -> None:
        while self.at_stop:
            Guard("closing")(self.at_stop.pop())
