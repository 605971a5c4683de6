"""The checkpoints of Fabric. Its loops are the user's own: the ``torch`` plugin sees their steps and waits."""

from __future__ import annotations

import functools
import os
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.torch.checkpoints import checkpoints_of


def observe_fabric(fabric: Any, hooks: Hooks) -> None:
    """Observe ``Fabric.save``, ``Fabric.load`` and ``Fabric.load_raw``."""
    checkpoints = checkpoints_of(hooks)

    def begins(activity: Activity, self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        return checkpoints.begins(activity, os.fspath(path))

    for name, activity in (("save", Activity.SAVE), ("load", Activity.RESTORE), ("load_raw", Activity.RESTORE)):
        before = functools.partial(begins, activity)
        around(hooks.patches, fabric, name, hooks.guard, before=before, after=checkpoints.ended)
