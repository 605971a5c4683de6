"""The beginning of an attempt that cannot be put aside yet: its events are gone through once, not at each poll."""

from __future__ import annotations

from typing import NamedTuple

from goodput_plugins.core.attribution.observe import gone_through
from goodput_plugins.core.attribution.past import CONTEXT
from goodput_plugins.core.foreign import log_of
from goodput_plugins.core.runlog import Life, RunLog, Steps
from goodput_plugins.core.told import Told

COLUMNS = ("times", "numbers", "wait_starts", "wait_ends")


class Beginning(NamedTuple):
    """What was told of a job's first attempt up to a step that nothing reaches across, and what followed.

    Attributes:
        moment: when the step begins, ns since the epoch.
        life: the attempt up to there, the last steps left out that are told again.
        told: those steps, and what followed.
    """

    moment: int
    life: Life
    told: Told

    @classmethod
    def of(cls, job: str, told: Told, life: Life, at: int) -> Beginning | None:
        """Cut a job's log at a step; None if the rest would not tell the same.

        Args:
            job: its name.
            told: what it was made of; a log was made of it.
            life: its first attempt.
            at: the step's place in it.
        """
        steps, moment = life.steps, life.steps.times[at]
        first = at - CONTEXT
        early = Steps(steps.times[:first], steps.numbers[:first], thread=steps.thread)
        waits = [pair for pair in zip(steps.wait_starts, steps.wait_ends, strict=True) if pair[0] < moment]
        early.wait_starts.extend([start for start, _ in waits])
        early.wait_ends.extend([end for _, end in waits])
        events = [event for event in life.events if event.time < moment]
        shown = gone_through(Life(life.id, life.start, events, life.foreign, steps, life.shown))
        rest = Told()
        rest.join(told)
        rest.leave_context(moment, steps.times[first:at], steps.numbers[first:at])
        rest.copies = told.copies + told.found
        beginning = cls(moment, Life(life.id, life.start, [], life.foreign, early, shown), rest)
        if beginning.log(job) is None:
            return None
        rest.copies -= rest.found
        return beginning

    def add(self, told: Told) -> bool:
        """Take in what is new; False if it was told of the time before."""
        if told.ours or told.earliest < self.moment:
            return False
        self.told.join(told)
        return True

    def log(self, job: str) -> RunLog | None:
        """What was told; None if it has to be gone through as a whole."""
        log, first = log_of(job, self.told), self.life.steps
        if not self.told.clock_is_sound:
            return None
        life = log.lives[0]
        steps = life.steps
        for name in COLUMNS:
            setattr(steps, name, getattr(first, name) + getattr(steps, name))
        steps.ordinals = range(len(steps.times))
        steps.told = len(steps.times)
        life.start, life.shown = self.life.start, self.life.shown
        return log
