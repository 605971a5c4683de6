"""When the work of a step was done on a CUDA device: an event behind it, read later, without a wait.

Events tell how long after each other they passed, not when. The first is recorded when the first step begins, while
the device has little to do, and is taken to have passed then. Each later one passed so long after the one before as
CUDA says, but neither before it was recorded nor after it was seen to have passed: that keeps the device's clock from
drifting away from the host's. ``query`` never waits. Not recorded while a CUDA graph is being captured.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from goodput_plugins.core.null_recorder import NullRecorder

MOST_IN_FLIGHT = 256
"""Steps beyond it are not sampled."""


class Marked(NamedTuple):
    """An event behind the work of a step, and when it was recorded, ns."""

    ordinal: int
    recorded: int
    event: Any


class CudaDevice:
    """Records events on a device and tells ``recorder.device_done``.

    Args:
        cuda: ``torch.cuda``.
        recorder: where to.
        device: on which device the work is.
    """

    def __init__(self, cuda: Any, recorder: NullRecorder, device: Any) -> None:
        self._cuda = cuda
        self._recorder = recorder
        self._device = device
        self._ordinal: int | None = None
        self._in_flight: deque[Marked] = deque()
        self._passed: Any = None
        self._passed_at = 0
        self._free: list[Any] = []

    def step_begins(self, ordinal: int) -> None:
        """A step begins on the host."""
        self._collect()
        if self._ordinal is None and not self._cuda.is_current_stream_capturing():
            self._passed, self._passed_at = self._record(), self._recorder.now()
        self._ordinal = ordinal

    def step_queued(self, optimizer: Any = None) -> None:
        """All work of the step, up to here, is queued on the device."""
        self._collect()
        if self._ordinal is None or self._passed is None or self._cuda.is_current_stream_capturing():
            return
        if self._in_flight and self._in_flight[-1].ordinal == self._ordinal:  # another optimizer of this step
            self._free.append(self._in_flight.pop().event)
        if len(self._in_flight) < MOST_IN_FLIGHT:
            recorded = self._recorder.now()
            self._in_flight.append(Marked(self._ordinal, recorded, self._record()))

    def close(self) -> None:
        """The process ends: what has passed by now is told."""
        self._collect(all_of_them=True)

    def _record(self) -> Any:
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def _collect(self, *, all_of_them: bool = False) -> None:
        """Tell of the steps whose events have passed; that of the newest may still be recorded anew."""
        while self._in_flight and (all_of_them or self._in_flight[0].ordinal != self._ordinal):
            ordinal, recorded, event = self._in_flight[0]
            if not event.query():
                return
            self._in_flight.popleft()
            since = round(self._passed.elapsed_time(event) * 1e6)
            done = min(max(self._passed_at + since, recorded), self._recorder.now())
            self._free.append(self._passed)
            self._passed, self._passed_at = event, done
            self._recorder.device_done(ordinal, done)


def device_of(optimizer: Any) -> Any:
    """Where the parameters of an optimizer are, as ``torch.device``; None if it has none."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            return parameter.device
    return None
