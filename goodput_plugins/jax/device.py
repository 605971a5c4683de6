"""When each step's work was done on the device.

A jitted call returns as soon as its work is queued, so the host's clock says little about the device. One
daemon thread asks a small output of each step whether it is ready, and tells the time when it is. It
polls and never blocks in native code: a thread that waits there when the interpreter ends aborts the
process. It holds one small array per step in flight, and none that is donated: the state of a step goes to
the next call, the loss does not. A step that cannot be asked is not sampled; nor is each of several short
ones that are queued behind each other, between which the device cannot have been idle.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import Any

from goodput_plugins.core.guard import Guard
from goodput_plugins.core.recorder import NullRecorder
from goodput_plugins.jax.functions import Frame

MOST_IN_FLIGHT = 256
"""Steps beyond it are not sampled."""
SHORTEST_POLL = 200_000
LONGEST_POLL = 20_000_000
POLLS_PER_STEP = 16
"""Once a step may end, a poll comes after this fraction of the time waited: it is seen 3 % late on average."""
SHORTEST_SAMPLE = 5_000_000
"""Of the steps in flight, those shorter are waited for together: a poll costs a processor about 20 us."""
RECENT = 8
"""A step is first asked when it has run for most of the shortest of so many steps before it."""
JOIN_SECONDS = 1.0


class DeviceWatch:
    """Sees steps end on the device and tells ``recorder.device_done``."""

    def __init__(self, recorder: NullRecorder, guard: Guard) -> None:
        self._recorder = recorder
        self._guard = guard
        self._in_flight: SimpleQueue[tuple[int, int, Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def watch(self, frame: Frame, ordinal: int, result: Any) -> None:
        """A step's call has returned ``result``: see when it is ready."""
        leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
        if leaf is None:
            return
        try:
            ready = leaf.is_ready()
        except RuntimeError:  # deleted already: the host gave it away inside the call
            return
        if ready:
            self._recorder.device_done(ordinal, self._recorder.now())
        elif self._in_flight.qsize() < MOST_IN_FLIGHT:
            if self._thread is None:
                self._start()
            self._in_flight.put((ordinal, self._recorder.now(), leaf))

    def close(self) -> None:
        """Stop the thread; what is still in flight is not sampled."""
        self._stopping = True
        self._in_flight.put(None)
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._guard, args=(self._run,), name="goodput-device", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        recent: deque[int] = deque(maxlen=RECENT)
        free = 0
        while (item := self._in_flight.get()) is not None and not self._stopping:
            since = max(free, item[1])
            shortest = min(recent, default=0)
            steps = 1
            while shortest * steps < SHORTEST_SAMPLE and recent and not self._in_flight.empty():
                item = self._in_flight.get()
                if item is None:
                    return
                steps += 1
            done = self._wait(item[2], since, since + shortest * steps * 7 // 8)
            if done is not None:
                self._recorder.device_done(item[0], done)
                recent.append((done - since) // steps)
                free = done
            del item

    def _wait(self, leaf: Any, since: int, earliest: int) -> int | None:
        """When ``leaf`` was seen to be ready; None if that cannot be known."""
        clock = self._recorder.now
        try:
            while not leaf.is_ready():
                if self._stopping:
                    return None
                now = clock()
                pause = max(earliest - now, (now - since) // POLLS_PER_STEP, SHORTEST_POLL)
                time.sleep(min(pause, LONGEST_POLL) / 1e9)
        except RuntimeError:  # deleted: the array was donated to a later call
            return None
        return clock()
