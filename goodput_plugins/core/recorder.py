"""Recording what happens, on the thread where it happens.

Hooks tell a :class:`Recorder` what they see; it stamps the time, makes one journal line and hands
it to ``write``. Nothing here blocks, talks to a device or a network, or keeps what it was given.

>>> recorder.begin(Activity.SAVE, step=40)
>>> recorder.finish(Activity.SAVE, step=40)
>>> ordinal = recorder.step(41)
>>> recorder.span(Activity.COMPILE, start, duration, name="jit(train_step)")

Off means a :class:`NullRecorder`, which does nothing: code calls its recorder without asking.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from goodput_plugins.core.clock import Clock
from goodput_plugins.core.events import Activity, Event, Kind, encode, is_number

LONGEST_NAME = 200
"""Names are cut to this many characters."""
LONG_WAIT_NS = 1_000_000_000
"""A wait for data that lasts longer at a heartbeat is told before it ends."""


class NullRecorder:
    """A recorder that does nothing; every method of :class:`Recorder` is here."""

    at_begin: Callable[[], None] | None = None
    """Called before an activity begins: who watches a device looks once more before the host goes its way."""

    def now(self) -> int:
        return 0

    def begin(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> None:
        pass

    def finish(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> None:
        pass

    @contextmanager
    def activity(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> Iterator[None]:
        self.begin(activity, name=name, step=step)
        try:
            yield
        finally:
            self.finish(activity, name=name, step=step)

    def inside(self, activity: Activity) -> bool:
        return False

    def span(
        self, activity: Activity, start: int, duration: int, *, name: str | None = None, step: int | None = None
    ) -> None:
        pass

    def step(self, number: int | None = None, *, at: int | None = None) -> int:
        return 0

    def number(self, step: int) -> None:
        pass

    def device_done(self, ordinal: int, at: int) -> None:
        pass

    def heartbeat(self) -> None:
        pass

    def committed(self, step: int | None, *, duration: int | None = None) -> None:
        pass

    def commit_failed(self, step: int | None, error: str) -> None:
        pass

    def notice(self, name: str) -> None:
        pass

    def plugin(self, name: str, version: str, sees: tuple[str, ...]) -> None:
        pass

    def rank(self, index: int, count: int | None = None) -> None:
        pass


class Sink(Protocol):
    """Where lines go that can be left open and extended: a journal."""

    def write(self, line: bytes, /) -> None: ...
    def open_line(self, head: bytes, /) -> int: ...
    def extend(self, line: int, more: bytes, /) -> bool: ...


class Recorder(NullRecorder):
    """Turns what hooks see into journal lines.

    Args:
        write: takes one line (bytes, newline included); must not raise or block.
        clock: nanoseconds since the epoch, monotonic.
        on_training: called once, at the first sign of training (accelerator init, first step),
            before the line that shows it is written.
        on_rank: called with ``(index, count)`` when the process learns its rank.
    """

    def __init__(
        self,
        write: Callable[[bytes], None],
        clock: Clock,
        *,
        on_training: Callable[[], None] = lambda: None,
        on_rank: Callable[[int, int | None], None] = lambda index, count: None,
    ) -> None:
        self.write = write
        self.now = clock  # type: ignore[method-assign]
        self.steps = 0
        """How many steps were recorded."""
        self._on_training: Callable[[], None] | None = on_training
        self._on_rank = on_rank
        self._threads: dict[int, int] = {threading.main_thread().ident or 0: 0}
        self._open = _OpenActivities()
        self._sink: Sink | None = None
        self._run: _Run | None = None

    def write_to(self, sink: Sink) -> None:
        """From here on lines go there, steps that follow each other in lines that grow."""
        self._sink = sink
        self.write = sink.write

    def stop(self) -> None:
        """From here on nothing is recorded."""
        self._sink = self._run = None
        self.write = _nowhere

    def begin(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> None:
        """``activity`` begins on this thread, inside whatever is open there."""
        if self.at_begin is not None:
            self.at_begin()
        if activity is Activity.DEVICE_INIT:
            self.training_begins()
        stack = self._open.stack
        now = self.now()
        if activity is Activity.DATA and not stack and self._run is not None and self._run.wait(now):
            stack.append(activity)
            return
        stack.append(activity)
        self._event(Kind.BEGIN, now, step, activity, name)

    def finish(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> None:
        """The innermost open ``activity`` of this thread ends; unmatched calls are ignored."""
        stack = self._open.stack
        if activity not in stack:
            return
        while stack.pop() is not activity:
            pass
        now = self.now()
        run = self._run
        if activity is Activity.DATA and run is not None and run.waits_since and run.is_here():
            begun, announced = run.waits_since, run.announced
            run.waits_since = 0
            if begun != announced:
                self._waited(run, begun, now - begun)
                return
        self._event(Kind.FINISH, now, step, activity, name)

    def inside(self, activity: Activity) -> bool:
        """Whether ``activity`` is open on this thread."""
        return activity in self._open.stack

    def span(
        self, activity: Activity, start: int, duration: int, *, name: str | None = None, step: int | None = None
    ) -> None:
        """``activity`` lasted ``duration`` ns from ``start`` on this thread; told afterwards."""
        if activity is Activity.DEVICE_INIT:
            self.training_begins()
        self._event(Kind.SPAN, start, step, activity, name, max(0, duration))

    def step(self, number: int | None = None, *, at: int | None = None) -> int:
        """A training step starts now (or started ``at``).

        Returns:
            Its ordinal in this attempt, from 0, as :meth:`device_done` takes it.
        """
        now = self.now() if at is None else at
        if self._on_training is not None:
            self.training_begins()
        ordinal = self.steps
        self.steps = ordinal + 1
        run = self._run
        if run is not None and run.next == number and now >= run.last and run.is_here():
            more = b"%d," % (now - run.last) if run.waited else b"0,0,%d," % (now - run.last)
            if self._extend(run, more):
                run.follow(now, number)
                return ordinal
        self._begin_run(now, ordinal, number)
        return ordinal

    def number(self, step: int) -> None:
        """The step that started last has this number."""
        self._event(Kind.NUMBER, self.now(), step)

    def device_done(self, ordinal: int, at: int) -> None:
        """The device finished the work of that step at that time (any thread may tell)."""
        run = self._run
        if run is None or at < run.began or not self._extend(run, b"%d,%d," % (-1 - ordinal, run.began - at - 1)):
            self.write(b'["d",%d,0,%d]\n' % (at, ordinal))

    def heartbeat(self) -> None:
        """The process is alive; a wait for data that goes on and on is told now."""
        now = self.now()
        run = self._run
        begun = run.waits_since if run is not None else 0
        if run is not None and begun and now - begun > LONG_WAIT_NS:
            run.announced = begun
            self.write(encode(Event(Kind.BEGIN, begun, run.thread, None, Activity.DATA)))
        self.write(b'["h",%d]\n' % now)

    def committed(self, step: int | None, *, duration: int | None = None) -> None:
        """A checkpoint is durable now, after ``duration`` ns of work in the background."""
        self._event(Kind.COMMIT, self.now(), step, duration=duration)

    def commit_failed(self, step: int | None, error: str) -> None:
        """A checkpoint that was being written in the background is lost."""
        self._event(Kind.COMMIT_FAILED, self.now(), step, name=error)

    def notice(self, name: str) -> None:
        """The process was warned that it will be stopped."""
        self._event(Kind.NOTICE, self.now(), name=name)

    def plugin(self, name: str, version: str, sees: tuple[str, ...]) -> None:
        """The plugin is armed and can see these buckets."""
        self._event(Kind.PLUGIN, self.now(), name=name, data={"version": version, "sees": list(sees)})

    def rank(self, index: int, count: int | None = None) -> None:
        """This is process ``index`` of ``count``."""
        self._event(Kind.RANK, self.now(), index, data=count)
        self._on_rank(index, count)

    def training_begins(self) -> None:
        """A sign of training was seen: from here on this process records."""
        if self._on_training is not None:
            call, self._on_training = self._on_training, None
            call()

    def _waited(self, run: _Run, begun: int, lasted: int) -> None:
        """A wait for data is over: the next step of the run tells of it, if it is the first since the last."""
        if not run.waited and begun >= run.last and self._extend(run, b"%d,%d," % (begun - run.last, lasted)):
            run.waited = True
        else:
            self._event(Kind.SPAN, begun, None, Activity.DATA, None, lasted)

    def _begin_run(self, now: int, ordinal: int, number: int | None) -> None:
        """Write a step as the first of a new run, or as a line of its own."""
        thread = self._thread()
        told = b"%d" % number if is_number(number) else b"null"
        line = 0
        if self._sink is not None:
            line = self._sink.open_line(b'["r",%d,%d,%b,null,null,null,[%d,' % (now, thread, told, ordinal))
        if line:
            self._run = _Run(line, thread, now, number)
            return
        self._run = None
        self.write(b'["s",%d,%d,%b]\n' % (now, thread, told))

    def _extend(self, run: _Run, more: bytes) -> bool:
        return self._sink is not None and self._sink.extend(run.line, more)

    def _event(
        self,
        kind: Kind,
        time: int,
        step: int | None = None,
        activity: Activity | None = None,
        name: str | None = None,
        duration: int | None = None,
        data: Any = None,
    ) -> None:
        step = step if is_number(step) else None
        name = name if name is None else str(name)[:LONGEST_NAME]
        thread = self._thread()
        if data is not None or activity is None or kind not in (Kind.BEGIN, Kind.FINISH, Kind.SPAN):
            self.write(encode(Event(kind, time, thread, step, activity, name, duration, data)))
            return
        line = f'["{kind.value}",{time},{thread},{"null" if step is None else step},"{activity.value}"'
        if name is not None or duration is not None:
            line += f",{_quoted(name)}"
        if duration is not None:
            line += f",{duration}"
        self.write(line.encode() + b"]\n")

    def _thread(self) -> int:
        known = self._threads.get(threading.get_ident())
        return self._threads.setdefault(threading.get_ident(), len(self._threads)) if known is None else known


class _Run:
    """Steps of one thread that follow each other, in a line that grows.

    Attributes:
        line: what the journal knows it by.
        thread: which wrote it.
        began: when its first step began, ns.
        last: when its last step began.
        next: the number that continues it (None: steps without numbers do).
        waited: the wait before the next step is in the line already.
        waits_since: when the wait that goes on began; 0 if none does.
        announced: the beginning of a wait that the heartbeat told of.
    """

    __slots__ = ("_ident", "announced", "began", "last", "line", "next", "thread", "waited", "waits_since")

    def __init__(self, line: int, thread: int, now: int, number: int | None) -> None:
        self.line = line
        self.thread = thread
        self.began = self.last = now
        self.next = None if number is None else number + 1
        self.waited = False
        self.waits_since = self.announced = 0
        self._ident = threading.get_ident()

    def is_here(self) -> bool:
        """Whether this thread is the one that steps."""
        return threading.get_ident() == self._ident

    def wait(self, now: int) -> bool:
        """A wait for data begins on this thread; False if this is not the thread that steps."""
        if not self.is_here():
            return False
        self.waits_since = now
        return True

    def follow(self, now: int, number: int | None) -> None:
        """The next step began."""
        self.last = now
        self.next = None if number is None else number + 1
        self.waited = False


def _nowhere(line: bytes) -> None:
    pass


class _OpenActivities(threading.local):
    """What is open on each thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[Activity] = []


_quotes: dict[str | None, str] = {None: "null"}


def _quoted(name: str | None) -> str:
    """The JSON of a name; the few that a run uses are remembered."""
    quoted = _quotes.get(name)
    if quoted is None:
        quoted = json.dumps(name)
        if len(_quotes) < 1_000:
            _quotes[name] = quoted
    return quoted
