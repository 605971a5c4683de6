"""Checkpoints of libraries that write several files for one: the Hugging Face ``Trainer``, ``Accelerator``."""

from __future__ import annotations

import functools
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.torch.checkpoints import checkpoints_of


def install_transformers(module: Any, hooks: Hooks) -> None:
    """Hook ``transformers.trainer``."""
    _observe(hooks, module.Trainer, "_save_checkpoint", Activity.SAVE)
    _observe(hooks, module.Trainer, "_load_from_checkpoint", Activity.RESTORE)
    _observe(hooks, module.Trainer, "_load_optimizer_and_scheduler", Activity.RESTORE)


def install_accelerate(module: Any, hooks: Hooks) -> None:
    """Hook ``accelerate.accelerator``."""
    _observe(hooks, module.Accelerator, "save_state", Activity.SAVE)
    _observe(hooks, module.Accelerator, "load_state", Activity.RESTORE)


def _observe(hooks: Hooks, owner: Any, name: str, activity: Activity) -> None:
    """Observe a method, if this version has it: without it, each file of its own is still seen."""
    checkpoints = checkpoints_of(hooks)

    def begins(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        if activity is Activity.RESTORE and not any((*args[:1], *kwargs.values())):
            return None  # there is no checkpoint to load
        return checkpoints.begins(activity)

    if hasattr(owner, name):
        hook = functools.partial(around, hooks.patches, owner, name, hooks.guard)
        hook(before=begins, after=checkpoints.ended)
