"""Of a loop with several step functions (a GAN): how often each was called, how long the device worked on it.

The training thread counts the calls; it, where the work was done when the call returned, or the thread that
watches the device adds times up. They are told at most once a second, as what has come since, and only where there
is more than one function.
"""

from __future__ import annotations

from goodput_plugins.core.events import Fact
from goodput_plugins.core.null_recorder import NullRecorder

TELLING_EVERY = 1_000_000_000
MOST_IN_FLIGHT = 256
"""Steps beyond it that the device has not finished are not sampled."""
MOST_FUNCTIONS = 64
"""More than these are no GAN but a function that is made anew again and again."""


class Figures:
    """Of one function.

    Attributes:
        calls: how many there were.
        timed: of how many the device's time is known.
        took: that time, ns.
        told_calls: how many were told, with ``told_took`` ns.
    """

    __slots__ = ("calls", "timed", "told_calls", "told_took", "took")

    def __init__(self) -> None:
        self.calls = self.timed = self.took = self.told_calls = self.told_took = 0


class StepFunctions:
    """The step functions of a loop, by name.

    Attributes:
        several: there is more than one: their times are asked for.
    """

    def __init__(self, recorder: NullRecorder) -> None:
        self.several = False
        self._recorder = recorder
        self._figures: dict[str, Figures] = {}
        self._told_at = 0

    def of(self, name: str) -> Figures:
        """Those of the function with that name; beyond :data:`MOST_FUNCTIONS` of nobody."""
        figures = self._figures.get(name)
        if figures is None:
            figures = Figures()
            if len(self._figures) < MOST_FUNCTIONS:
                self._figures[name] = figures
                self.several = len(self._figures) > 1
        return figures

    def took(self, name: str, duration: int) -> None:
        """The device has worked on one of its calls for so long, ns."""
        figures = self._figures.get(name)
        if figures is not None:
            figures.timed += 1
            figures.took += duration

    def tell(self, *, all_of_it: bool = False) -> None:
        """Tell what has come since it was told last, unless that was a moment ago."""
        if not self.several:
            return
        now = self._recorder.now()
        if all_of_it or now - self._told_at > TELLING_EVERY:
            self._told_at = now
            for name, figures in list(self._figures.items()):
                calls = figures.calls if all_of_it else max(figures.timed, figures.calls - MOST_IN_FLIGHT)
                self._tell(name.rpartition("<locals>.")[2], figures, calls)

    def _tell(self, name: str, figures: Figures, calls: int) -> None:
        """Calls that could not be timed are taken to be like those that could."""
        took = figures.took * calls // figures.timed if figures.timed else 0
        new_calls, new_took = calls - figures.told_calls, max(0, took - figures.told_took)
        if new_calls or new_took:
            self._recorder.fact(Fact.STEP_FUNCTION, of=name, duration=new_took, count=new_calls)
            figures.told_calls, figures.told_took = calls, figures.told_took + new_took
