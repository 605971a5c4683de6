"""Putting time aside: what is attributed for good becomes sums, and a short tail of the log remains.

A cut is the beginning of a step or of an attempt (:mod:`~goodput_plugins.core.live.cuts`), behind which the
rules of attribution do not reach (DESIGN section 3). Whether they do is also tried: the report from the
sums and the tail has to be the report from all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from goodput_plugins.core.attribution import Generation, attribute
from goodput_plugins.core.attribution.past import Past, Unsettled
from goodput_plugins.core.attribution.tally import tally
from goodput_plugins.core.calculator import report_of
from goodput_plugins.core.earlier import Earlier
from goodput_plugins.core.live.cuts import Cut, rest_of
from goodput_plugins.core.live.past_of import past_of
from goodput_plugins.core.live.sums import earlier_of
from goodput_plugins.core.runlog import RunLog


class Kept(NamedTuple):
    """What was put aside of a run.

    Attributes:
        number: which generation of the run it is.
        past: what attribution needs of it.
        earlier: what a report needs of it.
    """

    number: int
    past: Past
    earlier: Earlier


def put_aside(
    log: RunLog,
    generations: Sequence[Generation],
    kept: Kept | None,
    cut: Cut,
    now: int,
    later: frozenset[int] = frozenset(),
) -> Kept | None:
    """Put aside what lies before a cut; None if the rest of the log does not tell what followed.

    Args:
        log: what the generations were made of; it becomes the rest.
        generations: attributed; the last attempt of the newest one is cut.
        kept: what was put aside before.
        cut: of :func:`~goodput_plugins.core.live.cuts.cuts_at`.
        now: by which it was attributed.
        later: steps from which later attempts started.
    """
    goes_on = kept is not None and len(generations) == 1
    earlier = kept.earlier if kept is not None and goes_on else Earlier()
    generation = generations[-1]
    attempt, number = generation.ledgers[-1].attempt, len(generations) - 1 + (kept.number if kept is not None else 0)
    before = max(0, len(earlier.attempts) - 1)
    rest = RunLog(log.run, [rest_of(attempt.seen.life, attempt.numbers or (), cut)], log.notes)
    try:
        past = past_of(generations, kept.past if kept is not None else None, cut, before, later)
        followed = attribute(rest, now=now, past=past).generations[0]
        sums = earlier_of(generation, followed, earlier, past, cut)
        whole = report_of(log, generation, number, earlier=earlier if goes_on else None)
        if whole != report_of(rest, followed, number, earlier=sums) or not _is_same(generation, followed, past):
            return None
    except Unsettled:
        return None
    log.lives = rest.lives
    return Kept(number, past, sums)


def _is_same(generation: Generation, followed: Generation, past: Past) -> bool:
    """Whether the rest tells of the attempt that was cut what the whole tells of it."""
    whole = tally(generation, (past.moment, generation.end)).by_attempt[-1]
    return whole == tally(followed, (past.moment, followed.end)).by_attempt[0]
