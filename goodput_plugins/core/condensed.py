"""Steps in sum, for a journal that has grown very large (see ``Kind.STEPS``).

A line a second tells how many steps there were, how long they took in all, how long they waited for
data and how long the device was idle, between them or inside. A reader takes them for equal steps: sums stay
true, and what differed from step to step is lost. Where something else happens between two steps, a
save or a compilation, that one step is told in full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import get_ident
from typing import NamedTuple

from goodput_plugins.core.events import MOST_STEPS
from goodput_plugins.core.runs import NEVER, Sink, Stepping, shown

PERIOD = 1_000_000_000
"""How much time a line tells of, ns; a longer step has a line of its own."""
LATEST_DONE = 512
"""After so many further steps the device is not expected to tell of one any more."""


Stretch = tuple[int, int]
"""From when to when, ns."""


class Interval(NamedTuple):
    """From a step's beginning to that of the next, ns, and the waits for data in it."""

    begin: int
    end: int
    waits: list[Stretch]


class Condensed(Stepping):
    """The steps of the thread that makes it, in sum, from one that begins now; see :class:`Run`.

    Args:
        sink: where the lines go.
        thread: what the journal calls this thread.
        now: when the first step begins, ns.
        ordinal: which step of the attempt it is.
        number: its number; None if it has none, and then no step that follows has.
        device: whether the device tells when it is done with steps.
    """

    def __init__(self, sink: Sink, thread: int, now: int, ordinal: int, number: int | None, device: bool) -> None:
        super().__init__(thread)
        self._write = sink.write
        self._device = device
        self._ordinal = ordinal
        self._last = now
        self._number = number
        self._next = None if number is None else number + 1
        self._waits: list[Stretch] = []
        self._told: deque[tuple[int | None, int, int]] = deque()
        self._done: dict[int, int] = {}
        self._pending: dict[int, Interval] = {}
        self._pauses: list[Stretch] = []
        self._overlapped = self._stalled = self._idle = 0
        self._tell_step()

    def step(self, now: int, number: int | None) -> bool:
        """The next step begins; False if it does not follow."""
        if number != self._next or now < self._last or get_ident() != self._ident:
            return False
        self._next = NEVER
        self._take_done()
        if not self._alone:
            self._close_interval(now)
        self._waits = []
        self._ordinal += 1
        self._last = now
        self._number = number
        if self._alone:
            self._tell_step()
        else:
            self._count += 1
            if now - self._began >= PERIOD or self._count == MOST_STEPS:
                self._tell_sum()
        self._next = None if number is None else number + 1
        return True

    def tell_wait(self, begun: int, lasted: int) -> bool:
        """Count a wait; False if it has to be told in full."""
        if self._alone or begun < self._last:
            return False
        self._waits.append((begun, begun + lasted))
        return True

    def done(self, ordinal: int, times: Sequence[int]) -> bool:
        """The device was done then with that step and those after it (any thread may tell)."""
        self._told.extend((one, at, at) for one, at in enumerate(times, ordinal))
        return True

    def idle(self, start: int, duration: int) -> bool:
        """Between two pieces of its work the device had nothing to do (any thread may tell)."""
        self._told.append((None, start, start + duration))
        return True

    def interrupt(self) -> None:
        """Something else than a wait begins, or is told, on the thread that steps: tell this step in full."""
        if not self._alone and get_ident() == self._ident:
            self.finish()

    def finish(self) -> None:
        """Tell what is held back."""
        self._take_done()
        self._tell_sum()
        self._alone = True
        for start, end in self._waits:
            self._write(b'["x",%d,%d,null,"data",null,%d]\n' % (start, self.thread, end - start))
        self._waits = []
        self._tell_pauses()
        if self._ordinal in self._done:
            self._tell_done(self._ordinal, self._done.pop(self._ordinal))

    def _tell_step(self) -> None:
        """The step that begins now is the first of a new sum."""
        self._alone = False
        self._began = self._last
        self._count = 0
        self._tell(self._number, self._ordinal, 0, 0, 0, 0, 0)

    def _tell_sum(self) -> None:
        """Tell of the steps since the last that was told, and begin a new sum."""
        if not self._count:
            return
        duration = self._last - self._began
        idle = min(self._idle, duration) if self._device else -1
        stalled = min(self._stalled, idle if self._device else duration)
        overlapped = min(self._overlapped, duration - max(idle, stalled))
        number = None if self._number is None else self._number - self._count
        self._tell(number, self._ordinal - self._count, self._count, duration, overlapped, stalled, idle)
        self._overlapped -= overlapped
        self._stalled -= stalled
        self._idle -= max(0, idle)
        self._began = self._last
        self._count = 0

    def _tell(self, number: int | None, *sums: int) -> None:
        told = ",".join(map(str, sums)).encode()
        self._write(b'["a",%d,%d,%b,null,null,null,[%b]]\n' % (self._began, self.thread, shown(number), told))

    def _tell_done(self, ordinal: int, at: int) -> None:
        self._write(b'["d",%d,0,%d]\n' % (at, ordinal))

    def _close_interval(self, now: int) -> None:
        if not self._device:
            self._stalled += sum(end - start for start, end in self._waits)
            return
        interval = Interval(self._last, now, self._waits)
        at = self._done.pop(self._ordinal, None)
        if at is not None:
            self._judge(interval, at)
        else:
            self._pending[self._ordinal] = interval
            if len(self._pending) > LATEST_DONE:  # it was not sampled, so the device counts as busy
                self._judge(self._pending.pop(next(iter(self._pending))), now)

    def _take_done(self) -> None:
        """Take in what the thread that watches the device has told."""
        while self._told:
            self._device = True
            ordinal, at, end = self._told.popleft()
            if ordinal is None:
                self._pauses.append((at, end))
                continue
            interval = self._pending.pop(ordinal, None)
            if interval is not None:
                self._judge(interval, at)
            elif ordinal == self._ordinal and not self._alone:
                self._done[ordinal] = at
            else:
                self._tell_done(ordinal, at)
        if self._alone:
            self._tell_pauses()

    def _tell_pauses(self) -> None:
        """The last step is told in full: so is when the device was idle in it."""
        told = [pause for pause in self._pauses if pause[0] >= self._last]
        self._pauses = [pause for pause in self._pauses if pause[0] < self._last]
        for start, end in told:
            self._write(b'["i",%d,0,null,null,null,%d]\n' % (start, end - start))

    def _pauses_in(self, begin: int, end: int) -> list[Stretch]:
        """When the device was idle inside a step that was done then."""
        inside = [(start, min(stop, end)) for start, stop in self._pauses if begin <= start < end]
        self._pauses = [pause for pause in self._pauses if pause[0] >= end]
        return inside

    def _judge(self, interval: Interval, done: int) -> None:
        """Part an interval by when the device was done with its step."""
        free = max(interval.begin, done)
        idle = [*self._pauses_in(interval.begin, free), (free, max(free, interval.end))]
        waited = sum(end - start for start, end in interval.waits)
        stalled = sum(max(0, min(end, to) - max(start, since)) for start, end in interval.waits for since, to in idle)
        self._idle += sum(to - since for since, to in idle)
        self._stalled += stalled
        self._overlapped += waited - stalled
