"""What a report will need of what lies before a cut."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import replace
from operator import add, sub
from typing import Any

from goodput_plugins.core.attribution import Generation
from goodput_plugins.core.attribution.ideal import Histogram, width_of
from goodput_plugins.core.attribution.ledger import WAIT, Beside
from goodput_plugins.core.attribution.past import Past
from goodput_plugins.core.attribution.tally import tally
from goodput_plugins.core.attribution.timeline import PRODUCTIVE, WASTED
from goodput_plugins.core.calculator import seen_in, told_of
from goodput_plugins.core.earlier import RECENT, Earlier, Told, joined
from goodput_plugins.core.events import Activity
from goodput_plugins.core.live.cuts import TRIED, Cut
from goodput_plugins.core.report import Source
from goodput_plugins.core.story import WORST, Story


def earlier_of(generation: Generation, followed: Generation, before: Earlier, past: Past, cut: Cut) -> Earlier:
    """The sums of a generation up to a cut.

    Args:
        generation: attributed; its last attempt is cut.
        followed: the same from the cut on.
        before: what was put aside of it already.
        past: at the cut.
        cut: where.
    """
    start = before.moment or generation.start
    sums = tally(generation, (start, past.moment))
    spent = _spent(generation, before, past, joined([Counter(told.spent) for told in before.attempts], sums.by_attempt))
    beside = list(tally(generation, (start, generation.end)).beside)
    if before.attempts:
        beside[0] = Beside(*map(add, beside[0], before.beside))
    overlapped = Counter(before.overlapped)
    for work, counts in zip(beside[:-1], spent[len(spent) - len(beside) :], strict=False):
        overlapped.update(work.overlapped(counts[WAIT]).spent)
    return Earlier(
        moment=past.moment,
        start=before.start or generation.start,
        attempts=_attempts(generation, before, spent),
        between=before.between + sums.between,
        overlapped=overlapped,
        beside=Beside(*map(sub, beside[-1], tally(followed, (past.moment, followed.end)).beside[0])),
        sees=before.sees | seen_in(generation),
        plugins=before.plugins | {k: v for a in generation.attempts for k, v in a.seen.plugins.items()},
        has_saves=before.has_saves or any(a.seen.saves for a in generation.attempts),
        **_step_times(generation, followed, before),
        story=_story(generation, followed, before, cut),
    )


def _spent(generation: Generation, before: Earlier, past: Past, spent: list[Counter[Source]]) -> list[Counter[Source]]:
    """The time of each attempt by source, without the progress that stands."""
    stood: Counter[int] = Counter()
    for block in [*generation.blocks, *generation.taken]:
        stood[block.attempt] += block.ns
    for block in past.blocks:
        stood[block.attempt] -= block.ns
    for place, counts in enumerate(spent):
        if lost := counts.pop(PRODUCTIVE, 0) + counts.pop(WASTED, 0) + stood[place]:
            counts[WASTED] = lost
    return spent


def _attempts(generation: Generation, before: Earlier, spent: list[Counter[Source]]) -> list[Told]:
    attempts = [*before.attempts[:-1], *map(told_of, generation.attempts)]
    if before.attempts:
        place = len(before.attempts) - 1
        attempts[place] = replace(attempts[place], first_step=before.attempts[-1].first_step)
    return [replace(told, spent=counts) for told, counts in zip(attempts, spent, strict=True)]


def _step_times(generation: Generation, followed: Generation, before: Earlier) -> dict[str, Any]:
    """The step times before the moment, as ``Earlier`` keeps them."""
    times, recent, width = Counter(before.times), list(before.recent), 0
    for ledger in generation.ledgers:
        some = array("q", ledger.step_times())
        width = before.width if ledger.since else width_of(some) if some else 0
        histogram = Histogram()
        histogram.add(some, width)
        times.update(histogram.counts)
        recent.extend(some[-RECENT - TRIED - len(followed.ledgers[0].begins) :])
    after = array("q", followed.ledgers[0].step_times())
    histogram = Histogram()
    histogram.add(after, width)
    times.subtract(histogram.counts)
    return {"times": +times, "width": width, "recent": recent[: len(recent) - len(after)][-RECENT:]}


def _story(generation: Generation, followed: Generation, before: Earlier, cut: Cut) -> Story:
    """What happened before the moment, as findings tell of it."""
    last = generation.ledgers[-1]
    compiled = (before.story.compiled if last.since else set[str]()) | {
        i.name
        for i in last.attempt.seen.intervals
        if i.name and i.end and i.start < cut.called and i.activity in (Activity.COMPILE, Activity.CACHE_LOAD)
    }
    whole = before.story + Story.of(generation, frozenset(before.story.compiled))
    story = whole - Story.of(followed, frozenset(compiled))
    stuck = [
        (ns, ledger.numbers[at])
        for ledger in generation.ledgers
        for at, ns in ledger.slow.items()
        if ledger.since <= at and (ledger is not last or at < cut.at)
    ]
    story.worst = sorted([*before.story.worst, *stuck], reverse=True)[:WORST]
    story.compiled = compiled
    return story
