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

from collections.abc import Callable
from itertools import count
from typing import Any

from goodput_plugins.core.clock import Clock, parts
from goodput_plugins.core.condensed import Condensed
from goodput_plugins.core.events import Activity, Event, Fact, Kind, encode
from goodput_plugins.core.here import Here, Stepper
from goodput_plugins.core.lines import activity_line, short, whole
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.core.runs import Run, Sink, shown

LONG_WAIT_NS = 1_000_000_000
"""A wait for data that lasts longer at a heartbeat is told before it ends."""

_DATA = Activity.DATA  # looking up a member of an enum takes as long as a call


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
        self._anchor, self._read = parts(clock)
        self.steps = 0
        self.by_hand = False
        self._on_training: Callable[[], None] | None = on_training
        self._on_rank = on_rank
        self._here = Here(count(1))
        self._stepper = Stepper()
        self._sink: Sink | None = None
        self.run = None
        self._device = False

    def write_to(self, sink: Sink) -> None:
        """From here on lines go there, steps that follow each other in lines that grow."""
        self._sink = sink
        self.write = sink.write

    def stop(self) -> None:
        """From here on nothing is recorded."""
        self._sink = self.run = None
        self._stepper = Stepper()  # in a forked child, another thread of the parent may have held its lock
        self.write = _nowhere

    def flush(self) -> None:
        """Tell what is held back; to be called by the thread that steps, at the end."""
        if self.run is not None:
            self.run.finish()

    def begin(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> None:
        """``activity`` begins on this thread, inside whatever is open there."""
        if self.at_begin is not None:
            self.at_begin()
        here = self._here.own
        now = self._anchor + self._read()
        run = self.run
        if activity is _DATA:
            if run is not None and not here.stack and run.thread == here.thread:
                run.waits_since = now
                here.stack.append(activity)
                return
        elif run is not None:
            if run.waits_since:
                self._tell_open_wait(run)
            run.interrupt()
        elif activity is Activity.DEVICE_INIT:
            self.training_begins()
        here.stack.append(activity)
        self.write(activity_line("b", now, here.thread, step, activity, name))

    def finish(self, activity: Activity, *, name: str | None = None, step: int | None = None, data: Any = None) -> None:
        """The innermost open ``activity`` of this thread ends; unmatched calls are ignored."""
        here = self._here.own
        stack = here.stack
        if activity not in stack:
            return
        while stack.pop() is not activity:
            pass
        now = self._anchor + self._read()
        run = self.run
        if activity is _DATA and run is not None:
            begun = run.waits_since
            if begun and run.thread == here.thread:
                run.waits_since = 0
                if not run.tell_wait(begun, now - begun):
                    self.write(activity_line("x", begun, here.thread, None, activity, None, now - begun))
                return
            run.interrupt()
        self.write(activity_line("f", now, here.thread, step, activity, name, data=data))
        if activity is Activity.RESTORE and self.at_restored is not None:
            self.at_restored()

    def wait(self, *, name: str | None = None) -> bool:
        """A wait for data begins on this thread; False if one goes on there already."""
        here, run = self._here.own, self.run
        stack = here.stack
        if run is not None and not stack and run.thread == here.thread and self.at_begin is None:
            run.waits_since = self._anchor + self._read()  # as ``begin`` does it
            stack.append(_DATA)
            return True
        if _DATA in stack:
            return False
        self.begin(_DATA, name=name)
        return True

    def inside(self, activity: Activity) -> bool:
        """Whether ``activity`` is open on this thread."""
        return activity in self._here.own.stack

    def begin_apart(self, activity: Activity, *, name: str | None = None) -> int:
        """``activity`` begins on this thread, and :meth:`finish_apart` will tell when it ended.

        Returns:
            The thread, as ``finish_apart`` takes it.
        """
        if self.at_begin is not None:
            self.at_begin()
        if self.run is not None:
            self._tell_open_wait(self.run)
            self.run.interrupt()
        thread = self._here.own.thread
        self.write(activity_line("b", self.now(), thread, None, activity, name))
        return thread

    def finish_apart(self, activity: Activity, thread: int, at: int, *, name: str | None = None) -> None:
        """What began apart on that thread ended then (any thread may tell)."""
        self.write(activity_line("f", at, thread, None, activity, name))

    def span(
        self,
        activity: Activity,
        start: int,
        duration: int,
        *,
        name: str | None = None,
        step: int | None = None,
        data: Any = None,
    ) -> None:
        """``activity`` lasted ``duration`` ns from ``start`` on this thread; told afterwards."""
        if activity is Activity.DEVICE_INIT:
            self.training_begins()
        if self.run is not None:
            self.run.interrupt()
        thread = self._here.own.thread
        self.write(activity_line("x", max(0, start), thread, step, activity, name, max(0, duration), data=data))

    def step(self, number: int | None = None, *, at: int | None = None) -> int:
        """A training step starts now (or started ``at``).

        Returns:
            Its ordinal in this attempt, from 0, as :meth:`device_done` takes it.
        """
        if self.by_hand:
            return max(0, self.steps - 1)
        now = self._anchor + self._read() if at is None else at
        if type(number) is not int:
            number = whole(number)
        run = self.run
        ordinal = self.steps
        self.steps = ordinal + 1
        if run is None or not run.step(now, number):
            self._begin_run(now, ordinal, number)
        return ordinal

    def step_by_hand(self, number: int | None = None, *, at: int | None = None) -> int:
        """The same, told by the script itself: from here on what hooks take for a step is part of this one."""
        self.by_hand = False
        try:
            return self.step(number, at=at)
        finally:
            self.by_hand = True

    def number(self, step: int, *, name: str | None = None) -> None:
        """The step that started last has this number; ``name`` says by whose count, if not the loop's own."""
        if self.by_hand:
            return
        self._event(Kind.NUMBER, step, name=name)

    def device_done(self, ordinal: int, *times: int) -> None:
        """The device finished the work of that step, and of those after it, at these times (any thread may tell)."""
        self._device = True
        run = self.run
        if run is None or not run.done(ordinal, times):
            for place, at in enumerate(times, ordinal):
                self.write(b'["d",%d,0,%d]\n' % (at, place))

    def device_idle(self, start: int, duration: int) -> None:
        """Between two pieces of its work the device had nothing to do for ``duration`` ns from ``start`` (any thread).

        Inside a step that is not the step's time. Between two steps it is known without being told.
        """
        run = self.run
        if run is None or not run.idle(start, duration):
            self.write(b'["i",%d,0,null,null,null,%d]\n' % (start, duration))

    def heartbeat(self) -> None:
        """The process is alive; a wait for data that goes on and on is told now."""
        now = self.now()
        run = self.run
        if run is not None and run.waits_since and now - run.waits_since > LONG_WAIT_NS:
            self._tell_open_wait(run)
        self.write(b'["h",%d]\n' % now)

    def committed(self, step: int | None, *, duration: int | None = None, data: Any = None) -> None:
        """A checkpoint is durable now, after ``duration`` ns of work in the background."""
        self._event(Kind.COMMIT, step, duration=duration, data=data)

    def commit_failed(self, step: int | None, error: str) -> None:
        """A checkpoint that was being written in the background is lost."""
        self._event(Kind.COMMIT_FAILED, step, name=error)

    def notice(self, name: str) -> None:
        """The process was warned that it will be stopped."""
        self._event(Kind.NOTICE, name=name)

    def fact(self, what: Fact, *, of: str | None, duration: int | None = None, count: int | None = None) -> None:
        """Something that a finding is made of, about the function ``of`` (any thread may tell)."""
        self._event(Kind.FACT, count, name=what.value, duration=duration, data=of if of is None else short(of))

    def plugin(self, name: str, version: str, sees: tuple[str, ...], *, device: str | None = None) -> None:
        """The plugin is armed and can see these buckets.

        The ``device`` may be the ``host`` itself; or nothing will tell when it has done a step (``unseen``); or a
        step's work is handed to it at the end of the step's call (``deferred``).
        """
        where = {} if device is None else {"device": device}
        self._event(Kind.PLUGIN, name=name, data={"version": version, "sees": list(sees)} | where)

    def rank(self, index: int, count: int | None = None) -> None:
        """This is process ``index`` of ``count``."""
        self._event(Kind.RANK, index, data=count)
        self._on_rank(index, count)

    def training_begins(self) -> None:
        """A sign of training was seen: from here on this process records."""
        if self._on_training is not None:
            call, self._on_training = self._on_training, None
            call()

    def _begin_run(self, now: int, ordinal: int, number: int | None) -> None:
        """Write a step as the first of others that follow it, or as a line of its own."""
        self.training_begins()
        if self.run is not None:
            self._tell_open_wait(self.run)
            self.run.finish()
            self.run = None
        thread, sink = self._stepper.is_now(self._here.own), self._sink
        if sink is not None and sink.full:
            self.run = Condensed(sink, thread, now, ordinal, number, self._device)
            return
        run = Run(sink, thread, now, ordinal, number) if sink is not None else None
        if run is not None and run.line is not None:
            self.run = run
        else:
            self.write(b'["s",%d,%d,%b]\n' % (now, thread, shown(number)))

    def _tell_open_wait(self, run: Run | Condensed) -> None:
        """Tell that a wait for data has begun; that it is over will be told as such."""
        begun, run.waits_since = run.waits_since, 0
        if begun:
            self.write(encode(Event(Kind.BEGIN, begun, run.thread, None, Activity.DATA)))

    def _event(
        self,
        kind: Kind,
        step: int | None = None,
        *,
        name: str | None = None,
        duration: int | None = None,
        data: Any = None,
    ) -> None:
        name = name if name is None else short(name)
        self.write(encode(Event(kind, self.now(), self._here.own.thread, whole(step), None, name, duration, data)))


def _nowhere(line: bytes) -> None:
    pass
