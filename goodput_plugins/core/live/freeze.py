"""Putting time aside: what is attributed for good becomes sums, and a short tail of the log remains.

The cut is the beginning of a step of the newest attempt at which nothing is open, and behind which the
rules of attribution do not reach (DESIGN section 3). Whether they do is also tried: the report from the
sums and the tail has to be the report from all.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from operator import add, sub
from typing import Any, NamedTuple

from goodput_plugins.core.attribution import Generation, attribute
from goodput_plugins.core.attribution.ideal import ENOUGH, JUDGED, Histogram, ideal_of, width_of
from goodput_plugins.core.attribution.judge import stuck_so_far
from goodput_plugins.core.attribution.ledger import WAIT, Beside, Ledger
from goodput_plugins.core.attribution.past import CONTEXT, Block, Past, Unsettled
from goodput_plugins.core.attribution.rewind import taken_whole
from goodput_plugins.core.attribution.tally import tally
from goodput_plugins.core.attribution.timeline import PRODUCTIVE, WASTED
from goodput_plugins.core.calculator import report_of, seen_in, told_of
from goodput_plugins.core.earlier import RECENT, Earlier, joined
from goodput_plugins.core.events import Activity
from goodput_plugins.core.runlog import Life, RunLog, Steps
from goodput_plugins.core.story import WORST, Story

TRIED = 64
"""So many steps are tried for a cut."""


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


class Cut(NamedTuple):
    """A step of the newest attempt, by its place in the attempt's ledger and among the steps that were told."""

    at: int
    told: int
    called: int


def cuts(generation: Generation, keep: int) -> Iterator[Cut]:
    """Where time may be put aside, the latest first; ``keep`` steps remain."""
    ledger = generation.ledgers[-1]
    seen, steps = ledger.attempt.seen, ledger.attempt.seen.life.steps
    unknown = any(attempt.numbers is None for attempt in generation.attempts)
    if unknown or ledger.bursty or ledger.ideal is None or seen.end is not None or steps.times != seen.times:
        return
    shift = len(ledger.begins) - len(seen.times[: len(ledger.begins)])
    lowest = max(ledger.since + 1, CONTEXT + shift + 1)
    highest = len(ledger.begins) - keep
    newest_done = max(steps.done_ordinals, default=-1)
    for at in range(highest, max(lowest, highest - TRIED) - 1, -1):
        cut = Cut(at, at - shift, seen.times[at - shift])
        told = ledger.device is None or newest_done >= steps.ordinals[cut.told]
        if told and _is_quiet(ledger, cut) and _has_been_judged(ledger, at):
            yield cut


def _has_been_judged(ledger: Ledger, at: int) -> bool:
    """Whether the steps before are enough for the attempt's ideal."""
    if ledger.since:
        return True
    return sum(1 for step in ledger.usual_steps() if step < at) >= JUDGED


def _is_quiet(ledger: Ledger, cut: Cut) -> bool:
    """Whether nothing reaches across a step's beginning."""
    at, moment, seen, numbers = cut.at, cut.called, ledger.attempt.seen, ledger.numbers
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
    if any(i.thread == 0 and i.start < moment and _lasts(i.end, moment) for i in seen.elsewhere):
        return False
    if device is None:
        return True
    return device.sampled is None or (device.sampled[at - 1] and device.sampled[at - 2])


def _lasts(end: int | None, moment: int) -> bool:
    return end is None or end < 0 or end > moment


def rest_of(life: Life, numbers: Sequence[int], cut: Cut) -> Life:
    """What was told from a step's beginning on, with some steps before it that are told again."""
    first, moment, old = cut.told - CONTEXT, cut.called, life.steps
    steps = Steps(old.times[first:], array("q", numbers[first : cut.told]) + old.numbers[cut.told :])
    steps.ordinals = old.ordinals[first:]
    done = [at for at, ordinal in enumerate(old.done_ordinals) if ordinal >= steps.ordinals[0]]
    steps.done = array("q", [old.done[at] for at in done])
    steps.done_ordinals = array("q", [old.done_ordinals[at] for at in done])
    waits = [pair for pair in zip(old.wait_starts, old.wait_ends, strict=True) if pair[0] >= moment]
    steps.wait_starts = array("q", [start for start, _ in waits])
    steps.wait_ends = array("q", [end for _, end in waits])
    steps.thread, steps.told = old.thread, old.told
    events = [event for event in life.events if event.time >= moment]
    return Life(life.id, life.start, events, life.foreign, steps)


