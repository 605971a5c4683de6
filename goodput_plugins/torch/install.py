"""What the import hooks call when parts of PyTorch, or libraries that build on it, have been imported."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.patching import Hooks, wrapper
from goodput_plugins.environ import DEVICE_TIME, EVAL
from goodput_plugins.torch.data import observe_loaders
from goodput_plugins.torch.loop import Loop, loop_of

NAME = "torch"
SEES = tuple(
    bucket.value
    for bucket in (
        Bucket.TPU_INITIALIZATION,
        Bucket.PROGRAM_STARTUP,
        Bucket.DATA_LOADING_SYNC,
        Bucket.SAVE,
        Bucket.RESTORE,
        Bucket.SAVE_ASYNC,
        *((Bucket.CUSTOM,) if EVAL.read() != "off" else ()),
    )
)
"""The buckets that this plugin can see once an optimizer steps; before, PyTorch may serve another framework."""


def install_data(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``torch.utils.data``."""
    observe_loaders(module, hooks)


def install_torch(module: Any, hooks: Hooks) -> None:
    """Hook ``torch`` itself."""
    from goodput_plugins.torch.checkpoints import observe_files
    from goodput_plugins.torch.evaluation import observe_modes
    from goodput_plugins.torch.startup import observe_cuda, observe_process_groups
    from goodput_plugins.torch.states import own_count

    loop = loop_of(hooks)
    loop.count_of = own_count
    loop.on_first_step = lambda optimizer: _training_is_torch(module, hooks, loop, optimizer)
    _observe_optimizers(module, hooks, loop)
    observe_files(module, hooks)
    if EVAL.read() != "off":
        observe_modes(module.nn.Module, hooks)
    observe_cuda(module.cuda, hooks)
    if module.distributed.is_available():
        observe_process_groups(module.distributed, hooks)


def install_compiler(module: Any, hooks: Hooks) -> None:
    """Hook ``torch._dynamo.callback``."""
    from goodput_plugins.torch.startup import observe_compiler

    observe_compiler(module, hooks)


def install_sharded(module: Any, hooks: Hooks) -> None:
    """Hook ``torch.distributed.checkpoint.logger``."""
    from goodput_plugins.torch.sharded import observe_sharded

    observe_sharded(module._dcp_logger, hooks)


def install_transformers(module: Any, hooks: Hooks) -> None:
    """Hook ``transformers.trainer``."""
    from goodput_plugins.torch import trainers

    trainers.install_transformers(module, hooks)


def install_accelerate(module: Any, hooks: Hooks) -> None:
    """Hook ``accelerate.accelerator``."""
    from goodput_plugins.torch import trainers

    trainers.install_accelerate(module, hooks)


def _observe_optimizers(torch: Any, hooks: Hooks, loop: Loop) -> None:
    """PyTorch's own hooks around every optimizer's step; a compiled step is traced without them."""
    guard, is_compiling = hooks.guard, torch.compiler.is_compiling
    module = importlib.import_module("torch.optim.optimizer")

    @wrapper
    def begins(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            guard(loop.optimizer_begins, optimizer)

    @wrapper
    def ended(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            guard(loop.optimizer_ended, optimizer)

    for handle in (
        module.register_optimizer_step_pre_hook(begins),
        module.register_optimizer_step_post_hook(ended),
    ):
        hooks.at_close.append(handle.remove)


def _training_is_torch(torch: Any, hooks: Hooks, loop: Loop, optimizer: Any) -> None:
    """An optimizer is about to step for the first time: tell what is seen, and where the work is done."""
    from goodput_plugins.torch.device import CudaDevice, device_of

    device = device_of(optimizer)
    kind = getattr(device, "type", None)
    hooks.recorder.plugin(NAME, torch.__version__, SEES, device="host" if kind == "cpu" else None)
    if kind == "cuda" and DEVICE_TIME.read() != "off":
        loop.device = CudaDevice(torch.cuda, hooks.recorder, device)
