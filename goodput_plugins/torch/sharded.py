"""``torch.distributed.checkpoint``, as its own logger tells of it.

Each of its functions logs a dict when it starts, ends or fails, on the thread that runs it. ``async_save`` ends when
training may go on; the ``save`` that it started goes on elsewhere, with the same checkpoint id, and its end is the
commit. (Where another process does that, nothing tells the commit.)
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.patching import Hooks, wrapper
from goodput_plugins.torch.checkpoints import Checkpoints, Operation, checkpoints_of

METADATA = ".metadata"
"""The file that is written last; its identity is that of the checkpoint."""


class Background:
    """An asynchronous save: its call, and from when on training went on."""

    __slots__ = ("blocked_until", "operation", "thread")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.thread = threading.get_ident()
        self.blocked_until: int | None = None


class Sharded:
    """Tells the saves and loads of ``torch.distributed.checkpoint``."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._open: dict[tuple[int, str], Operation | None] = {}
        self._background: dict[str | None, Background] = {}

    def told(self, message: Any) -> None:
        """The logger was handed a message."""
        if not isinstance(message, dict):
            return
        function, event, where = message.get("func_name"), message.get("event"), message.get("checkpoint_id")
        failed = event == "exception"
        if function == "async_save":
            self._async_save(where, event, failed)
        elif function == "save" and self._is_background(where):
            self._background_save(where, event, str(message.get("error")) if failed else None)
        elif function in ("save", "load"):
            self._call(function, where, event, failed)

    def _call(self, function: str, where: str | None, event: Any, failed: bool) -> None:
        key = threading.get_ident(), function
        if event == "start":
            activity = Activity.SAVE if function == "save" else Activity.RESTORE
            self._open[key] = self._checkpoints.begins(activity, _metadata(where))
        elif key in self._open:
            self._checkpoints.ended(self._open.pop(key), None, RuntimeError() if failed else None)

    def _async_save(self, where: str | None, event: Any, failed: bool) -> None:
        if event == "start":
            operation = self._checkpoints.begins(Activity.SAVE, _metadata(where))
            if operation is not None:
                self._background[where] = Background(operation)
            return
        background = self._background.get(where)
        if background is not None:
            self._checkpoints.hand_over(background.operation)
            background.blocked_until = self._checkpoints.now()
            if failed:
                del self._background[where]

    def _is_background(self, where: str | None) -> bool:
        background = self._background.get(where)
        return background is not None and background.thread != threading.get_ident()

    def _background_save(self, where: str | None, event: Any, error: str | None) -> None:
        if event != "start":
            background = self._background.pop(where)
            self._checkpoints.settled(background.operation, background.blocked_until, error)


class _Handler(logging.Handler):
    """Hands each message on; never formats or prints one."""

    def __init__(self, sharded: Sharded, guard: Guard) -> None:
        super().__init__()
        self._sharded = sharded
        self._guard = guard

    @wrapper
    def emit(self, record: logging.LogRecord) -> None:
        self._guard(self._sharded.told, record.msg)


def observe_sharded(logger: logging.Logger, hooks: Hooks) -> None:
    """Listen to the logger of ``torch.distributed.checkpoint``."""
    handler = _Handler(Sharded(checkpoints_of(hooks)), hooks.guard)
    logger.addHandler(handler)
    hooks.at_close.append(lambda: logger.removeHandler(handler))


def _metadata(where: str | None) -> str | None:
    return None if where is None else os.path.join(where, METADATA)