def put_aside(
    log: RunLog,
    generations: Sequence[Generation],
    kept: Kept | None,
    cut: Cut,
    now: int,
    starts: frozenset[int] = frozenset(),
) -> Kept | None:
    """Put aside what lies before a cut; None if the rest of the log does not tell what followed.

    Args:
        log: what the generation was made of; it becomes the rest.
        generations: attributed; the newest one is meant.
        kept: what was put aside of it before.
        cut: of :func:`cuts`.
        now: by which it was attributed.
        starts: steps from which later attempts started.
    """
    earlier, generation = kept.earlier if kept is not None else Earlier(), generations[-1]
    number = kept.number if kept is not None else len(generations) - 1
    ledger = generation.ledgers[-1]
    try:
        past = _past(generations, kept.past if kept is not None else None, cut, len(earlier.attempts), starts)
    except Unsettled:
        return None
    attempt = ledger.attempt
    rest = RunLog(log.run, [rest_of(attempt.seen.life, attempt.numbers or (), cut)], log.notes)
    try:
        followed = attribute(rest, now=now, past=past).generations[0]
        later = _earlier(generation, followed, earlier, past, cut)
        if report_of(log, generation, number, earlier=earlier) != report_of(rest, followed, number, earlier=later):
            return None
    except Unsettled:
        return None
    if (
        tally(generation, (past.moment, generation.end)).by_attempt[-1]
        != tally(followed, (past.moment, followed.end)).by_attempt[0]
    ):
        return None
    log.lives = rest.lives
    return Kept(number, past, later)


def _past(
    generations: Sequence[Generation], before: Past | None, cut: Cut, attempts: int, starts: frozenset[int]
) -> Past:
    """What attribution will need."""
    generation = generations[-1]
    ledger = generation.ledgers[-1]
    attempt, seen, goes_on = ledger.attempt, ledger.attempt.seen, bool(ledger.since)
    numbers = attempt.numbers or ()
    placed = [(saved, at) for saved, at in attempt.saves_at if saved.start < cut.called]
    newest = seen.saves[-1:] if seen.saves and seen.saves[-1].start < cut.called else [p[0] for p in placed[-1:]]
    open_saves = [p for p in placed if not p[0].committed or p[0].label is None or p[0] in newest]
    past = Past(
        moment=ledger.begins[cut.at],
        called=cut.called,
        life=seen.life.id,
        steps=cut.told - ledger.since + (before.steps if before is not None and goes_on else 0),
        saves=[(saved.start, saved.label, saved.committed, at) for saved, at in open_saves],
        elsewhere=[
            (i.start, i.end if i.whole else None, i.activity.value, i.name, i.thread)
            for i in seen.elsewhere
            if i.start < cut.called and _lasts(i.end, cut.called)
        ],
        waited=(goes_on and before is not None and before.waited) or _has_waited(ledger, cut.called),
        waits_stall=seen.waits_stall,
        deferred=seen.deferred,
        noticed=seen.noticed,
        device=ledger.device is not None,
        stuck=stuck_so_far(ledger, cut.at),
        positions=dict(before.positions) if before is not None and goes_on else {},
        files=list(before.files) if before is not None and goes_on else [],
        stride=ledger.stride,
        ideal=ledger.ideal or 0,
    )
    past.positions |= {saved.label: at for saved, at in placed if saved.label is not None}
    past.files += [(tuple(file), at) for saved, at in placed for file in saved.files]
    _add_attempts(past, generations, before)
    _add_numbers(past, generation, before, numbers, cut)
    _add_blocks(past, generation, before, cut, attempts, starts)
    return past


