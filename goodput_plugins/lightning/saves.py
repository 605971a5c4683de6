"""Saves of a ``Trainer``, from their begin to their commit.

``Trainer.save_checkpoint`` is the blocking part. Where ``AsyncCheckpointIO`` writes the file, that goes on in a thread
of its own, which calls the ``save_checkpoint`` of the plugin that really writes: its end is the commit.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around


class Save:
    """A checkpoint of a trainer.

    Attributes:
        step: the number of the last step in it.
        steps: how many steps of this process it holds.
        blocked_until: when its blocking part ended, ns.
        in_background: another thread writes it.
    """

    __slots__ = ("blocked_until", "in_background", "step", "steps")

    def __init__(self, step: int, steps: int) -> None:
        self.step = step
        self.steps = steps
        self.blocked_until: int | None = None
        self.in_background = False


class Saves:
    """Tells the saves of trainers."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._recorder = hooks.recorder
        self._open: Save | None = None
        self._thread = 0
        self._background: dict[str, Save] = {}
        self._observed: set[type] = set()

    def begins(self, step: int, steps: int) -> Save | None:
        """A save begins that holds the steps up to ``step``; None inside another."""
        if self._recorder.inside(Activity.SAVE):
            return None
        self._open, self._thread = Save(step, steps), threading.get_ident()
        self._recorder.begin(Activity.SAVE, step=step)
        return self._open

    def ended(self, save: Save | None, result: Any, error: BaseException | None) -> None:
        """The blocking part of a save ended."""
        if save is None:
            return
        self._open = None
        self._recorder.finish(Activity.SAVE, step=save.step if error is None else None)
        save.blocked_until = self._recorder.now()
        if error is None and not save.in_background:
            self._committed(save)

    def handed_over(self, plugin: Any, *args: Any, **kwargs: Any) -> None:
        """``AsyncCheckpointIO.save_checkpoint(checkpoint, path)``: from here on another thread writes."""
        path = args[1] if len(args) > 1 else kwargs.get("path")
        inner = type(plugin.checkpoint_io)
        if inner not in self._observed:
            self._observed.add(inner)
            hooks = self._hooks
            around(hooks.patches, inner, "save_checkpoint", hooks.guard, before=_path, after=self._written)
        if self._open is not None and path is not None:
            self._open.in_background = True
            self._background[os.fspath(path)] = self._open

    def _written(self, path: str | None, result: Any, error: BaseException | None) -> None:
        """The plugin that really writes has returned, or raised, maybe on a thread of its own."""
        if path is None or self._recorder.inside(Activity.SAVE):
            return
        save = self._background.pop(path, None)
        if save is None:
            return
        if error is None:
            self._committed(save)
        else:
            self._recorder.commit_failed(save.step, f"{type(error).__name__}: {error}")

    def _committed(self, save: Save) -> None:
        since = save.blocked_until if save.in_background else None
        duration = None if since is None else self._recorder.now() - since
        self._recorder.committed(save.step, duration=duration, data={"steps": save.steps})


def _path(plugin: Any, *args: Any, **kwargs: Any) -> str | None:
    path = args[1] if len(args) > 1 else kwargs.get("path")
    return None if path is None else os.fspath(path)
