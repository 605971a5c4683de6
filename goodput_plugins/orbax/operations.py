"""What a thread is doing to a checkpoint, as Orbax nests it and as it is told.

A manager's save waits for the save before it, then calls a checkpointer's save, which waits again.
One stretch of time is one operation: the outermost call on a thread is told, those inside are not.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.orbax.steps import read

WAIT = "wait"
"""The name of a SAVE activity that only waited: it is no checkpoint."""
WORTH_TELLING = 1_000_000
"""A wait that was not expected is told if it took longer, ns."""


@dataclass(eq=False, slots=True)
class Operation:
    """A save, a restore or a wait that is open on a thread.

    Attributes:
        activity: SAVE or RESTORE.
        started: when the host made the call, ns.
        ended: when the call returned, ns.
        given: the step as the host gave it.
        step: the checkpoint's step, as soon as it is known.
        name: WAIT, or None.
        manager: the manager whose call it is, if one's.
        numbered: the step of the path is a step of this run.
        begun: its beginning has been told.
    """

    activity: Activity
    started: int
    ended: int | None = None
    given: Any = None
    step: int | None = None
    name: str | None = None
    manager: object = None
    numbered: bool = True
    begun: bool = False

    def resolve(self, step: int | None) -> None:
        """What a manager's argument or path says the step is; the first that knows it is right."""
        if self.step is None and self.manager is not None and self.numbered:
            self.step = step


class Operations:
    """The operations that are open, innermost last; each thread has its own."""

    def __init__(self, recorder: NullRecorder) -> None:
        self._recorder = recorder
        self._here = _Here()

    @property
    def innermost(self) -> Operation | None:
        """What this thread is doing, None if nothing."""
        return self._here.stack[-1] if self._here.stack else None

    @property
    def trains(self) -> bool:
        """Whether this thread may be the one that trains: the main one, or one that saves or restores."""
        return self._here.trains

    def open(
        self,
        activity: Activity,
        *,
        given: Any = None,
        step: int | None = None,
        name: str | None = None,
        manager: object = None,
        numbered: bool = True,
    ) -> Operation:
        """The host made a call; nothing is told before :meth:`begin`."""
        operation = Operation(
            activity,
            self._recorder.now(),
            given=given,
            step=step,
            name=name,
            manager=manager,
            numbered=numbered,
        )
        self._here.stack.append(operation)
        self._here.trains = True
        return operation

    def begin(self, operation: Operation) -> None:
        """Tell that it begins, unless it is told already or belongs to the operation around it."""
        if not operation.begun and operation is self._here.stack[0]:
            operation.begun = True
            self._tell_wait(operation)
            operation.resolve(read(operation.given))
            self._recorder.begin(operation.activity, name=operation.name, step=operation.step)

    def close(self, operation: Operation, *, succeeded: bool) -> None:
        """The call returned: tell its end, with the step only if the checkpoint was saved or restored."""
        stack = self._here.stack
        if operation not in stack:
            return
        del stack[stack.index(operation) :]
        operation.ended = self._recorder.now()
        if operation.begun:
            step = operation.step if succeeded else None
            self._recorder.finish(operation.activity, name=operation.name, step=step)
        elif not stack:
            self._tell_wait(operation)

    def _tell_wait(self, operation: Operation) -> None:
        """What went before the decision to save, or to decline: other processes may have been asked."""
        duration = self._recorder.now() - operation.started
        if duration > WORTH_TELLING:
            self._recorder.span(operation.activity, operation.started, duration, name=WAIT)


class _Here(threading.local):
    def __init__(self) -> None:
        self.stack: list[Operation] = []
        self.trains = threading.current_thread() is threading.main_thread()
