"""Step markers: the end of the work that an optimizer's step traced.

A marker lowers and compiles what was traced since the last one, unless that was done before, and hands it to the
device; it may wait there for the work of the marker before. A loader's iterator, ``torch_xla.step()`` and the script
itself call one as they think fit, so only one after an optimizer's step ends a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.torch.loop import Loop
from goodput_plugins.torch_xla.device import Executions
from goodput_plugins.torch_xla.programs import Programs

MARKER = "_xla_step_marker"


class Markers:
    """Sees each step marker of the thread that is counted.

    Args:
        loop: what the optimizers' steps amount to.
        programs: who looks for compilations.
        device_of: makes, when training begins, who tells when steps were done; None where nobody can.
    """

    def __init__(self, loop: Loop, programs: Programs, device_of: Callable[[], Executions | None]) -> None:
        self._loop = loop
        self._recorder = loop.recorder
        self._programs = programs
        self._device_of: Callable[[], Executions | None] | None = device_of
        self._device: Executions | None = None
        self._completed = 0

    def begins(self, *args: Any, **kwargs: Any) -> int | None:
        """A marker is called."""
        return None if self._loop.is_replica() else self._recorder.now()

    def ended(self, began: int | None, result: Any, error: BaseException | None) -> None:
        if began is None:
            return
        steps = self._steps()
        self._programs.look(began, stepped=bool(steps))
        if not steps:
            return
        self._loop.passed()
        if self._device_of is not None:
            self._device, self._device_of = self._device_of(), None
        if self._device is not None and error is None:
            self._device.dispatched(steps, began)

    def close(self) -> None:
        """The process ends."""
        self._programs.tell_traced()
        if self._device is not None:
            self._device.look()

    def _steps(self) -> range:
        """The ordinals of the steps that this marker belongs to.

        While a trainer leads, each marker that is not an evaluation's belongs to the step that began last.
        """
        completed, begun = self._loop.completed, self._recorder.steps
        if completed is None:
            return range(begun if self._recorder.inside(Activity.CUSTOM) else max(0, begun - 1), begun)
        since, self._completed = min(self._completed, completed), completed
        return range(since, completed)


def observe_markers(extension: Any, hooks: Hooks, markers: Markers) -> None:
    """Observe what every step marker comes down to."""
    around(hooks.patches, extension, MARKER, hooks.guard, before=markers.begins, after=markers.ended)
    hooks.at_close.append(markers.close)
