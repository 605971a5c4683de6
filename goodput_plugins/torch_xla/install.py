"""What the import hooks call when parts of PyTorch/XLA have been imported."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.patching import Hooks
from goodput_plugins.environ import DEVICE_TIME
from goodput_plugins.torch.loop import loop_of

if TYPE_CHECKING:
    from goodput_plugins.torch_xla.device import Executions
    from goodput_plugins.torch_xla.programs import Metrics

NAME = "torch_xla"
SEES = tuple(
    bucket.value for bucket in (Bucket.TPU_INITIALIZATION, Bucket.PROGRAM_STARTUP, Bucket.SAVE, Bucket.RESTORE)
)
"""The buckets that this plugin can see once a step has been handed to a device."""


def install_torch_xla(module: Any, hooks: Hooks) -> None:
    """Hook ``torch_xla`` itself."""
    from goodput_plugins.torch_xla.checkpoints import observe_save
    from goodput_plugins.torch_xla.markers import Markers, observe_markers
    from goodput_plugins.torch_xla.programs import Metrics, Programs
    from goodput_plugins.torch_xla.replicas import replica_test
    from goodput_plugins.torch_xla.startup import observe_runtime

    extension, loop, recorder = module._XLAC, loop_of(hooks), hooks.recorder
    metrics, is_replica = Metrics(extension, recorder.now), replica_test(extension)
    hooks.patches.set(loop, "is_replica", lambda: bool(hooks.guard(is_replica)))
    device_of = functools.partial(_training_is_xla, module, hooks, metrics)
    observe_runtime(extension, hooks)
    observe_markers(extension, hooks, Markers(loop, Programs(metrics, recorder), device_of))
    observe_save(module.core.xla_model, hooks)


def install_loader(module: Any, hooks: Hooks) -> None:
    """Hook ``torch_xla.distributed.parallel_loader``."""
    from goodput_plugins.torch_xla.data import observe_device_loaders

    observe_device_loaders(module, hooks)


def install_serialization(module: Any, hooks: Hooks) -> None:
    """Hook ``torch_xla.utils.serialization``."""
    from goodput_plugins.torch_xla.checkpoints import observe_serialization

    observe_serialization(module, hooks)


def install_distributed_checkpoint(module: Any, hooks: Hooks) -> None:
    """Hook ``torch_xla.experimental.distributed_checkpoint``."""
    from goodput_plugins.torch_xla.checkpoints import observe_manager, observe_priming

    observe_manager(module.CheckpointManager, hooks)
    observe_priming(module, hooks)


def _training_is_xla(module: Any, hooks: Hooks, metrics: Metrics) -> Executions | None:
    """The first step has been handed over: tell what is seen, and who tells when steps were done.

    Where several threads drive a device each, the runtime's record does not say whose programs it is of.
    """
    from goodput_plugins.torch_xla.device import Executions

    alone = threading.current_thread() is threading.main_thread() or module._XLAC._xla_num_devices() == 1
    known = alone and DEVICE_TIME.read() != "off"
    hooks.recorder.plugin(NAME, module.__version__, SEES, device="deferred" if known else "unseen")
    return Executions(metrics, hooks.recorder) if known else None