def _has_waited(ledger: Ledger, moment: int) -> bool:
    starts = [*ledger.wait_starts[:1], *(piece.start for piece in ledger.pieces if piece.source == WAIT)]
    return any(start < moment for start in starts)


def _add_attempts(past: Past, generations: Sequence[Generation], before: Past | None) -> None:
    """What is known of the attempts that have ended, and of their saves."""
    samples = list(before.samples) if before is not None else []
    own = list(before.own_ideals) if before is not None else []
    positions = dict(before.earlier_positions) if before is not None else {}
    files = list(before.earlier_files) if before is not None else []
    for ledger in generations[-1].ledgers:
        if not ledger.since:
            samples.append(array("q", ledger.sample()))
            own.append(ideal_of(samples[-1]) if len(samples[-1]) >= ENOUGH else None)
    for ledger in [ledger for generation in generations for ledger in generation.ledgers][:-1]:
        if ledger.since and before is not None:
            positions |= before.positions
            files += before.files
        saves = ledger.attempt.saves_at
        positions |= {saved.label: position for saved, position in saves if saved.label is not None}
        files += [(tuple(file), position) for saved, position in saves for file in saved.files]
    past.samples, past.own_ideals = samples, own
    past.earlier_positions, past.earlier_files = positions, files


def _add_numbers(past: Past, generation: Generation, before: Past | None, numbers: Sequence[int], cut: Cut) -> None:
    """The numbers of steps as the group of attempts counts them, those told again left out."""
    first, highest, distances = None, -1, Counter[int]()
    if before is not None:
        first, highest, distances = before.first, before.highest, Counter(before.distances)
    for attempt in generation.attempts:
        told = numbers[: cut.told - CONTEXT + 1] if attempt is generation.attempts[-1] else attempt.numbers or ()
        if told:
            first = told[0] if first is None else first
            highest = max(highest, max(told))
            distances.update(b - a for a, b in pairwise(told) if b > a)
    past.first, past.highest, past.distances = first, highest, distances


def _add_blocks(
    past: Past, generation: Generation, before: Past | None, cut: Cut, attempts: int, later: frozenset[int]
) -> None:
    """What stands of the steps before the cut, and what is preserved of them."""
    places = {at + 1 for attempt in generation.attempts for _, at in attempt.saves_at}
    if before is not None:
        places |= {at + 1 for at in (*before.positions.values(), *before.earlier_positions.values())}
    standing = list(before.blocks) if before is not None else []
    limit, best = (before.limit, before.best) if before is not None else (None, None)
    starts = starts_of(generation) | later
    for place, ledger in enumerate(generation.ledgers, attempts - 1 if generation.ledgers[0].since else attempts):
        attempt, is_last = ledger.attempt, ledger is generation.ledgers[-1]
        best = best if ledger.since else None
        for start, stop in ledger.stretches:
            begin, end = max(start, ledger.since), min(stop, cut.at) if is_last else stop
            if begin >= end:
                continue
            if start >= ledger.since:
                limit = _take_back(standing, ledger.numbers[start], limit)
            for block in _blocks(ledger, place, begin, end, places | starts):
                _append(standing, block, places | starts)
        if attempt.next_step is not None:
            limit = _take_back(standing, attempt.next_step, limit)
        until = cut.called if is_last else inf
        durable = [at for saved, at in attempt.saves_at if saved.committed and saved.start < until]
        best = max([*durable, *([best] if best is not None else [])], default=None)
        if not is_last and best is not None:
            limit = best if limit is None else max(limit, best)
    past.blocks, past.limit, past.best = standing, limit, best


def _take_back(standing: list[Block], first: int, limit: int | None) -> int | None:
    while standing and taken_whole(standing[-1], first):
        standing.pop()
    return limit if limit is None else min(limit, first - 1)


def _append(standing: list[Block], block: Block, places: set[int]) -> None:
    """Add a block; where none needs to end, two become one."""
    last = standing[-1] if standing else None
    if last is not None and last.attempt == block.attempt and last.stop == block.first and block.first not in places:
        standing[-1] = Block(last.first, block.stop, last.ns + block.ns, last.begun + block.begun, block.attempt)
    else:
        standing.append(block)


