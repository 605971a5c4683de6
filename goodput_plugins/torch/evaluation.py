"""Evaluations of a plain loop: from ``eval()`` to ``train()`` of the module that the optimizer trains.

The module is known by its parameters: it holds more than half of those of an optimizer that has stepped. So freezing
a batch norm, or a frozen backbone, begins nothing. Where training goes on without ``train()``, the evaluation ends
with the next batch from the training loader, or at the latest when the optimizer steps; if it was the latter, the
module trains in evaluation mode, and from then on its ``eval()`` means nothing.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, without_this_frame, wrapper
from goodput_plugins.torch.loop import Loop, loop_of

NAME = "EVAL"


class Evaluations:
    """Tells the evaluations of a loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._open = False
        self._means_nothing = False
        loop.listeners.append(self._optimizer_steps)

    def switched(self, module: Any, training: bool) -> None:
        """The mode of ``module`` is about to be set, by the host and not by a module around it."""
        if training == self._open and (training or not self._means_nothing) and self._is_trained(module):
            self._end() if training else self._begin()

    def batch_fetched(self, iterator: Any) -> None:
        """A batch has been fetched; a training batch ends an evaluation."""
        if self._open and self._loop.is_training(iterator):
            self._end()

    def _optimizer_steps(self, optimizer: Any) -> None:
        if self._open:
            self._means_nothing = True
            self._end()

    def _begin(self) -> None:
        self._open = True
        self._loop.recorder.begin(Activity.CUSTOM, name=NAME)

    def _end(self) -> None:
        self._open = False
        self._loop.recorder.finish(Activity.CUSTOM, name=NAME)
        self._loop.passed()

    def _is_trained(self, module: Any) -> bool:
        if self._loop.led:
            return False
        mine = {id(parameter) for parameter in module.parameters()}
        for optimizer in list(self._loop.optimizers):
            trained = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
            if 2 * sum(parameter in mine for parameter in trained) > len(trained):
                return True
        return False


class _Here(threading.local):
    """Whether a module of this thread is setting the mode of those inside it."""

    inside = False


def observe_modes(module_class: Any, hooks: Hooks) -> Evaluations:
    """Observe ``Module.train``, which ``eval`` calls too; each module calls it for the modules inside it."""
    loop, guard, here = loop_of(hooks), hooks.guard, _Here()
    evaluations = Evaluations(loop)
    original = module_class.train

    @functools.wraps(original)
    @wrapper
    def train(self: Any, mode: bool = True) -> Any:
        if here.inside or not loop.optimizers:
            return original(self, mode)
        here.inside = True
        try:
            guard(evaluations.switched, self, bool(mode))
            return original(self, mode)
        except BaseException as error:
            without_this_frame(error)
            raise
        finally:
            here.inside = False

    hooks.patches.set(module_class, "train", train)
    return evaluations
