"""The progress of a generation up to a cut, in blocks that a restart takes back whole or leaves."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from math import inf

from goodput_plugins.core.attribution import Generation
from goodput_plugins.core.attribution.ledger import Ledger
from goodput_plugins.core.attribution.past import Block, Past
from goodput_plugins.core.attribution.rewind import taken_whole
from goodput_plugins.core.live.cuts import Cut

RECENT_BLOCKS = 64
"""So many blocks are kept apart; before them, an attempt is one. Who goes back further makes all be read again."""


def starts_of(generation: Generation) -> frozenset[int]:
    """The steps from which its attempts started, or went on after going back."""
    starts = {ledger.numbers[start] for ledger in generation.ledgers for start, _ in ledger.stretches}
    return frozenset(starts | {a.next_step for a in generation.attempts if a.next_step is not None})


def add_blocks(
    past: Past, generation: Generation, before: Past | None, cut: Cut, attempts: int, later: frozenset[int]
) -> None:
    """Find what stands of the steps before a cut, and what is preserved of them.

    Args:
        past: to which they are added.
        generation: attributed; its last attempt is cut.
        before: its past, if it has one.
        cut: where.
        attempts: how many of its attempts came before those here.
        later: steps from which later attempts started.
    """
    standing = list(before.blocks) if before is not None else []
    limit, best = (before.limit, before.best) if before is not None else (None, None)
    places = _saved(generation, before) | starts_of(generation) | later
    for place, ledger in enumerate(generation.ledgers, attempts):
        is_last = ledger is generation.ledgers[-1]
        best = best if ledger.since else None
        for start, stop in ledger.stretches:
            begin, end = max(start, ledger.since), min(stop, cut.at) if is_last else stop
            if begin < end:
                if start >= ledger.since:
                    limit = _take_back(standing, ledger.numbers[start], limit)
                for block in _blocks(ledger, place, begin, end, places):
                    _append(standing, block, places)
        if is_last and not cut.at:
            break
        if (following := ledger.attempt.next_step) is not None:
            limit = _take_back(standing, following, limit)
        best = _best(ledger, best, cut.called if is_last else inf)
        if not is_last and best is not None:
            limit, best = best if limit is None else max(limit, best), None
    past.limit, past.best = limit, best
    past.blocks = _condensed(standing, {at + 1 for at in (limit, best) if at is not None})


def _saved(generation: Generation, before: Past | None) -> set[int]:
    """The steps that follow a checkpoint."""
    places = {at + 1 for attempt in generation.attempts for _, at in attempt.saves_at}
    if before is not None:
        places |= {at + 1 for at in (*before.positions.values(), *before.earlier_positions.values())}
    return places


def _best(ledger: Ledger, best: int | None, until: float) -> int | None:
    """The highest step in a committed checkpoint of an attempt."""
    durable = [at for saved, at in ledger.attempt.saves_at if saved.committed and saved.start < until]
    return max([*durable, *([best] if best is not None else [])], default=None)


def _take_back(standing: list[Block], first: int, limit: int | None) -> int | None:
    while standing and taken_whole(standing[-1], first):
        standing.pop()
    return limit if limit is None else min(limit, first - 1)


def _append(standing: list[Block], block: Block, places: Collection[int]) -> None:
    """Add a block; where none needs to end, two become one."""
    if standing and _is_one(standing[-1], block) and block.first not in places:
        standing[-1] = _joined(standing[-1], block)
    else:
        standing.append(block)


def _condensed(standing: list[Block], places: Collection[int]) -> list[Block]:
    """The blocks, all but the last ones as few as can be."""
    kept: list[Block] = []
    for block in standing[:-RECENT_BLOCKS]:
        _append(kept, block, places)
    return kept + standing[-RECENT_BLOCKS:]


def _is_one(block: Block, following: Block) -> bool:
    return block.attempt == following.attempt and block.stop == following.first


def _joined(block: Block, following: Block) -> Block:
    begun = block.begun + following.begun
    return Block(block.first, following.stop, block.ns + following.ns, begun, block.attempt)


def _blocks(ledger: Ledger, attempt: int, start: int, stop: int, places: Collection[int]) -> Iterator[Block]:
    """The progress of steps with ascending numbers, parted at these numbers."""
    numbers, final = ledger.numbers, len(ledger.begins) - 1
    special = {0, final, *ledger.slow}
    corrected = {step: ledger.own[step] - _progress(ledger, step) for step in special if start <= step < stop}
    end = numbers[stop - 1] + ledger.weight(stop - 1)
    step, left = start, 0
    for low, high in pairwise(_edges(numbers[start], end, places)):
        following = bisect_left(numbers, high, step, stop)
        ns = left + sum(ledger.own[step:following]) - sum(n for at, n in corrected.items() if step <= at < following)
        left = _behind(ledger, following - 1, high)
        beyond = ledger.beyond if step <= final < following else 0
        yield Block(low, high, ns - left + beyond, following - step, attempt)
        step = following


def _edges(first: int, end: int, places: Collection[int]) -> Sequence[int]:
    return sorted({first, end, *(at for at in places if first < at < end)})


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
