"""Steps of a host that waits for each before it calls the next: that call tells that the step before is done.

So nothing is asked of them but, now and then, the newest; and to tell of each, the training thread keeps one number.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.jax.in_flight import answers
from goodput_plugins.jax.pace import Pace


class Followed:
    """Steps in a row; the host's thread appends, the thread that watches the device takes.

    Args:
        ordinal: of the first step.
        called: when it was called, ns.

    Attributes:
        calls: when each step was called of which it is not told yet when it was done; never empty.
        newest: the output of the last call to ask; None while the call goes on.
        ordinal: of the first of ``calls``.
        over: no further step will be taken from it.
    """

    __slots__ = ("_came_by", "_probed", "_seen", "_told", "calls", "newest", "ordinal", "over")

    def __init__(self, ordinal: int, called: int) -> None:
        self.ordinal = ordinal
        self.calls = deque((called,))
        self.newest: Any = None
        self.over = False
        self._seen: dict[int, int] = {}
        self._probed = self._told = self._came_by = 0

    def look(self, clock: Callable[[], int]) -> bool:
        """Note that the newest step is done, if it is (any thread)."""
        count = len(self.calls)
        leaf, called = self.newest, self.calls[-1]
        if called in self._seen:
            return True
        if not answers(leaf) or len(self.calls) != count:  # nothing to ask yet, or of another call
            return False
        self._seen[called] = clock()
        return True

    def come_by(self, clock: Callable[[], int], usual: int) -> None:
        """Look after a while: a step that was done meanwhile took what is ``usual`` (ns; 0: unknown), if it can."""
        called, before = self.calls[-1], self._came_by
        if called not in self._seen and self.look(clock) and usual and called in self._seen:
            self._seen[called] = min(self._seen[called], max(before, called + usual))
        self._came_by = clock()

    def tell(self, recorder: NullRecorder, pace: Pace) -> int:
        """Tell when steps were done: those that were followed by another, and the newest if it was seen to be done.

        Returns:
            When the last of them was done; 0 if there was none.
        """
        calls, done = self.calls, list[int]()
        while len(calls) > 1:
            called, following = calls.popleft(), calls[0]
            done.append(min(self._seen.pop(called, following), following))
            pace.took(done[-1] - called)
            if self._probed == called:
                pace.followed(called, done[-1], following)
        taken = len(done)
        if calls[0] in self._seen:
            done.append(self._seen[calls[0]])
        told = self._told
        if len(done) > told:
            recorder.device_done(self.ordinal + told, *done[told:])
        self.ordinal += taken
        self._told = len(done) - taken
        return done[-1] if done else 0

    def probe(self, clock: Callable[[], int], pace: Pace, going: Callable[[], bool]) -> None:
        """Look finely at the newest step, unless it is done already, until it is or the next is called."""
        if self.look(clock):
            return
        count, called = len(self.calls), self.calls[-1]
        self._probed = called
        while going() and not self.look(clock) and len(self.calls) == count:
            time.sleep(pace.pause(clock(), called, called + pace.shortest * 7 // 8, 1))
