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
from typing import Any

from goodput_plugins.core.clock import Clock
from goodput_plugins.core.events import Activity, Event, Kind, encode

LONGEST_NAME = 200
"""Names are cut to this many characters."""
LARGEST_STEP = 2**63 - 1
"""A step number beyond it is recorded as unknown."""


class NullRecorder:
    """A recorder that does nothing; every method of :class:`Recorder` is here."""

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

    def begin(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> None:
        """``activity`` begins on this thread, inside whatever is open there."""
        if activity is Activity.DEVICE_INIT:
            self.training_begins()
        self._open.stack.append(activity)
        self._event(Kind.BEGIN, self.now(), step, activity, name)

    def finish(self, activity: Activity, *, name: str | None = None, step: int | None = None) -> None:
        """The innermost open ``activity`` of this thread ends; unmatched calls are ignored."""
        stack = self._open.stack
        if activity not in stack:
            return
        while stack.pop() is not activity:
            pass
        self._event(Kind.FINISH, self.now(), step, activity, name)

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
        thread = self._threads.get(threading.get_ident())
        if thread is None:
            thread = self._thread()
        if number is None or not -1 <= number <= LARGEST_STEP:
            self.write(b'["s",%d,%d]\n' % (now, thread))
        else:
            self.write(b'["s",%d,%d,%d]\n' % (now, thread, number))
        return ordinal

    def number(self, step: int) -> None:
        """The step that started last has this number."""
        self._event(Kind.NUMBER, self.now(), step)

    def device_done(self, ordinal: int, at: int) -> None:
        """The device finished the work of that step at that time (any thread may tell)."""
        self.write(b'["d",%d,0,%d]\n' % (at, ordinal))

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
        if step is not None and not -1 <= step <= LARGEST_STEP:
            step = None
        name = name if name is None else str(name)[:LONGEST_NAME]
        thread = self._threads.get(threading.get_ident())
        if thread is None:
            thread = self._thread()
        if data is not None or kind not in (Kind.BEGIN, Kind.FINISH, Kind.SPAN):
            self.write(encode(Event(kind, time, thread, step, activity, name, duration, data)))
            return
        line = f'["{kind.value}",{time},{thread},{"null" if step is None else step},"{activity.value}"'  # type: ignore[union-attr]
        if name is not None or duration is not None:
            line += f",{_quoted(name)}"
        if duration is not None:
            line += f",{duration}"
        self.write(line.encode() + b"]\n")

    def _thread(self) -> int:
        return self._threads.setdefault(threading.get_ident(), len(self._threads))


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
