"""Which calls of a loop are its steps.

An optimizer's step is the end of a step's work. The next step begins

- with the first batch fetched after it, if the loop fetches batches: from an iterator that training took batches
  from before, this is told at once; from another one (a new epoch's, or that of an evaluation) it is told when an
  optimizer steps next, for the batch that began that work;
- else, when an optimizer steps that has stepped already, with the end of whatever came before: the optimizer's step,
  a save, an evaluation.

So several micro-batches, or several optimizers, make one step; but an optimizer that has never stepped begins one if
the training loader was exhausted since, or those that have stepped are gone: then the loop is another one.

Numbers are not told: see :mod:`.states` and :mod:`.files`; only once, and after each restore, the count that the
optimizer keeps.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from goodput_plugins.core.events import Activity
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.core.patching import Hooks

SKIPPED_NS = 1_000_000
"""A batch that was left so soon for the next was skipped, not trained on."""
REPLAY_TELLING_NS = 1_000_000_000
"""How often a replay of the data is told while it goes on."""


class Device(Protocol):
    """Who learns when the work of steps is done on a device."""

    def step_begins(self, ordinal: int) -> None: ...
    def step_queued(self, optimizer: Any) -> None: ...
    def close(self) -> None: ...


class Loop:
    """Tells a recorder the steps that fetches and optimizer steps amount to.

    Attributes:
        led: how many trainers are running that tell their steps themselves; while there are any, this tells none.
        optimizers: those that have stepped.
        on_optimizer: called with each optimizer that steps, before it does.
        on_fetch: called when a batch has been fetched: from which iterator, and whether that was exhausted instead.
        on_first_step: called with the optimizer, once, before the first step is told.
        count_of: the count that an optimizer keeps.
        device: who is told of steps.
        readers: threads that only read ahead; the batches that they fetch begin no step.
        is_replica: whether this thread trains a replica of what another thread of this process is counted for.
    """

    def __init__(self, recorder: NullRecorder) -> None:
        self.recorder = recorder
        self.readers: set[int] = set()
        self.is_replica: Callable[[], bool] = _never
        self.led = 0
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.on_optimizer: list[Callable[[Any], None]] = []
        self.on_fetch: list[Callable[[Any, bool], None]] = []
        self.on_first_step: Callable[[Any], None] = _ignore
        self.count_of: Callable[[Any], int | None] = _ignore
        self.device: Device | None = None
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._candidate: tuple[weakref.ref[Any], int, int] | None = None
        self._open: list[int] = []
        self._stepped: list[int] = []
        self._thread: int | None = None
        self._boundary = 0
        self._begun = 0
        self._exhausted = False
        self._count_due = True
        self._restored = False
        self._fetched_at = 0
        self._replay_since = 0

    @property
    def completed(self) -> int | None:
        """How many steps of this process an optimizer has finished; None while a trainer leads."""
        return None if self.led else self.recorder.steps - (not self._stepped and self._begun > 0)

    def passed(self) -> None:
        """Something that is no part of a step has ended now: a wait, a save, an evaluation."""
        if self._is_here():
            self._boundary = self.recorder.now()

    def restored(self) -> None:
        """A checkpoint has been loaded: the optimizer may count from elsewhere, batches may be skipped."""
        self._restored = self._count_due = True
        self.passed()

    # --- fetches ----------------------------------------------------------------------------------------

    def fetch_begins(self) -> bool:
        """A batch is asked for; whether that is part of skipping what was trained on before a restart."""
        if get_ident() in self.readers:
            return False
        now = self.recorder.now()
        if self._restored and not self._begun and now - self._fetched_at < SKIPPED_NS:
            self._replay_since = self._replay_since or now
            return True
        self._tell_replay(self._fetched_at)
        return False

    def exhausted(self, iterator: Any) -> None:
        """There is no further batch from ``iterator``."""
        if get_ident() in self.readers:
            return
        for listener in self.on_fetch:
            listener(iterator, True)
        self._exhausted |= iterator in self._iterators
        self.passed()

    def fetched(self, iterator: Any) -> None:
        """A batch has been fetched from ``iterator``."""
        if get_ident() in self.readers:
            return
        for listener in self.on_fetch:
            listener(iterator, False)
        now = self.recorder.now()
        self._fetched_at = self._boundary = now
        if self._replay_since and now - self._replay_since > REPLAY_TELLING_NS:
            self.recorder.training_begins()
            self._tell_replay(now)
            self._replay_since = now
        if self.led or not self._is_here() or (self._begun and not self._stepped):
            return
        if self._begun and iterator in self._iterators:
            self._begin(now)
        elif self._candidate is None or self._candidate[0]() is not iterator or self._replay_since:
            self._candidate = weakref.ref(iterator), now, get_ident()

    def is_training(self, iterator: Any) -> bool:
        """Whether training has taken batches from ``iterator``."""
        return iterator in self._iterators

    def _is_here(self) -> bool:
        """Whether this thread trains, or may turn out to."""
        here = get_ident()
        return self._thread == here or (self._thread is None and here not in self.readers)

    def _tell_replay(self, end: int) -> None:
        since, self._replay_since = self._replay_since, 0
        if since:
            self.recorder.span(Activity.DATA_REPLAY, since, end - since)

    # --- optimizers -------------------------------------------------------------------------------------

    def optimizer_begins(self, optimizer: Any) -> None:
        """``optimizer.step()`` begins."""
        if self.led or not self._is_here() or (self._thread is None and self.is_replica()):
            return
        if id(optimizer) in self._open:  # it raised last time
            del self._open[self._open.index(id(optimizer)) :]
        self._open.append(id(optimizer))
        if len(self._open) > 1:
            return
        for listener in self.on_optimizer:
            listener(optimizer)
        if not self._begun:
            self.on_first_step(optimizer)
        if not self._begun or id(optimizer) in self._stepped or self._is_of_another_loop(optimizer):
            self._begin_late()

    def optimizer_ended(self, optimizer: Any) -> None:
        """``optimizer.step()`` has ended well."""
        if id(optimizer) not in self._open:
            return
        del self._open[self._open.index(id(optimizer)) :]
        if self._open:
            return
        self._stepped.append(id(optimizer))
        self.optimizers.add(optimizer)
        if self._count_due:
            self._tell_count(optimizer)
        if self.device is not None:
            self.device.step_queued(optimizer)
        self.passed()

    def _is_of_another_loop(self, optimizer: Any) -> bool:
        """Whether an optimizer, not one of those that have stepped since the step began, has a loop of its own."""
        if not self._stepped or optimizer in self.optimizers:
            return False
        return self._exhausted or not any(id(known) in self._stepped for known in self.optimizers)

    def _begin_late(self) -> None:
        """The step has begun that an optimizer is about to finish: with its first batch, or with what came before."""
        start = self._boundary if self._begun else self.recorder.now()
        if self._candidate is not None:
            reference, fetched, thread = self._candidate
            iterator = reference()
            if thread == get_ident():
                start = fetched
                if iterator is not None:
                    self._iterators.add(iterator)
        self._begin(start)

    def _begin(self, at: int) -> None:
        self._tell_replay(self._fetched_at)
        self._thread = get_ident()
        self._candidate = None
        self._exhausted = False
        self._stepped.clear()
        self._begun += 1
        ordinal = self.recorder.step(None, at=at)
        if self.device is not None:
            self.device.step_begins(ordinal)

    def _tell_count(self, optimizer: Any) -> None:
        self._count_due = False
        count = self.count_of(optimizer)
        if count is not None:
            self.recorder.number(count - 1, name=COUNTED)

    def close(self) -> None:
        """The process ends."""
        if self.device is not None:
            self.device.close()


COUNTED = "optimizer"
"""The name of a step's number that is the optimizer's own count: a checkpoint's file knows better."""

_loops: dict[int, Loop] = {}


def loop_of(hooks: Hooks) -> Loop:
    """The loop of the recorder that ``hooks`` tell; adapters that share a recorder share it."""
    key = id(hooks.recorder)
    loop = _loops.get(key)
    if loop is None:
        loop = _loops[key] = Loop(hooks.recorder)
        hooks.at_close.append(functools.partial(_close, key))
    return loop


def _close(key: int) -> None:
    loop = _loops.pop(key, None)
    if loop is not None:
        loop.close()


def _ignore(optimizer: Any) -> None:
    pass


def _never() -> bool:
    return False
