"""Where a second goes: attribution, one pure function from a run's log to segments.

The law: the time from the first attempt's process start to the run's end is cut into segments
without gap or overlap, each with exactly one bucket. So the buckets sum to the elapsed time, to the
nanosecond. The rules (DESIGN section 3), and where each is written:

====  =========================================================  =================
rule  what it decides                                            file
====  =========================================================  =================
1     which activity is open, and when a lost end is believed    watch, activities
2     the time between attempts                                  generations, timeline
3     how much of a wait for data stalls                         judge
4     device time: the step is where the device works on it      device, data_waits, pauses
5-7   first, last and stuck steps                                judge
8     steps that are rolled back                                 rewind
9     where a run ends, and what the time after it is            generations, here
10    steps logged every n-th                                    judge, timeline
11    where in a step each part lies                             timeline
====  =========================================================  =================

``observe`` sorts out what is known of an attempt, ``layout`` lays out its time in a ``ledger``; the ideal
step time, by which rules 3 and 5 to 7 judge, is in ``ideal``; ``tally`` sums up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from goodput_plugins.core.attribution.generations import (
    ALIVE_NS,
    FOREIGN_ALIVE_NS,
    Group,
    group,
    settle,
)
from goodput_plugins.core.attribution.ideal import ideals
from goodput_plugins.core.attribution.judge import judge
from goodput_plugins.core.attribution.layout import open_ledger
from goodput_plugins.core.attribution.ledger import Ledger
from goodput_plugins.core.attribution.observe import observe
from goodput_plugins.core.attribution.observed import Observed
from goodput_plugins.core.attribution.past import Past
from goodput_plugins.core.attribution.rewind import rewind
from goodput_plugins.core.attribution.timeline import Generation, Segment
from goodput_plugins.core.runlog import Life, RunLog, Steps

__all__ = ["Generation", "Segment", "Timeline", "attribute", "observe_ahead"]


Each = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""Calls a function with each of some items, as ``map`` does."""


@dataclass
class Timeline:
    """A run, attributed: its generations, oldest first."""

    generations: list[Generation]


def attribute(
    log: RunLog,
    *,
    as_of: int | None = None,
    now: int | None = None,
    until: int | None = None,
    ideal: int | None = None,
    past: Past | None = None,
    each: Each = map,
) -> Timeline:
    """Give every nanosecond of a run its bucket.

    Args:
        log: the run, as a reader made it.
        as_of: the moment of the query, ns since the epoch: events after it do not exist, and the
            time from a run's loss to it counts. None: everything counts, and the run ends where it
            ends.
        now: the wall clock, by which a run is alive or lost where ``as_of`` does not say; None is
            long after.
        until: a window's end: the time from a run's loss to it counts too.
        ideal: a configured ideal step time, ns; it wins over what the steps show.
        past: what was attributed before; then the log holds what follows, some steps told again.
        each: by what the attempts are gone through; another one than ``map`` may do several at once.

    Raises:
        Unsettled: what follows changes the past.

    Returns:
        The generations with their segments.
    """
    lives = _observed(log, as_of, past, each)
    groups = group(lives, past)
    generations = []
    for at, current in enumerate(groups):
        following = groups[at + 1].attempts[0].seen.start if at + 1 < len(groups) else None
        before = past if at == 0 else None
        ledgers = _ledgers(current, following, as_of, now, ideal, before, each)
        end = current.attempts[-1].until
        if following is None and current.attempts[-1].exit not in ("completed", "running"):
            end = max(end, as_of or end, until or end)
        generations.append(Generation(ledgers, end, *rewind(ledgers, before)))
    return Timeline(generations)


def observe_ahead(life: Life, *, as_of: int | None = None) -> None:
    """Sort out now what a life tells, for an :func:`attribute` as of that moment, and forget it."""
    life.observed = observe(life, as_of)
    life.events, life.steps = [], Steps()


def _observed(log: RunLog, as_of: int | None, past: Past | None, each: Each) -> list[Observed]:
    """What each life shows."""

    def observed(life: Life) -> Observed:
        return observe(life, as_of, past if past is not None and past.steps and life.id == past.life else None)

    begun = [life for life in log.lives if as_of is None or life.start <= as_of]
    ahead = all(life.observed is not None for life in begun)
    lives = [life.observed for life in begun if life.observed is not None] if ahead else list(each(observed, begun))
    for life, seen in zip(begun, lives, strict=True):
        seen.life = life
    return lives


def _ledgers(
    current: Group,
    following: int | None,
    as_of: int | None,
    now: int | None,
    ideal: int | None,
    past: Past | None,
    each: Each,
) -> list[Ledger]:
    """The attempts' ledgers, judged."""
    live_ns = FOREIGN_ALIVE_NS if current.attempts[-1].seen.foreign else ALIVE_NS
    settle(current, following, as_of, now, live_ns)
    ledgers = list(each(partial(open_ledger, stride=current.stride), current.attempts))
    for attempt, ledger in zip(current.attempts, ledgers, strict=True):
        ledger.attempt = attempt
    judged_by = _judged_by(ledgers, past) if ideal is None else [ideal] * len(ledgers)
    last, its_ideal = current.attempts[-1], judged_by[-1]
    if last.seen.foreign and last.exit == "lost" and its_ideal is not None:
        until = last.until
        settle(current, following, as_of, now, max(live_ns, 10 * current.stride * its_ideal))
        if last.until != until:
            ledgers[-1] = open_ledger(last, current.stride)
    for at, ledger in enumerate(ledgers):
        after = current.attempts[at + 1] if at + 1 < len(ledgers) else None
        judge(ledger, judged_by[at], after)
    return ledgers


def _judged_by(ledgers: list[Ledger], past: Past | None) -> list[int | None]:
    """The ideal by which each attempt is judged."""
    if past is None:
        return ideals([ledger.sample() for ledger in ledgers])
    before = [past.ideal] if past.steps else []
    samples = [*past.samples, *(ledger.sample() for ledger in ledgers[len(before) :])]
    return [*before, *ideals(samples, past.own_ideals)]
