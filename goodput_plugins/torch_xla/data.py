"""Waits for a device loader: the call that takes a batch from its queue, without the marker around it.

Its threads read from the host's loader and upload; what they wait for is overlapped work, and begins no step.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.torch.loop import loop_of

NAME = "ParallelLoader"


def observe_device_loaders(module: Any, hooks: Hooks) -> None:
    """Observe ``torch_xla.distributed.parallel_loader``."""
    recorder, loop = hooks.recorder, loop_of(hooks)

    def begins(loader: Any, *args: Any) -> tuple[Any, bool] | None:
        """The loader that is waited for, and whether the batch will be skipped."""
        if loop.is_replica() or recorder.inside(Activity.DATA):
            return None
        skipped = loop.fetch_begins()
        if not skipped:
            recorder.begin(Activity.DATA, name=NAME)
        return loader, skipped

    def ended(token: tuple[Any, bool] | None, batch: Any, error: BaseException | None) -> None:
        if token is None:
            return
        loader, skipped = token
        if not skipped:
            recorder.finish(Activity.DATA, name=NAME)
        if error is not None or batch is None:
            loop.exhausted(loader)
        else:
            loop.fetched(loader)

    def reading_begins(loader: Any) -> None:
        loop.readers.add(get_ident())

    def reading_ended(token: None, result: Any, error: BaseException | None) -> None:
        loop.readers.discard(get_ident())

    loader = module.ParallelLoader
    around(hooks.patches, loader, "next_item", hooks.guard, before=begins, after=ended)
    around(hooks.patches, loader, "_loader_worker", hooks.guard, before=reading_begins, after=reading_ended)
