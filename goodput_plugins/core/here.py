"""What each thread has open, and what the journal calls it."""

from __future__ import annotations

import threading
from itertools import count

from goodput_plugins.core.events import Activity


class Thread:
    """A thread that records.

    Attributes:
        thread: what the journal calls it: 0 is the main thread; others are numbered as they appear. The one that
            steps keeps its number when another goes on in its place.
        stack: its open activities, outermost first.
    """

    __slots__ = ("stack", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.stack: list[Activity] = []


class Here(threading.local):
    """The thread that asks: ``here.own``."""

    def __init__(self, numbers: count[int]) -> None:
        self.own = Thread(0 if threading.get_ident() == threading.main_thread().ident else next(numbers))


class Stepper:
    """The thread that steps."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._lock = threading.RLock()

    def is_now(self, here: Thread) -> int:
        """A thread steps: it takes over the number of the one that did so before, if neither has anything open.

        Returns:
            Its number.
        """
        with self._lock:
            before = self._thread
            if before is None:
                self._thread = here
            elif before is not here and not here.stack and not before.stack:
                here.thread, before.thread = before.thread, here.thread
                self._thread = here
            return here.thread
