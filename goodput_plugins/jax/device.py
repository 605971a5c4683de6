"""When each step's work was done on the device.

A jitted call returns as soon as its work is queued, so the host's clock says little about the device. One
daemon thread asks a small output of each step whether it is ready, and tells the time when it is. It
polls and never blocks in native code: a thread that waits there when the interpreter ends aborts the
process. It holds one small array per step in flight, and none that is donated: the state of a step goes to
the next call, the loss does not. A step that cannot be asked is not sampled; nor is each of several short
ones that are queued behind each other, between which the device cannot have been idle.

While the host runs Python the thread gets its turn up to 5 ms late. Where that would matter, because the
host goes to wait for data, save or compile, the host's own thread looks first (``recorder.at_begin``).
"""

from __future__ import annotations

import functools
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
POLLS_PER_STEP = 64
"""Once a step may end, a poll comes after this fraction of the time waited: seen late by under 1 % on average."""
SHORTEST_SAMPLE = 5_000_000
"""Of the steps in flight, those shorter are waited for together: a poll costs a processor about 20 us."""
RECENT = 8
"""A step is first asked when it has run for most of the shortest of so many steps before it."""
JOIN_SECONDS = 1.0


class InFlight:
    """A step whose work was queued on the device.

    Attributes:
        leaf: the output to ask; None once it has answered.
        done: when it was first seen to be ready.
    """

    __slots__ = ("dispatched", "done", "leaf", "ordinal")

    def __init__(self, ordinal: int, dispatched: int, leaf: Any) -> None:
        self.ordinal = ordinal
        self.dispatched = dispatched
        self.leaf = leaf
        self.done: int | None = None


class DeviceWatch:
    """Sees steps end on the device and tells ``recorder.device_done``."""

    def __init__(self, recorder: NullRecorder, guard: Guard) -> None:
        self._recorder = recorder
        self._guard = guard
        self._in_flight: SimpleQueue[InFlight | None] = SimpleQueue()
        self._newest: InFlight | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False

    def watch(self, frame: Frame, ordinal: int, result: Any) -> None:
        """A step's call has returned ``result``: see when it is ready."""
        leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
        if leaf is None:
            return
        ready = _answers(leaf)
        if ready is None:
            return
        if ready:
            self._recorder.device_done(ordinal, self._recorder.now())
        elif self._in_flight.qsize() < MOST_IN_FLIGHT:
            if self._thread is None:
                self._start()
            self._newest = InFlight(ordinal, self._recorder.now(), leaf)
            self._in_flight.put(self._newest)

    def close(self) -> None:
        """Stop the thread; what is still in flight is not sampled."""
        self._recorder.at_begin = None
        self._stopping = True
        self._in_flight.put(None)
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _start(self) -> None:
        self._recorder.at_begin = functools.partial(self._guard, self._look)
        self._thread = threading.Thread(target=self._guard, args=(self._run,), name="goodput-device", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        """Note that the newest step is done, if it is: the thread may learn it too late."""
        newest = self._newest
        if newest is not None and _answers(newest.leaf):
            newest.done = self._recorder.now()
            self._newest = None

    def _run(self) -> None:
        recent: deque[int] = deque(maxlen=RECENT)
        free = 0
        while (step := self._in_flight.get()) is not None and not self._stopping:
            since = max(free, step.dispatched)
            shortest = min(recent, default=0)
            count = 1
            while shortest * count < SHORTEST_SAMPLE and recent and not self._in_flight.empty():
                step = self._in_flight.get()
                if step is None:
                    return
                count += 1
            done = self._wait(step, since, since + shortest * count * 7 // 8, count)
            step.leaf = None
            if done is not None:
                self._recorder.device_done(step.ordinal, done)
                recent.append((done - since) // count)
                free = done

    def _wait(self, step: InFlight, since: int, earliest: int, count: int) -> int | None:
        """When the step was seen to be done; None if that cannot be known."""
        clock = self._recorder.now
        while not (answer := _answers(step.leaf)):
            if answer is None or self._stopping:
                return step.done
            now = clock()
            pause = max(earliest - now, (now - since) // POLLS_PER_STEP, SHORTEST_POLL * count)
            time.sleep(min(pause, LONGEST_POLL) / 1e9)
        return step.done or clock()


def _answers(leaf: Any) -> bool | None:
    """Whether an array is ready; None if it cannot be asked: it was donated to a later call."""
    try:
        return leaf is not None and leaf.is_ready()
    except RuntimeError:
        return None
