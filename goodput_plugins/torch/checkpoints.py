"""Saves and restores of checkpoints: whatever calls nest inside each other is one.

``torch.save`` to a file and ``torch.load`` from one are a save and a restore if what is saved or loaded holds the
state of a module or an optimizer (see :mod:`.states`); a copy into memory is none. A call of a trainer that writes
several files (``Trainer._save_checkpoint``, ``Accelerator.save_state``, ``Fabric.save``) is one save with all of them.

A save is told as it happens and committed when its files are complete; a load is told afterwards, because only its
result says what it was. Both carry the identities of the files.
"""

from __future__ import annotations

import functools
import io
import os
import threading
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.torch.files import identity, path_of
from goodput_plugins.torch.loop import Loop, loop_of
from goodput_plugins.torch.states import holds_state


class Operation:
    """A save or restore that is open on a thread.

    Attributes:
        activity: SAVE or RESTORE.
        step: its label, where a step is known.
        completed: how many steps of this process it holds; None where that is not known.
        paths: the files that belong to it.
        started: when it began, ns.
    """

    __slots__ = ("activity", "completed", "paths", "started", "step")

    def __init__(self, activity: Activity, started: int, completed: int | None, step: int | None = None) -> None:
        self.activity = activity
        self.started = started
        self.completed = completed
        self.step = step
        self.paths: list[str] = []

    @property
    def data(self) -> dict[str, Any] | None:
        """What the journal gets beside times and label."""
        files = [found for path in self.paths if (found := identity(path)) is not None]
        steps = {} if self.activity is not Activity.SAVE or self.completed is None else {"steps": self.completed}
        return (steps | ({"files": files} if files else {})) or None


class _Here(threading.local):
    """The operation that is open on this thread."""

    operation: Operation | None = None


class Checkpoints:
    """Tells the saves and restores of a process."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._recorder = loop.recorder
        self._here = _Here()
        self._process = os.getpid()
        self._unsettled: list[Operation] = []
        loop.on_optimizer.append(lambda optimizer: self.settle())

    # --- operations of a trainer ------------------------------------------------------------------------

    def begins(self, activity: Activity, path: str | None = None, *, step: int | None = None) -> Operation | None:
        """A save or restore begins; None if it is part of one that is told already."""
        if not self._is_outermost():
            self._adds(path)
            return None
        operation = Operation(activity, self._recorder.now(), self._loop.completed, step)
        self._here.operation = operation
        self._adds(path)
        self._recorder.begin(activity, step=step)
        return operation

    def ended(self, operation: Operation | None, result: Any, error: BaseException | None) -> None:
        """It ended, with the host's result or error."""
        if operation is None:
            return
        self._here.operation = None
        step = operation.step if error is None else None
        if operation.activity is Activity.SAVE:
            self._recorder.finish(Activity.SAVE, step=step)
            if error is None:
                self.settled(operation, None, None)
        else:
            data = operation.data if error is None else None
            self._recorder.finish(Activity.RESTORE, step=step, data=data)
            if error is None:
                self._loop.restored()
        self._loop.passed()

    # --- saves that go on in the background -------------------------------------------------------------

    def now(self) -> int:
        """The time, ns."""
        return self._recorder.now()

    def hand_over(self, operation: Operation) -> None:
        """The blocking part of a save is over; :meth:`settled` tells how the rest ended."""
        self._here.operation = None
        self._recorder.finish(Activity.SAVE, step=operation.step)
        self._loop.passed()

    def goes_on(self, operation: Operation) -> None:
        """The rest of a save that was handed over is done on this thread, up to :meth:`settled`."""
        self._here.operation = operation

    def settled(self, operation: Operation, since: int | None, error: str | None) -> None:
        """What began in the background (``since`` is when the blocking part ended) is durable or lost."""
        if self._here.operation is operation:
            self._here.operation = None
        if error is not None:
            self._recorder.commit_failed(operation.step, error)
            return
        duration = None if since is None else self._recorder.now() - since
        self._recorder.committed(operation.step, duration=duration, data=operation.data)

    # --- torch.save, torch.load -------------------------------------------------------------------------

    def save_begins(self, obj: Any, f: Any = None, *args: Any, **kwargs: Any) -> tuple[Operation | None, Any] | None:
        """``torch.save(obj, f)``."""
        f = kwargs.get("f", f)
        if isinstance(f, io.BytesIO) or not holds_state(obj):
            return None
        operation = self.begins(Activity.SAVE, path_of(f))
        return operation, f

    def save_ended(self, token: Any, result: Any, error: BaseException | None) -> None:
        if token is None or token[0] is None:
            return
        operation, f = token
        if error is None and hasattr(f, "write"):  # its last bytes come when the host closes it
            self.hand_over(operation)
            self._unsettled.append(operation)
        else:
            self.ended(operation, result, error)

    def load_begins(self, f: Any = None, *args: Any, **kwargs: Any) -> tuple[int, str | None] | None:
        """``torch.load(f)``."""
        f = kwargs.get("f", f)
        return None if isinstance(f, io.BytesIO) else (self._recorder.now(), path_of(f))

    def load_ended(self, token: tuple[int, str | None] | None, result: Any, error: BaseException | None) -> None:
        if token is None or error is not None or not holds_state(result):
            return
        started, path = token
        if not self._is_outermost():
            self._adds(path)
            return
        operation = Operation(Activity.RESTORE, started, None)
        operation.paths += [path] if path is not None else []
        lasted = self._recorder.now() - started
        self._recorder.span(Activity.RESTORE, started, lasted, data=operation.data)
        self._loop.restored()

    def settle(self) -> None:
        """Commit what was written through files of the host, which it has closed by now."""
        while self._unsettled:
            self.settled(self._unsettled.pop(0), None, None)

    def _is_outermost(self) -> bool:
        """Whether this is a call of the host's own, on a thread and in a process that may record."""
        inside = self._recorder.inside
        busy = self._here.operation or inside(Activity.SAVE) or inside(Activity.RESTORE) or inside(Activity.DATA)
        return not busy and not self._loop.is_replica() and os.getpid() == self._process

    def _adds(self, path: str | None) -> None:
        operation = self._here.operation
        if operation is not None and path is not None and path not in operation.paths:
            operation.paths.append(path)


_made: dict[int, Checkpoints] = {}


def checkpoints_of(hooks: Hooks) -> Checkpoints:
    """What tells the checkpoints of the recorder that ``hooks`` tell."""
    loop = loop_of(hooks)
    made = _made.get(id(loop))
    if made is None:
        made = _made[id(loop)] = Checkpoints(loop)
        hooks.at_close.append(functools.partial(_close, id(loop)))
    return made


def _close(key: int) -> None:
    made = _made.pop(key, None)
    if made is not None:
        made.settle()


def observe_files(torch: Any, hooks: Hooks) -> None:
    """Observe ``torch.save`` and ``torch.load``, by both names that each goes by."""
    checkpoints = checkpoints_of(hooks)
    for owner in (torch, torch.serialization):
        around(hooks.patches, owner, "save", hooks.guard, before=checkpoints.save_begins, after=checkpoints.save_ended)
        around(hooks.patches, owner, "load", hooks.guard, before=checkpoints.load_begins, after=checkpoints.load_ended)
