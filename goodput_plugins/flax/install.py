"""What the import hooks call when parts of Flax have been imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType

from goodput_plugins.core.patching import Hooks
from goodput_plugins.flax.nnx import OptimizerNumbers, observing_construction
from goodput_plugins.flax.preparation import preparing
from goodput_plugins.jax.functions import Function
from goodput_plugins.jax.sharing import loop_of, observing, once


@once
def install_linen(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``flax.linen``."""
    for name in ("init", "init_with_output"):
        preparing(hooks, module.Module, name, _titled(name))


@once
def install_train_state(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``flax.training.train_state``."""
    state = module.TrainState
    preparing(hooks, state, "create", lambda cls, *args, **kwargs: f"{cls.__name__}.create")
    observing(hooks, state, "apply_gradients", Function("TrainState.apply_gradients", optimizes=True))


@once
def install_nnx(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``flax.nnx``."""
    observing_construction(module, hooks)
    observing(hooks, module.Optimizer, "update", Function("nnx.Optimizer.update", optimizes=True))
    numbers = OptimizerNumbers(module, hooks)
    sources = loop_of(hooks).sequence.sources
    sources.append(numbers.among)
    hooks.at_close.append(functools.partial(sources.remove, numbers.among))


def _titled(name: str) -> Callable[..., str]:
    return lambda module, *args, **kwargs: f"{type(module).__name__}.{name}"
