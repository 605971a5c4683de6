"""Rule 8, the rewind: a step that starts again takes back every step from that number on.

What the other rules left productive in a step that is rolled back becomes wasted progress; every
other second keeps its bucket. Where step numbers are unknown nothing is taken back, and the report
says that wasted progress is not known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from goodput_plugins.core.attribution.ledger import Ledger
from goodput_plugins.core.attribution.past import Block, Past, Unsettled


class Stretch(NamedTuple):
    """Steps ``start`` to ``stop`` (not included) of a ledger, their numbers ascending."""

    ledger: Ledger
    start: int
    stop: int


class Rewound(NamedTuple):
    """What a rewind leaves.

    Attributes:
        preserved: the highest step that is inside a committed checkpoint; None where there is none.
        blocks: what stands of the past.
        taken: what was taken back of it.
    """

    preserved: int | None
    blocks: list[Block]
    taken: list[Block]


def rewind(ledgers: Sequence[Ledger], past: Past | None = None) -> Rewound:
    """Mark in each ledger what later starts took back.

    Raises:
        Unsettled: a part of a block of the past was.
    """
    standing: list[Stretch | Block] = []
    taken: list[Block] = []
    preserved: int | None = None
    if past is not None:
        standing, preserved = [*past.blocks], past.limit
    for ledger in ledgers:
        attempt = ledger.attempt
        ledger.stretches = _ascending(ledger.numbers)
        if attempt.numbers is None:
            continue
        for start, stop in ledger.stretches:
            if start < ledger.since:
                standing.append(Stretch(ledger, ledger.since, stop))
                continue
            first = ledger.numbers[start]
            _take_back(standing, first, taken)
            preserved = _at_most(preserved, first - 1)
            standing.append(Stretch(ledger, start, stop))
        if attempt.next_step is not None:
            _take_back(standing, attempt.next_step, taken)
            preserved = _at_most(preserved, attempt.next_step - 1)
        if attempt.seen.past is not None and past is not None and past.best is not None:
            preserved = past.best if preserved is None else max(preserved, past.best)
        for saved, position in attempt.saves_at:
            if saved.committed and (preserved is None or position > preserved):
                preserved = position
    blocks = [part for part in standing if isinstance(part, Block)]
    return Rewound(preserved if preserved is None or preserved >= 0 else None, blocks, taken)


def _at_most(preserved: int | None, limit: int) -> int | None:
    return preserved if preserved is None else min(preserved, limit)


def _ascending(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The stretches of ascending numbers, as ``(start, stop)``."""
    if isinstance(numbers, range):
        return [(0, len(numbers))] if numbers else []
    breaks = [at for at, (a, b) in enumerate(pairwise(numbers), 1) if b <= a]
    return list(pairwise([0, *breaks, len(numbers)])) if numbers else []


def _take_back(standing: list[Stretch | Block], first: int, taken: list[Block]) -> None:
    """Everything from step number ``first`` on is rolled back."""
    while standing:
        last = standing.pop()
        if isinstance(last, Block):
            if not taken_whole(last, first):
                standing.append(last)
                return
            taken.append(last)
            continue
        ledger, start, stop = last
        cut = bisect_left(ledger.numbers, first, start, stop)
        if cut < stop:
            ledger.lost.append((cut, stop))
        if cut > start:
            before = cut - 1
            if ledger.numbers[before] + ledger.weight(before) > first:
                ledger.lost_from[before] = min(first, ledger.lost_from.get(before, first))
            standing.append(Stretch(ledger, start, cut))
            return


def taken_whole(block: Block, first: int) -> bool:
    """Whether a start of step ``first`` takes a block back; False if it leaves all of it.

    Raises:
        Unsettled: neither.
    """
    if block.first < first < block.stop:
        raise Unsettled
    return block.first >= first
