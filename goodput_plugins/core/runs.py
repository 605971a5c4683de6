"""Steps that follow each other on one thread, told in one journal line that grows (see ``Kind.RUN``).

Adds to the line what each step amounts to: when it waited for data, when it began. A thread that
watches the device adds when steps were done. What does not follow ends the run, and the recorder
begins another.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import get_ident
from typing import Protocol

from goodput_plugins.core.events import is_number
from goodput_plugins.core.journal import OpenLine

NEVER = -2
"""No step has this number."""


class Sink(Protocol):
    """Where lines go that can be left open and extended: a journal."""

    @property
    def full(self) -> bool: ...
    def write(self, line: bytes, /) -> None: ...
    def open_line(self, head: bytes, /) -> OpenLine | None: ...


class Stepping:
    """The thread that steps, and the wait for data that goes on there.

    Attributes:
        thread: what the journal calls it.
        waits_since: when the wait that goes on began, ns; 0 if none does, or if it was told.
    """

    __slots__ = ("_ident", "thread", "waits_since")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.waits_since = 0
        self._ident = get_ident()


class Run(Stepping):
    """The steps of the thread that makes it, from one that begins now.

    Args:
        sink: where the line grows.
        thread: what the journal calls this thread.
        now: when the first step begins, ns.
        ordinal: which step of the attempt it is.
        number: its number; None if it has none, and then no step of the run has.

    Attributes:
        line: that grows; None if the sink was too busy to begin one.
    """

    __slots__ = ("_began", "_last", "_next", "_waited", "line")

    def __init__(self, sink: Sink, thread: int, now: int, ordinal: int, number: int | None) -> None:
        super().__init__(thread)
        self.line = sink.open_line(b'["r",%d,%d,%b,null,null,null,[%d,' % (now, thread, shown(number), ordinal))
        self._began = self._last = now
        self._next = None if number is None else number + 1
        self._waited = False

    def step(self, now: int, number: int | None) -> bool:
        """The next step begins; False if it does not follow, or finds no room."""
        last, line = self._last, self.line
        if number != self._next or now < last or line is None or get_ident() != self._ident:
            return False
        self._next = NEVER  # should an exception fly in between, what is written is not what is known
        piece = (b"%d," if self._waited else b"0,0,%d,") % (now - last)
        try:  # as the line extends itself, without the call
            with line.lock:
                if line.more is None:
                    return False
                line.more(piece)
        except (OSError, ValueError) as error:
            line.broke(error)
            return False
        self._waited = False
        self._last = now
        self._next = None if number is None else number + 1
        return True

    def tell_wait(self, begun: int, lasted: int) -> bool:
        """Tell of a wait with the next step; False if that is not the place for it."""
        following, line = self._next, self.line
        if self._waited or begun < self._last or following == NEVER or line is None:
            return False
        self._next = NEVER
        self._waited = line.extend(b"%d,%d," % (begun - self._last, lasted))
        self._next = following
        return self._waited

    def done(self, ordinal: int, times: Sequence[int]) -> bool:
        """The device was done then with that step and those after it (any thread); False if this is not the place."""
        line, began = self.line, self._began
        if line is None or times[0] < began:
            return False
        return line.extend(b"".join(b"%d,%d," % (-1 - one, began - at - 1) for one, at in enumerate(times, ordinal)))

    def idle(self, start: int, duration: int) -> bool:
        """The device had nothing to do (any thread): this is not the place for it."""
        return False

    def interrupt(self) -> None:
        """Something else than a wait begins, or is told, on the thread that steps."""

    def finish(self) -> None:
        """No step follows."""


def shown(number: int | None) -> bytes:
    """The JSON of a step's number."""
    return b"%d" % number if is_number(number) else b"null"
