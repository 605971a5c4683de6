"""The Hugging Face ``Trainer`` and ``Accelerator``: checkpoints of several files as one, evaluations as a whole."""

from __future__ import annotations

import functools
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.environ import EVAL
from goodput_plugins.torch.checkpoints import checkpoints_of
from goodput_plugins.torch.loop import loop_of


def install_transformers(module: Any, hooks: Hooks) -> None:
    """Hook ``transformers.trainer``."""
    _observe(hooks, module.Trainer, "_save_checkpoint", Activity.SAVE)
    _observe(hooks, module.Trainer, "_load_from_checkpoint", Activity.RESTORE)
    _observe(hooks, module.Trainer, "_load_optimizer_and_scheduler", Activity.RESTORE)
    if EVAL.read() != "off":
        _observe_evaluation(hooks, module.Trainer, "evaluate", "EVAL")
        _observe_evaluation(hooks, module.Trainer, "predict", "PREDICT")


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


def _observe_evaluation(hooks: Hooks, owner: Any, name: str, told_as: str) -> None:
    """Observe a method that evaluates; one may call another."""
    recorder, loop = hooks.recorder, loop_of(hooks)

    def begins(trainer: Any, *args: Any, **kwargs: Any) -> bool:
        if recorder.inside(Activity.CUSTOM):
            return False
        recorder.begin(Activity.CUSTOM, name=told_as)
        return True

    def ended(begun: bool | None, result: Any, error: BaseException | None) -> None:
        if begun:
            recorder.finish(Activity.CUSTOM, name=told_as)
            loop.passed()

    around(hooks.patches, owner, name, hooks.guard, before=begins, after=ended)
