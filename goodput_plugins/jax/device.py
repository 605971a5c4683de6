"""When each step's work was done on the device.

A jitted call returns as soon as its work is queued, so the host's clock says little about the device. One
daemon thread (:mod:`~goodput_plugins.jax.watching`) asks a small output of each step whether it is ready, and tells the
time when it is. It holds one small array per step in flight, and none that is donated: the state of a step goes to
the next call, the loss does not. A step that cannot be asked is not sampled. Evaluations, and
other work between steps, wait in the same queue, in the order in which the device does it.

The thread looks into its queue by itself (:mod:`~goodput_plugins.jax.pace`): to be woken for each step would cost the
host more than all the rest.
While the host runs Python it gets its turn up to 5 ms late. Where that would matter, because the
host goes to wait for data, save or compile, the host's own thread looks first (``recorder.at_begin``).
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from typing import Any

from goodput_plugins.core.guard import Guard
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.jax.figures import MOST_IN_FLIGHT, StepFunctions
from goodput_plugins.jax.followed import Followed
from goodput_plugins.jax.functions import Frame, thread
from goodput_plugins.jax.in_flight import Evaluation, InFlight, Part, answers, in_flight
from goodput_plugins.jax.watching import Watching, Work

JOIN_SECONDS = 1.0


class DeviceWatch:
    """Sees steps end on the device and tells ``recorder.device_done``.

    Attributes:
        functions: whose calls they are.
        in_flight: what the device works on, in order; once one step was watched, others may just be appended.
    """

    def __init__(self, recorder: NullRecorder, guard: Guard) -> None:
        self._recorder = recorder
        self._guard = guard
        self.functions = StepFunctions(recorder)
        self.in_flight: deque[Work] = deque()
        self._watching = Watching(recorder, self.functions, self.in_flight)
        self._thread: threading.Thread | None = None
        self._parts = 0
        self._follows = False

    def watch(self, frame: Frame, ordinal: int, result: Any) -> InFlight | None:
        """A step's call has returned ``result``: see when it is ready. Returns it if that is still to come."""
        leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
        ready = answers(leaf)
        if ready:
            self._follows = False
            now = self._recorder.now()
            self._recorder.device_done(ordinal, now)
            if self.functions.several:
                self.functions.took(frame.function.name, now - max(frame.start or now, thread.compiled))
                if self._thread is None:
                    self.functions.tell()
        elif ready is not None and len(self.in_flight) < MOST_IN_FLIGHT:
            step = in_flight(ordinal, self._recorder.now(), leaf, frame.function.name)
            self._put(step)
            return step
        else:
            self._follows = False
        return None

    def watch_part(self, frame: Frame, result: Any) -> None:
        """A piece of a step's work was queued: see when it is ready, and how long nothing was to do before."""
        if len(self.in_flight) >= MOST_IN_FLIGHT:
            self._follows = False
            return
        part, now = Part(), self._recorder.now()
        part.leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
        part.ordinal, part.name = frame.ordinal, frame.function.name
        part.dispatched = max(frame.called or frame.start or now, thread.compiled)
        part.done = now if answers(part.leaf) else None
        part.counts, part.follows = self._parts, self._follows
        self._parts, self._follows = self._parts + 1, True
        self._put(part)

    def look_at_part(self) -> None:
        """The host calls something: the piece of a step that was queued last may be done by now."""
        try:
            is_part = isinstance(self.in_flight[-1], Part)
        except IndexError:
            is_part = isinstance(self._watching.awaited, Part)
        if is_part:
            self._look()

    def watch_evaluation(self, evaluation: Evaluation) -> None:
        """An evaluation has begun: tell when it ended."""
        self._put(evaluation)

    def watch_other(self, frame: Frame, result: Any) -> None:
        """Work between steps was queued: see for how long the device works on it."""
        leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
        if len(self.in_flight) < MOST_IN_FLIGHT and answers(leaf) is False:
            self._put(in_flight(None, self._recorder.now(), leaf, frame.function.name))

    @property
    def host_tells(self) -> bool:
        """Whether the host's next call tells well enough when a step was done, if the host waits for each."""
        return self._watching.pace.host_tells

    def follow(self, ordinal: int, called: int) -> Followed:
        """From a step on that was called then, the host's calls tell when steps are done."""
        steps = Followed(ordinal, called)
        self._put(steps)
        return steps

    def close(self) -> None:
        """Stop the thread; what is still in flight is not sampled."""
        self._recorder.at_begin = None
        self._watching.stopping = True
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _put(self, item: Work) -> None:
        if self._thread is None:
            self._recorder.at_begin = functools.partial(self._guard, self._look)
            self._thread = threading.Thread(
                target=self._guard, args=(self._watching.run,), name="goodput-device", daemon=True
            )
            self._thread.start()
        self.in_flight.append(item)

    def _look(self) -> None:
        """Note that the newest work is done, if it is: the thread may learn it too late."""
        try:
            newest = self.in_flight[-1]
        except IndexError:
            if self._watching.awaited is None:
                return
            newest = self._watching.awaited
        if isinstance(newest, Evaluation):
            newest.look(self._recorder.now())
        elif isinstance(newest, Followed):
            newest.look(self._recorder.now)
        elif newest.done is None and answers(newest.leaf):
            newest.done = self._recorder.now()
