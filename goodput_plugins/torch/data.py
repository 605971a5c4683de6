"""Waits for data: the outermost call into a ``DataLoader``, on the thread that makes it."""

from __future__ import annotations

import os
import threading
from types import ModuleType
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.torch.loop import loop_of

NAME = "DataLoader"


class _Here(threading.local):
    """How many calls into loaders are open on this thread."""

    depth = 0


def observe_loaders(module: ModuleType, hooks: Hooks) -> None:
    """Observe what ``torch.utils.data`` makes its user wait for."""
    recorder, loop, here, process = hooks.recorder, loop_of(hooks), _Here(), os.getpid()

    def begins(waited_for: Any) -> tuple[Any, bool] | None:
        """What is waited for, and whether the batch will be skipped; None inside another wait."""
        if os.getpid() != process or loop.is_replica():
            return None
        here.depth += 1
        if here.depth > 1 or recorder.inside(Activity.DATA):
            return None
        skipped = loop.fetch_begins()
        if not skipped:
            recorder.begin(Activity.DATA, name=NAME)
        return waited_for, skipped

    def ends(token: tuple[Any, bool] | None, result: Any, error: BaseException | None) -> bool:
        here.depth = max(0, here.depth - 1)
        if token is not None and not token[1]:
            recorder.finish(Activity.DATA, name=NAME)
        return token is not None and error is None

    def started(token: tuple[Any, bool] | None, result: Any, error: BaseException | None) -> None:
        ends(token, result, error)
        loop.passed()

    def fetched(token: tuple[Any, bool] | None, result: Any, error: BaseException | None) -> None:
        if ends(token, result, error) and token is not None:
            loop.fetched(token[0])
        elif token is not None:
            loop.exhausted(token[0])

    around(hooks.patches, module.DataLoader, "__iter__", hooks.guard, before=begins, after=started)
    iterator = module.dataloader._BaseDataLoaderIter
    around(hooks.patches, iterator, "__next__", hooks.guard, before=begins, after=fetched)
