"""What a report tells of steps: how many, which was the last, how long they take."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from goodput_plugins.core.attribution import Generation
from goodput_plugins.core.attribution.ideal import Histogram, deviation
from goodput_plugins.core.attribution.ledger import Ledger
from goodput_plugins.core.attribution.tally import Window
from goodput_plugins.core.earlier import RECENT, Earlier
from goodput_plugins.core.events import Fact
from goodput_plugins.core.report import StepFunction, StepSummary
from goodput_plugins.core.story import Story


class StepTimes(NamedTuple):
    """The step times of an attempt: how often each, and the last ones; ns."""

    counts: Counter[int]
    recent: array[int]

    @classmethod
    def of(cls, ledger: Ledger, width: int) -> StepTimes:
        """What a ledger tells of the times of its steps; ``width`` is that of those that came before."""
        times, histogram = array("q", ledger.step_times()), Histogram()
        histogram.add(times, width if ledger.since else None)
        return cls(histogram.counts, times[-RECENT:])


def summary_of(
    generation: Generation,
    told: Sequence[StepTimes],
    window: Window | None,
    ideal: int | None,
    earlier: Earlier,
    story: Story,
) -> StepSummary:
    """The steps of a generation; ``told`` holds the times of those of each attempt."""
    histogram = Histogram(earlier.times)
    recent: deque[int] = deque(earlier.recent, maxlen=RECENT)
    before = generation.blocks if window is None else ()
    count = sum(block.begun for block in before) * generation.ledgers[0].stride
    for ledger, times in zip(generation.ledgers, told, strict=True):
        histogram.counts.update(times.counts)
        recent.extend(times.recent)
        first = ledger.begins[ledger.since] if ledger.since else ledger.first_begin
        count += ledger.kept_steps(*(window or (first, ledger.until + 1)))
    known = [a for a in generation.attempts if a.numbers]
    last = known[-1].numbers[-1] if known and known[-1].numbers else None
    usual = ideal or histogram.ideal() or None  # most steps took no time that could be told
    return StepSummary(
        last=last,
        max_productive=_max_productive(generation, last, has_saves=earlier.has_saves),
        count=count,
        ideal=usual,
        p50=histogram.quantile(0.5) or None,
        p99=histogram.quantile(0.99) or None,
        deviation=deviation(list(recent), usual),
        source="device" if any(ledger.device is not None for ledger in generation.ledgers) else "host",
        functions=_step_functions(story),
    )


def _step_functions(story: Story) -> tuple[StepFunction, ...]:
    told = story.named(Fact.STEP_FUNCTION)
    return tuple(StepFunction(name, calls, took or None) for name, (calls, took) in told.items())


def _max_productive(generation: Generation, last: int | None, *, has_saves: bool) -> int | None:
    """The highest preserved step; where no checkpoint was ever seen, the last completed step."""
    if last is None:
        return None
    if generation.completed:
        return last + generation.ledgers[-1].unlogged
    if has_saves or any(attempt.seen.saves for attempt in generation.attempts):
        return generation.preserved
    return last - 1 if last > 0 else None