def _blocks(ledger: Ledger, attempt: int, start: int, stop: int, places: Iterable[int]) -> Iterator[Block]:
    """The progress of steps with ascending numbers, parted at these numbers."""
    numbers, final = ledger.numbers, len(ledger.begins) - 1
    special = {0, final, *ledger.slow}
    corrected = {step: ledger.own[step] - _progress(ledger, step) for step in special if start <= step < stop}
    end = numbers[stop - 1] + ledger.weight(stop - 1)
    edges = sorted({numbers[start], end, *(at for at in places if numbers[start] < at < end)})
    step, left = start, 0
    for low, high in pairwise(edges):
        following = bisect_left(numbers, high, step, stop)
        ns = left + sum(ledger.own[step:following]) - sum(n for at, n in corrected.items() if step <= at < following)
        left = _behind(ledger, following - 1, high)
        beyond = ledger.beyond if step <= final < following else 0
        yield Block(low, high, ns - left + beyond, following - step, attempt)
        step = following


def _progress(ledger: Ledger, step: int) -> int:
    """What a step has of its interval (rules 5 to 7)."""
    own = ledger.own[step] - (ledger.excess if step == 0 and not ledger.since else 0)
    if step == len(ledger.begins) - 1 and ledger.last_owns is not None:
        return ledger.last_owns
    return own - ledger.slow.get(step, 0)


def _behind(ledger: Ledger, step: int, number: int) -> int:
    """The progress of a step's interval that belongs to the steps from a number on."""
    first, weight = ledger.numbers[step], ledger.weight(step)
    progress = _progress(ledger, step)
    return progress - progress * min(number - first, weight) // weight


def _earlier(generation: Generation, followed: Generation, before: Earlier, past: Past, cut: Cut) -> Earlier:
    """What a report will need."""
    sums = tally(generation, (before.moment or generation.start, past.moment))
    whole = tally(generation, (before.moment or generation.start, generation.end))
    spent = joined([Counter(told.spent) for told in before.attempts], sums.by_attempt)
    stood: Counter[int] = Counter()
    for block in [*generation.blocks, *generation.taken]:
        stood[block.attempt] += block.ns
    for place, counts in enumerate(spent):
        made = counts.pop(PRODUCTIVE, 0) + counts.pop(WASTED, 0) + stood[place]
        if lost := made - sum(block.ns for block in past.blocks if block.attempt == place):
            counts[WASTED] = lost
    attempts = [*before.attempts[:-1], *map(told_of, generation.attempts)]
    if before.attempts:
        place = len(before.attempts) - 1
        attempts[place] = replace(attempts[place], first_step=before.attempts[-1].first_step)
    beside = list(whole.beside)
    if before.attempts:
        beside[0] = Beside(*map(add, beside[0], before.beside))
    ended = zip(beside[:-1], spent[len(attempts) - len(beside) :], strict=False)
    overlapped = Counter(before.overlapped)
    for work, counts in ended:
        overlapped.update(work.overlapped(counts[WAIT]).spent)
    return Earlier(
        moment=past.moment,
        start=before.start or generation.start,
        attempts=[replace(told, spent=counts) for told, counts in zip(attempts, spent, strict=True)],
        between=before.between + sums.between,
        overlapped=overlapped,
        beside=Beside(*map(sub, beside[-1], tally(followed, (past.moment, followed.end)).beside[0])),
        sees=before.sees | seen_in(generation),
        plugins=before.plugins | {k: v for a in generation.attempts for k, v in a.seen.plugins.items()},
        has_saves=before.has_saves or any(a.seen.saves for a in generation.attempts),
        **_step_times(generation, followed, before),
        story=_story(generation, followed, before, cut),
    )


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
    compiled = before.story.compiled if last.since else set[str]()
    compiled |= {
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


def starts_of(generation: Generation) -> frozenset[int]:
    """The steps from which its attempts started, or went on after going back."""
    starts = {ledger.numbers[start] for ledger in generation.ledgers for start, _ in ledger.stretches}
    return frozenset(starts | {a.next_step for a in generation.attempts if a.next_step is not None})
