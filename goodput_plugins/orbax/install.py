"""Where Orbax is hooked: one line for each call.

Public methods wherever there is one. Private are ``CheckpointManager._finalize`` (a background save
that failed), ``OperationRecorder`` (the moment of a commit) and the responses of v1.
"""

from __future__ import annotations

import functools
import importlib
import weakref
from typing import Any

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.orbax.watch import Watch

SEES = (Bucket.SAVE.value, Bucket.RESTORE.value, Bucket.SAVE_ASYNC.value)
"""The buckets that this plugin can see."""

_MARK = "_goodput_installed"
"""What a hooked ``CheckpointManager`` carries: by whom it is hooked. It goes when the hooks go."""


def install_orbax(module: Any, hooks: Hooks) -> None:
    """Watch every manager and checkpointer of this process.

    Args:
        module: ``orbax.checkpoint``, imported.
        hooks: what to tell, and through what to patch.

    Raises:
        AttributeError, ImportError: a version of Orbax that lacks what is hooked; nothing stays patched.
    """
    _install(module, hooks, Watch(hooks.recorder))


def install_for(module: Any, hooks: Hooks, managers: weakref.WeakSet[Any]) -> None:
    """Watch ``managers`` alone, those that join the set later included.

    Raises:
        AttributeError, ImportError: as :func:`install_orbax`.
    """
    _install(module, hooks, Watch(hooks.recorder, only=managers))


def installed(module: Any) -> Watch | None:
    """What watches ``module`` already."""
    mark: tuple[Hooks, Watch] | None = getattr(module.CheckpointManager, _MARK, None)
    return mark[1] if mark is not None else None


def _install(module: Any, hooks: Hooks, watch: Watch) -> None:
    mark = getattr(module.CheckpointManager, _MARK, None)
    if mark is not None:
        mark[0].patches.undo()
    try:
        hooks.patches.set(module.CheckpointManager, _MARK, (hooks, watch))
        _hook_managers(module, hooks, watch)
        _hook_checkpointers(module, hooks, watch)
        if watch.only is None:
            _hook_v1(module, hooks, watch)
    except (AttributeError, ImportError):
        hooks.patches.undo()
        raise


def _hook_managers(module: Any, hooks: Hooks, watch: Watch) -> None:
    hook = functools.partial(around, hooks.patches, module.CheckpointManager, guard=hooks.guard)
    hook("save", before=watch.manager_save_begins, after=watch.manager_save_ended)
    hook("should_save", before=_itself, after=watch.decision_ended)
    hook("restore", before=watch.manager_restore_begins, after=watch.restore_ended)
    hook("wait_until_finished", before=watch.wait_begins, after=watch.wait_ended)
    hook("close", before=watch.wait_begins, after=watch.wait_ended)
    hook("_finalize", before=_itself, after=watch.finalize_ended)


def _hook_checkpointers(module: Any, hooks: Hooks, watch: Watch) -> None:
    hook = functools.partial(around, hooks.patches, guard=hooks.guard)
    for checkpointer in (module.Checkpointer, module.AsyncCheckpointer):
        hook(checkpointer, "save", before=watch.checkpointer_save_begins, after=watch.checkpointer_save_ended)
    hook(module.Checkpointer, "restore", before=watch.checkpointer_restore_begins, after=watch.restore_ended)
    for name in ("wait_until_finished", "close"):
        hook(module.AsyncCheckpointer, name, before=watch.wait_begins, after=watch.checkpointer_wait_ended)
    hook(module.AsyncCheckpointer, "check_for_errors", before=_itself, after=watch.check_ended)
    if hasattr(module.AsyncCheckpointer, "cancel"):  # 0.12.0 cannot cancel
        hook(module.AsyncCheckpointer, "cancel", before=watch.cancel_begins)
    tracking = importlib.import_module("orbax.checkpoint._src.logging.event_tracking")
    hook(tracking.OperationRecorder, "record_completion", before=watch.completion_begins)


def _hook_v1(module: Any, hooks: Hooks, watch: Watch) -> None:
    """v1 keeps its own functions; its ``training.Checkpointer`` saves through a ``CheckpointManager``."""
    v1, hook = module.v1, functools.partial(around, hooks.patches, guard=hooks.guard)
    for name in ("save", "save_async", "save_checkpointables", "save_checkpointables_async"):
        for owner in (_home(v1, name), v1):
            hook(owner, name, before=watch.function_save_begins, after=watch.function_save_ended)
    for name in ("load", "load_checkpointables"):
        for owner in (_home(v1, name), v1):
            hook(owner, name, before=watch.function_load_begins, after=watch.restore_ended)
        hook(v1.training.Checkpointer, name, before=watch.trainer_load_begins, after=watch.restore_ended)
    inside = "orbax.checkpoint.experimental.v1._src."
    for response in (
        importlib.import_module(inside + "saving.execution")._SaveResponse,
        importlib.import_module(inside + "training.checkpointer")._AsyncSaveResponse,
    ):
        hook(response, "result", before=watch.wait_begins, after=watch.response_wait_ended)


def _home(v1: Any, name: str) -> Any:
    """The module that defines a function of v1, where v1's own code finds it."""
    return importlib.import_module(getattr(v1, name).__module__)


def _itself(owner: Any, *args: Any, **kwargs: Any) -> Any:
    return owner
