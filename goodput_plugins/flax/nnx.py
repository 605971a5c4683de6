"""Flax nnx: objects that are built by calling their class, and optimizers that know their step."""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.flax.preparation import preparing
from goodput_plugins.jax.inputs import whole_number


class OptimizerNumbers:
    """Finds the step number of an nnx optimizer among a call's inputs.

    ``nnx.jit`` hands a step's arrays on without their names, so the optimizers that were constructed are
    kept (weakly), and the one whose ``step`` array is among the inputs is read. ``nnx.merge`` makes
    optimizers without constructing them.
    """

    def __init__(self, module: ModuleType, hooks: Hooks) -> None:
        self._optimizer = module.Optimizer
        self._alive: weakref.WeakSet[Any] = weakref.WeakSet()
        around(
            hooks.patches,
            self._optimizer,
            "__init__",
            hooks.guard,
            before=lambda self, *args, **kwargs: self,
            after=self._constructed,
        )
        around(hooks.patches, module, "merge", hooks.guard, after=self._merged)

    def among(self, inputs: dict[int, Any]) -> int | None:
        """The step number of the optimizer whose step is one of ``inputs`` (leaves by ``id``)."""
        for optimizer in list(self._alive):
            value = optimizer.step.get_raw_value()
            if id(value) in inputs:
                return whole_number(value)
        return None

    def _merged(self, token: None, result: Any, error: BaseException | None) -> None:
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, self._optimizer):
                self._alive.add(value)

    def _constructed(self, optimizer: Any, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._alive.add(optimizer)


def observing_construction(module: ModuleType, hooks: Hooks) -> None:
    """Observe ``SomeModule(...)`` and ``Optimizer(...)`` as preparation."""
    kinds = (module.Module, module.Optimizer)

    def title(cls: type, *args: Any, **kwargs: Any) -> str | None:
        return cls.__name__ if issubclass(cls, kinds) else None

    metaclass = next(base for base in type(module.Module).__mro__ if "__call__" in vars(base))
    preparing(hooks, metaclass, "__call__", title)
