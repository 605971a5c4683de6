"""Start-up: process groups and the rank that they tell, CUDA, ``torch.compile``."""

from __future__ import annotations

import functools
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around, without_this_frame, wrapper

GROUP = "init_process_group"
COMPILE = "torch.compile"


def observe_process_groups(distributed: Any, hooks: Hooks) -> None:
    """Observe ``init_process_group``, by both names that it goes by."""
    recorder = hooks.recorder

    def begins(backend: Any = None, init_method: Any = None, timeout: Any = None, *args: Any, **kwargs: Any) -> None:
        count = args[0] if args else kwargs.get("world_size", -1)
        rank = args[1] if len(args) > 1 else kwargs.get("rank", -1)
        if rank >= 0 and count > 0:
            recorder.rank(rank, count)  # first: the process may turn out to be one that keeps no journal
        recorder.begin(Activity.DEVICE_INIT, name=GROUP)

    def ended(token: Any, result: Any, error: BaseException | None) -> None:
        recorder.finish(Activity.DEVICE_INIT, name=GROUP)
        if error is None:
            recorder.rank(distributed.get_rank(), distributed.get_world_size())

    for owner in (distributed, distributed.distributed_c10d):
        around(hooks.patches, owner, GROUP, hooks.guard, before=begins, after=ended)


def observe_cuda(cuda: Any, hooks: Hooks) -> None:
    """Observe the initialization of CUDA; from then on the host's own function stands in its place again."""
    recorder, guard, original = hooks.recorder, hooks.guard, cuda._lazy_init

    def told(since: int) -> None:
        if cuda.is_initialized():
            if cuda._lazy_init is lazy_init:
                cuda._lazy_init = original
            recorder.span(Activity.DEVICE_INIT, since, recorder.now() - since, name="cuda")

    @functools.wraps(original)
    @wrapper
    def lazy_init() -> None:
        since = guard(recorder.now) if not cuda.is_initialized() else None
        try:
            original()
        except BaseException as error:
            without_this_frame(error)
            raise
        if since is not None:
            guard(told, since)

    hooks.patches.set(cuda, "_lazy_init", lazy_init)


def observe_compiler(callback: Any, hooks: Hooks) -> None:
    """Observe where dynamo calls its callbacks: when the outermost compilation begins and ends.

    A callback that is registered there would not survive ``torch._dynamo.reset()``.
    """
    recorder = hooks.recorder

    def begins(handler: Any, args: Any) -> None:
        recorder.begin(Activity.COMPILE, name=COMPILE)

    def ends(handler: Any, args: Any) -> None:
        recorder.finish(Activity.COMPILE, name=COMPILE)

    handler = type(callback.callback_handler)
    around(hooks.patches, handler, "run_start_callbacks", hooks.guard, before=begins)
    around(hooks.patches, handler, "run_end_callbacks", hooks.guard, before=ends)
