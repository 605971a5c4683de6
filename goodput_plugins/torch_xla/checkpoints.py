"""Saves and restores of PyTorch/XLA: bringing the values to the host is a part of each.

``xm.save`` and ``torch_xla.utils.serialization`` end in ``torch.save``, which the plugin for ``torch`` sees and which
is a part of these. ``CheckpointManager`` saves under the script's own step numbers; what it writes in the background is
committed when its worker has written it.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.torch.checkpoints import Checkpoints, Operation, checkpoints_of
from goodput_plugins.torch.files import path_of
from goodput_plugins.torch.loop import loop_of
from goodput_plugins.torch.sharded import Background
from goodput_plugins.torch.states import holds_state


def observe_save(xla_model: Any, hooks: Hooks) -> None:
    """Observe ``xm.save``."""
    checkpoints = checkpoints_of(hooks)

    def begins(data: Any, file_or_path: Any = None, *args: Any, **kwargs: Any) -> tuple[Operation | None, Any] | None:
        if not holds_state(data):
            return None
        return checkpoints.begins(Activity.SAVE, path_of(file_or_path)), file_or_path

    around(hooks.patches, xla_model, "save", hooks.guard, before=begins, after=checkpoints.save_ended)


def observe_serialization(module: Any, hooks: Hooks) -> None:
    """Observe ``torch_xla.utils.serialization``, which writes the file ``path`` and a folder of tensors beside it."""
    checkpoints = checkpoints_of(hooks)

    def save_begins(data: Any, path: Any, *args: Any, **kwargs: Any) -> Operation | None:
        return checkpoints.begins(Activity.SAVE, path_of(path))

    def load_begins(path: Any) -> Operation | None:
        return checkpoints.begins(Activity.RESTORE, path_of(path))

    hook = functools.partial(around, hooks.patches, module, guard=hooks.guard, after=checkpoints.ended)
    hook("save", before=save_begins)
    hook("load", before=load_begins)


class _Here(threading.local):
    """The call on this thread that may save: under which step; and, once it is known that it does, the save."""

    step: int | None = None
    save: Background | None = None


class Managed:
    """Tells what ``CheckpointManager`` saves and restores."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._here = _Here()
        self._background: dict[tuple[int, int], Background] = {}

    def asked(self, manager: Any, step: int, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """``save`` or ``save_async``, which do nothing at most steps."""
        self._here.step, self._here.save = step, None
        return id(manager), step

    def saving(self, manager: Any) -> None:
        """There will be a save: it begins with a wait for the values."""
        step = self._here.step
        operation = None if step is None else self._checkpoints.begins(Activity.SAVE, step=step)
        if operation is not None and step is not None:
            self._here.save = self._background[id(manager), step] = Background(operation)

    def saved(self, key: tuple[int, int] | None, result: Any, error: BaseException | None) -> None:
        """``save`` has ended."""
        save = self._taken()
        if save is not None and key is not None:
            self._background.pop(key, None)
            self._checkpoints.ended(save.operation, result, error)

    def handed_over(self, key: tuple[int, int] | None, result: Any, error: BaseException | None) -> None:
        """``save_async`` has ended; its worker writes, or has written already."""
        save = self._taken()
        if save is None or key is None:
            return
        if error is not None:
            self._background.pop(key, None)
            self._checkpoints.ended(save.operation, None, error)
            return
        self._checkpoints.hand_over(save.operation)
        save.blocked_until = self._checkpoints.now()

    def writing(self, manager: Any, step: int, state: Any) -> Background | None:
        """The values are being written, on the thread that asked or on the worker's."""
        save = self._background.get((id(manager), step))
        if save is None or save.thread == threading.get_ident():
            return None
        del self._background[id(manager), step]
        self._checkpoints.goes_on(save.operation)
        return save

    def written(self, save: Background | None, result: Any, error: BaseException | None) -> None:
        if save is not None:
            self._checkpoints.settled(save.operation, save.blocked_until, None if error is None else repr(error))

    def restoring(self, manager: Any, step: int, *args: Any, **kwargs: Any) -> Operation | None:
        """``restore``."""
        return self._checkpoints.begins(Activity.RESTORE, step=step)

    def _taken(self) -> Background | None:
        save, self._here.save, self._here.step = self._here.save, None, None
        return save


def observe_manager(manager: Any, hooks: Hooks) -> None:
    """Observe ``CheckpointManager``."""
    recorder, checkpoints = hooks.recorder, checkpoints_of(hooks)
    managed = Managed(checkpoints)

    def preempted(token: None, reached: Any, error: BaseException | None) -> None:
        if reached is True:
            recorder.notice("preemption")

    hook = functools.partial(around, hooks.patches, manager, guard=hooks.guard)
    hook("save", before=managed.asked, after=managed.saved)
    hook("save_async", before=managed.asked, after=managed.handed_over)
    hook("_wait_for_data", before=managed.saving)
    hook("_save", before=managed.writing, after=managed.written)
    hook("restore", before=managed.restoring, after=checkpoints.ended)
    hook("reached_preemption", after=preempted)


def observe_priming(module: Any, hooks: Hooks) -> None:
    """Observe ``prime_optimizer``, by both names that it goes by: the step that it takes is none."""
    loop = loop_of(hooks)

    def begins(optimizer: Any) -> None:
        loop.led += 1

    def ended(token: None, result: Any, error: BaseException | None) -> None:
        loop.led -= 1

    for owner in (module, module.util):
        around(hooks.patches, owner, "prime_optimizer", hooks.guard, before=begins, after=ended)
