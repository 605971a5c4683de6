"""What an agent does again and again, each in its own rhythm: a fault of one keeps no other from its work."""

from __future__ import annotations

import random
import traceback
from typing import Protocol

from goodput_plugins.agent.status import log
from goodput_plugins.exporters.errors import Unreached

SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the first further try, and before the next ones at most."""


class Duty(Protocol):
    """Something to be done.

    Attributes:
        interval: seconds between two times.
    """

    interval: float

    def __call__(self) -> bool | None:
        """Do what there is to do now; whether it was too much for one time, so that it is to go on soon.

        Raises:
            Unreached: it could not be done; it is tried again, ever more seldom.
        """

    def unsent(self) -> int:
        """How many bytes of the journals are still to be sent."""


class Turn:
    """A duty, and when it is its turn again.

    Attributes:
        error: what the last try failed with; empty if it did not.
        slow: and that will hardly be better soon.
        goes_on: there is more to do at once.
    """

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.error = ""
        self.slow = False
        self.goes_on = False
        self._failures = 0
        self._due = float("-inf")

    def go(self, now: float, *, asked: bool) -> None:
        """Do it, if it is its turn, or if somebody waits for it."""
        if now < self._due and not asked:
            return
        self.goes_on = False
        try:
            self.goes_on = bool(self.duty())
        except Unreached as error:
            self._failed(now, str(error), slow=error.slow)
        except Exception as error:
            if not self.error:
                log(f"a fault of goodput-plugins, please report it:\n{traceback.format_exc()}")
            self._failed(now, f"{type(error).__name__}: {error}", slow=True)
        else:
            if self.error:
                log(f"sending again, after {self._failures} failed tries.")
            self._failures, self.error, self.slow = 0, "", False
            self._due = now if self.goes_on else now + self.duty.interval

    def pause(self, now: float) -> float:
        """How long it has time, s."""
        return max(0.0, self._due - now)

    def _failed(self, now: float, text: str, *, slow: bool) -> None:
        if text != self.error:
            log(f"cannot send now: {text}; what is recorded stays on disk and is sent later.")
        longest = LONGEST_PAUSE if slow else min(LONGEST_PAUSE, SHORTEST_PAUSE * 2 ** min(self._failures, 10))
        self._failures += 1
        self.error, self.slow = text, slow
        self._due = now + longest * random.uniform(0.5, 1.0)
