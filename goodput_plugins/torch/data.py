"""Waits for data: the outermost call into a ``DataLoader``, on the thread that makes it."""

from __future__ import annotations

import os
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around


def waiting(hooks: Hooks, owner: Any, name: str) -> None:
    """Observe the calls of the method ``owner.name`` as waits for data."""
    recorder, process = hooks.recorder, os.getpid()

    def begins(*args: Any, **kwargs: Any) -> bool:
        if os.getpid() != process or recorder.inside(Activity.DATA):
            return False
        recorder.begin(Activity.DATA, name="DataLoader")
        return True

    def ends(outermost: bool | None, result: Any, error: BaseException | None) -> None:
        if outermost:
            recorder.finish(Activity.DATA, name="DataLoader")

    around(hooks.patches, owner, name, hooks.guard, before=begins, after=ends)
