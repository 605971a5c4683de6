"""Where time may be put aside: at the beginning of a step, or of an attempt, across which nothing reaches."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from goodput_plugins.core.attribution import Generation
from goodput_plugins.core.attribution.ideal import ENOUGH, JUDGED
from goodput_plugins.core.attribution.ledger import Ledger
from goodput_plugins.core.attribution.past import CONTEXT, Past
from goodput_plugins.core.runlog import Life, Steps

TRIED = 64
"""So many steps are tried for a cut."""
FEWEST_STEPS = 2
"""So many remain at least of an attempt that is cut."""
MOST_ATTEMPTS = 32
"""So many attempts remain at most, even if they took hardly a step."""


class Cut(NamedTuple):
    """A step of an attempt, by its place in the attempt's ledger and among the steps that were told, and its call.

    The place 0 is the attempt's beginning.
    """

    at: int
    told: int
    called: int


class Place(NamedTuple):
    """An attempt in which to cut, by its place in its generation.

    Attributes:
        within: at one of its steps; else where it begins.
        keep: how many of its steps are to remain.
    """

    attempt: int
    within: bool
    keep: int


def places(generations: Sequence[Generation], keep: int) -> Iterator[Place]:
    """Where the newest generation may be cut, the latest first; ``keep`` steps remain in all."""
    ledgers, behind = generations[-1].ledgers, 0
    for at in range(len(ledgers) - 1, -1, -1):
        ledger = ledgers[at]
        if (ledger.since or len(ledger.begins) > JUDGED) and behind < keep:
            yield Place(at, within=True, keep=max(FEWEST_STEPS, keep - behind))
        behind += len(ledger.begins) - ledger.since
        has_begun = bool(ledger.begins) or at < len(ledgers) - 1
        follows = at > 0 or len(generations) > 1
        if follows and has_begun and (behind >= keep or len(ledgers) - at >= MOST_ATTEMPTS):
            yield Place(at, within=False, keep=behind)


def cuts_at(generation: Generation, place: Place, past: Past | None) -> Iterator[Cut]:
    """Cuts at a place, the latest first.

    Args:
        generation: of which the attempt is the last one.
        place: of :func:`places`.
        past: of the generation, if there is one.
    """
    ledger = generation.ledgers[-1]
    if any(attempt.numbers is None for attempt in generation.attempts):
        return
    if place.within:
        yield from _within(ledger, place.keep)
    elif _are_judged(generation.ledgers[:-1], past):
        yield Cut(0, 0, ledger.attempt.seen.start)


def _are_judged(ledgers: Sequence[Ledger], past: Past | None) -> bool:
    """Whether no later attempt can change the ideals by which these are judged."""
    known = past.own_ideals if past is not None else []
    return not ledgers or any(known) or any(len(ledger.sample()) >= ENOUGH for ledger in ledgers)


def _within(ledger: Ledger, keep: int) -> Iterator[Cut]:
    seen, steps = ledger.attempt.seen, ledger.attempt.seen.life.steps
    if ledger.bursty or ledger.ideal is None or seen.end is not None or steps.times != seen.times:
        return
    shift = len(ledger.begins) - len(seen.times[: len(ledger.begins)])
    lowest = max(ledger.since + 1, CONTEXT + shift + 1)
    highest = len(ledger.begins) - keep
    lowest = max(lowest, highest - TRIED, _first_judged(ledger))
    newest_done = max(steps.done_ordinals, default=-1)
    for at in range(highest, lowest - 1, -1):
        cut = Cut(at, at - shift, seen.times[at - shift])
        told = ledger.device is None or newest_done >= steps.ordinals[cut.told]
        if told and _is_quiet(ledger, cut):
            yield cut


def quiet_step(ledger: Ledger, keep: int) -> int | None:
    """The latest step, with so many behind it, across whose beginning nothing reaches, by its place among those told.

    None where there is none, or where it is no attempt of which each step is told, from its beginning on.
    """
    seen, highest = ledger.attempt.seen, len(ledger.begins) - keep
    if ledger.since or ledger.device is not None or seen.end is not None or seen.life.steps.times != ledger.begins:
        return None
    tried = range(highest, max(highest - TRIED, CONTEXT), -1)
    return next((at for at in tried if _is_quiet(ledger, Cut(at, at, seen.times[at]))), None)


def _first_judged(ledger: Ledger) -> int:
    """The first step before which there are enough for the attempt's ideal."""
    if ledger.since:
        return 0
    return next(islice(ledger.usual_steps(), JUDGED - 1, None), len(ledger.begins)) + 1


def _is_quiet(ledger: Ledger, cut: Cut) -> bool:
    """Whether nothing reaches across a step's beginning."""
    at, moment, seen, numbers = cut.at, cut.called, ledger.attempt.seen, ledger.numbers
    steps = seen.life.steps
    times, begins, device = seen.times, ledger.begins, ledger.device
    before = times[cut.told - 2]
    if not times[cut.told - 1] < moment or not begins[at - 1] < begins[at] < begins[at + 1]:
        return False
    if not numbers[at - 2] < numbers[at - 1] < numbers[at]:
        return False
    if any(i.start < moment and (i.end is None or i.end > moment) for i in seen.intervals):
        return False
    if any(before < begun < moment for begun in seen.dangling) or any(e.time == moment for e in seen.life.events):
        return False
    wait = bisect_left(seen.wait_starts, moment)
    if wait and seen.wait_ends[wait - 1] > moment:
        return False
    idle = bisect_left(steps.idle_starts, moment)
    if idle and steps.idle_ends[idle - 1] > moment:
        return False
    if any(i.thread == 0 and i.start < moment and lasts(i.end, moment) for i in seen.elsewhere):
        return False
    if device is None:
        return True
    return device.sampled is None or (device.sampled[at - 1] and device.sampled[at - 2])


def lasts(end: int | None, moment: int) -> bool:
    """Whether what ends then, or at an unknown time, goes on after a moment."""
    return end is None or end < 0 or end > moment


def rest_of(life: Life, numbers: Sequence[int], cut: Cut) -> Life:
    """What was told from a cut on, with some steps before it that are told again."""
    if not cut.at:
        return life
    first, moment, old = cut.told - CONTEXT, cut.called, life.steps
    steps = Steps(old.times[first:], array("q", [*numbers[first : cut.told], *old.numbers[cut.told :]]))
    steps.ordinals = old.ordinals[first:]
    done = [at for at, ordinal in enumerate(old.done_ordinals) if ordinal >= steps.ordinals[0]]
    steps.done = array("q", [old.done[at] for at in done])
    steps.done_ordinals = array("q", [old.done_ordinals[at] for at in done])
    waits = [pair for pair in zip(old.wait_starts, old.wait_ends, strict=True) if pair[0] >= moment]
    steps.wait_starts = array("q", [start for start, _ in waits])
    steps.wait_ends = array("q", [end for _, end in waits])
    idle = [pair for pair in zip(old.idle_starts, old.idle_ends, strict=True) if pair[0] >= moment]
    steps.idle_starts = array("q", [start for start, _ in idle])
    steps.idle_ends = array("q", [end for _, end in idle])
    steps.alive = array("q", [when for when in old.alive if when >= moment])
    steps.thread, steps.told = old.thread, old.told
    events = [event for event in life.events if event.time >= moment]
    return Life(life.id, life.start, events, life.foreign, steps)
