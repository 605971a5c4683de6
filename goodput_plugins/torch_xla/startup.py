"""The start of the runtime: whichever call starts it."""

from __future__ import annotations

from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around

NAME = "XLA runtime"
STARTERS = (
    "_xla_get_default_device",
    "_xla_get_devices",
    "_xla_get_all_devices",
    "_xla_real_devices",
    "_xla_num_devices",
    "_xla_num_runtime_devices",
    "_xla_set_default_device",
    "_xla_get_default_device_ordinal",
    "_xla_get_process_index",
    "_xla_get_num_processes",
)
"""Functions of the extension, of which the first that is called starts the runtime."""


def observe_runtime(extension: Any, hooks: Hooks) -> None:
    """Observe the start of the runtime; from then on the host's own functions stand in their places again."""
    recorder = hooks.recorder
    is_initialized = extension._xla_runtime_is_initialized
    count, index = extension._xla_get_num_processes, extension._xla_get_process_index
    patched = Hooks(recorder, hooks.guard)

    def begins(*args: Any, **kwargs: Any) -> bool:
        if is_initialized() or recorder.inside(Activity.DEVICE_INIT):
            return False
        recorder.begin(Activity.DEVICE_INIT, name=NAME)
        return True

    def ended(first: bool | None, result: Any, error: BaseException | None) -> None:
        if first:
            recorder.finish(Activity.DEVICE_INIT, name=NAME)
        if not is_initialized():
            return
        patched.patches.undo()
        processes = count() if first else 1
        if processes > 1:  # alone in its world it may yet be one of several that a launcher started
            recorder.rank(index(), processes)

    if not is_initialized():
        for name in STARTERS:
            if hasattr(extension, name):
                around(patched.patches, extension, name, hooks.guard, before=begins, after=ended)
    hooks.at_close.append(patched.patches.undo)
