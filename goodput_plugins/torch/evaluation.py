"""Evaluations of a plain loop: from ``eval()`` to ``train()`` of the module that the optimizer trains.

The module is known by its parameters: it holds more than half of those of an optimizer that has stepped. So freezing
a batch norm, or a frozen backbone, begins nothing. Where training goes on without ``train()``, the evaluation ends
with the next batch from a training loader. Where an optimizer steps before that, or the process ends, it lasted until
its last loader was exhausted. If there was none, and an optimizer stepped, it was no evaluation: the module trains in
evaluation mode, and from then on its ``eval()`` means nothing.
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
        self._recorder = loop.recorder
        self._thread: int | None = None
        self._begun = 0
        self._exhausted: int | None = None
        self._means_nothing = False
        loop.on_optimizer.append(self._optimizer_steps)
        loop.on_fetch.append(self._fetched)

    def switched(self, module: Any, training: bool) -> None:
        """The mode of ``module`` is about to be set, by the host and not by a module around it."""
        if training:
            if self._thread is not None and self._is_trained(module):
                self._end(self._recorder.now())
        elif self._thread is None and not self._means_nothing and self._is_trained(module):
            self._begin()

    def close(self) -> None:
        """The process ends."""
        if self._thread is not None and self._exhausted is not None:
            self._end(self._exhausted)

    def _fetched(self, iterator: Any, exhausted: bool) -> None:
        if self._thread is None:
            return
        now = self._recorder.now()
        if not self._loop.is_training(iterator):
            self._exhausted = now if exhausted else self._exhausted
        elif not exhausted:
            self._end(now)

    def _optimizer_steps(self, optimizer: Any) -> None:
        if self._thread is not None:
            self._means_nothing = self._exhausted is None
            self._end(self._exhausted or self._begun)

    def _begin(self) -> None:
        if not self._recorder.inside(Activity.CUSTOM):
            self._thread = self._recorder.begin_apart(Activity.CUSTOM, name=NAME)
            self._begun, self._exhausted = self._recorder.now(), None

    def _end(self, at: int) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._recorder.finish_apart(Activity.CUSTOM, thread, max(at, self._begun), name=NAME)
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


def observe_modes(module_class: Any, hooks: Hooks) -> None:
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
    hooks.at_close.append(evaluations.close)
