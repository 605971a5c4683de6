"""Work between two steps that is no step: evaluations, and what looks like one.

A jitted function whose name says so (``eval_step``, ``Trainer.validate``) evaluates, from its first call
after a step to the moment at which its last result was ready. Where the device is not watched, that
moment is the next step's call. Other functions that are called between steps are told with the time that
the device spent on them, so that the report can say what looks like an evaluation; with
``GOODPUT_EVAL=auto`` they are evaluations too, with ``off`` nothing is.
"""

from __future__ import annotations

from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.environ import EVAL
from goodput_plugins.jax.device import DeviceWatch
from goodput_plugins.jax.functions import Frame
from goodput_plugins.jax.in_flight import EVALUATION, Evaluation


class Evaluations:
    """Tells a recorder the evaluations of a loop.

    Attributes:
        open: the one that goes on.
    """

    def __init__(self, recorder: NullRecorder, device: DeviceWatch | None) -> None:
        self._recorder = recorder
        self._device = device
        self._mode = EVAL.read()
        self.open: Evaluation | None = None

    def begins(self, frame: Frame) -> None:
        """A function that is no step is called between two steps."""
        if self._mode == "off":
            return
        frame.between = True
        if self.open is None and self._counts(frame):
            self.open = Evaluation(self._recorder.begin_apart(Activity.CUSTOM, name=EVALUATION))
            if self._device is not None:
                self._device.watch_evaluation(self.open)

    def ends(self, frame: Frame, result: Any) -> None:
        """Its call has returned."""
        evaluation = self.open
        if evaluation is not None and self._counts(frame):
            if self._device is not None:
                leaf = frame.function.output.pick(frame.args, frame.kwargs, result)
                evaluation.goes_on(leaf, self._recorder.now())
        elif self._device is not None:
            self._device.watch_other(frame, result)

    def over(self) -> None:
        """The next step is called, or the process ends."""
        evaluation, self.open = self.open, None
        if evaluation is None:
            return
        if self._device is not None:
            evaluation.over = True  # the device's thread tells the end, when its last result is ready
        else:
            self._recorder.finish_apart(Activity.CUSTOM, evaluation.thread, self._recorder.now(), name=EVALUATION)

    def _counts(self, frame: Frame) -> bool:
        return frame.function.evaluates or self._mode == "auto"
