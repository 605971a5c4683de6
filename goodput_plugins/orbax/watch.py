"""What each of Orbax's calls means, in our words: the callbacks behind every hook.

``*_begins`` methods are called with the host's arguments before its call and return a token;
``*_ended`` methods get the token, the host's result and its error.
"""

from __future__ import annotations

import weakref
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.orbax.operations import WAIT, Operation, Operations
from goodput_plugins.orbax.saves import InFlight, Save
from goodput_plugins.orbax.steps import key_of, step_of_direct, step_of_managed


class Watch:
    """Sees the calls of Orbax and tells the recorder.

    Args:
        recorder: where to.
        only: the managers to watch; None means every manager and checkpointer.
    """

    def __init__(self, recorder: NullRecorder, only: weakref.WeakSet[Any] | None = None) -> None:
        self.only = only
        self.operations = Operations(recorder)
        self.in_flight = InFlight(recorder)

    def manager_save_begins(self, manager: Any, *args: Any, **kwargs: Any) -> Operation | None:
        """``CheckpointManager.save``: told once it is decided that it saves, at once if that is forced."""
        if not self._watches(manager):
            return None
        operation = self.operations.open(Activity.SAVE, given=_given(args, kwargs, 0, "step"), manager=manager)
        if _given(args, kwargs, 4, "force"):
            self.operations.begin(operation)
        return operation

    def decision_ended(self, manager: Any, saves: Any, error: BaseException | None) -> None:
        """``CheckpointManager.should_save``; outside a save it is a question without consequence."""
        operation = self.operations.innermost
        if operation is not None and operation.manager is manager and error is None and saves:
            self.operations.begin(operation)

    def manager_save_ended(self, operation: Operation | None, saved: Any, error: BaseException | None) -> None:
        if operation is not None:
            self.operations.close(operation, succeeded=error is None and bool(saved))

    def finalize_ended(self, manager: Any, result: Any, error: BaseException | None) -> None:
        """``CheckpointManager._finalize``, on Orbax's own thread: the checkpoint is durable or lost."""
        self.in_flight.waited(manager, error)

    def manager_restore_begins(self, manager: Any, *args: Any, **kwargs: Any) -> Operation | None:
        """``CheckpointManager.restore``; from a directory that is not the manager's it resumes nothing."""
        if not self._watches(manager):
            return None
        directory = _given(args, kwargs, 3, "directory")
        ours = directory is None or key_of(directory) == key_of(manager.directory)
        return self._restores(given=_given(args, kwargs, 0, "step"), manager=manager, numbered=ours)

    def trainer_load_begins(self, checkpointer: Any, *args: Any, **kwargs: Any) -> Operation | None:
        """``v1.training.Checkpointer.load``, whose step may be the metadata of a checkpoint; it calls its like."""
        around = self.operations.innermost
        if around is not None and around.manager is checkpointer:
            return None
        step = _given(args, kwargs, 0, "step")
        return self._restores(given=getattr(step, "step", step), manager=checkpointer)

    def restore_ended(self, operation: Operation | None, result: Any, error: BaseException | None) -> None:
        if operation is not None:
            self.operations.close(operation, succeeded=error is None)

    def checkpointer_save_begins(self, checkpointer: Any, *args: Any, **kwargs: Any) -> _Written | None:
        """``Checkpointer.save(directory)``, by a manager or directly."""
        return self._writes(_given(args, kwargs, 0, "directory"), checkpointer)

    def checkpointer_save_ended(self, written: _Written | None, result: Any, error: BaseException | None) -> None:
        if written is None:
            return
        save, direct = written
        save.handed_over = True
        if error is not None:
            self.in_flight.drop(save)
        if direct:
            self.operations.close(save.operation, succeeded=error is None)

    def checkpointer_restore_begins(self, checkpointer: Any, *args: Any, **kwargs: Any) -> Operation | None:
        """``Checkpointer.restore(directory)``, by a manager or directly."""
        return self._reads(_given(args, kwargs, 0, "directory"))

    def function_save_begins(self, *args: Any, **kwargs: Any) -> _Written | None:
        """``v1.save(path)`` and its kin."""
        return self._writes(_given(args, kwargs, 0, "path"))

    def function_save_ended(self, written: _Written | None, response: Any, error: BaseException | None) -> None:
        if written is not None and response is not None:
            written[0].owners.append(weakref.ref(response))
        self.checkpointer_save_ended(written, response, error)

    def function_load_begins(self, *args: Any, **kwargs: Any) -> Operation | None:
        """``v1.load(path)`` and its kin."""
        return self._reads(_given(args, kwargs, 0, "path"))

    def wait_begins(self, waited: Any, *args: Any, **kwargs: Any) -> _Waited:
        """The host waits for what is in flight; inside a save or restore that is part of it."""
        around = self.operations.innermost
        if around is not None:
            if around.manager is not None:
                self.operations.begin(around)
        elif self.operations.trains and self._watches(waited):
            operation = self.operations.open(Activity.SAVE, name=WAIT)
            if self.in_flight:
                self.operations.begin(operation)
            return waited, operation
        return waited, None

    def wait_ended(self, token: _Waited | None, result: Any, error: BaseException | None) -> None:
        """A manager's wait: only its ``_finalize`` says what became of the save."""
        if token is not None and token[1] is not None:
            self.operations.close(token[1], succeeded=False)

    def checkpointer_wait_ended(self, token: _Waited | None, result: Any, error: BaseException | None) -> None:
        self.wait_ended(token, result, error)
        if token is not None:
            self.in_flight.waited(token[0], error)

    def response_wait_ended(self, token: _Waited | None, result: Any, error: BaseException | None) -> None:
        """``AsyncResponse.result(timeout)``: the end of the host's patience is not the end of the save."""
        self.wait_ended(token, result, error)
        if token is not None and not isinstance(error, TimeoutError):
            self.in_flight.waited(token[0], error)

    def check_ended(self, checkpointer: Any, result: Any, error: BaseException | None) -> None:
        """``AsyncCheckpointer.check_for_errors`` does not wait: only an error says something."""
        if error is not None:
            self.in_flight.waited(checkpointer, error)

    def cancel_begins(self, checkpointer: Any, *args: Any, **kwargs: Any) -> None:
        """``AsyncCheckpointer.cancel``."""
        self.in_flight.cancelled(checkpointer)

    def completion_begins(self, told: Any, *args: Any, **kwargs: Any) -> None:
        """``OperationRecorder.record_completion``: the folder has its final name."""
        if told._operation_type.value == "save":
            self.in_flight.completed(key_of(told._path))

    def _watches(self, owner: Any) -> bool:
        return self.only is None or owner in self.only

    def _restores(self, **known: Any) -> Operation:
        operation = self.operations.open(Activity.RESTORE, **known)
        self.operations.begin(operation)
        return operation

    def _writes(self, path: Any, checkpointer: Any = None) -> _Written | None:
        key = key_of(path)
        around = self.operations.innermost
        if around is None:
            if self.only is not None:
                return None
            operation = self.operations.open(Activity.SAVE, step=step_of_direct(key))
        else:
            operation = around
            operation.resolve(step_of_managed(key))
        self.operations.begin(operation)
        owners = [weakref.ref(owner) for owner in (checkpointer, operation.manager) if owner is not None]
        save = Save(key, operation, owners)
        self.in_flight.add(save)
        return save, around is None

    def _reads(self, path: Any) -> Operation | None:
        key = key_of(path)
        around = self.operations.innermost
        if around is not None:
            around.resolve(step_of_managed(key))
            return None
        return None if self.only is not None else self._restores(step=step_of_direct(key))


_Written = tuple[Save, bool]
"""A save, and whether the host called the checkpointer directly."""
_Waited = tuple[Any, Operation | None]
"""What was waited for, and the operation if that time is the training thread's."""


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], at: int, name: str) -> Any:
    """The argument that the host gave by place or by name."""
    return args[at] if len(args) > at else kwargs.get(name)
