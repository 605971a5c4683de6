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


class Stretch(NamedTuple):
    """Steps ``start`` to ``stop`` (not included) of a ledger, their numbers ascending."""

    ledger: Ledger
    start: int
    stop: int


def rewind(ledgers: Sequence[Ledger]) -> int | None:
    """Mark in each ledger what later starts took back.

    Returns:
        The highest step that is inside a committed checkpoint; None where there is none.
    """
    standing: list[Stretch] = []
    preserved: int | None = None
    for ledger in ledgers:
        attempt = ledger.attempt
        ledger.stretches = _ascending(ledger.numbers)
        if attempt.numbers is None:
            continue
        for start, stop in ledger.stretches:
            first = ledger.numbers[start]
            _take_back(standing, first)
            preserved = _at_most(preserved, first - 1)
            standing.append(Stretch(ledger, start, stop))
        if attempt.next_step is not None:
            _take_back(standing, attempt.next_step)
            preserved = _at_most(preserved, attempt.next_step - 1)
        for saved, position in attempt.saves_at:
            if saved.committed and (preserved is None or position > preserved):
                preserved = position
    return preserved if preserved is None or preserved >= 0 else None


def _at_most(preserved: int | None, limit: int) -> int | None:
    return preserved if preserved is None else min(preserved, limit)


def _ascending(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The stretches of ascending numbers, as ``(start, stop)``."""
    if isinstance(numbers, range):
        return [(0, len(numbers))] if numbers else []
    breaks = [at for at, (a, b) in enumerate(pairwise(numbers), 1) if b <= a]
    return list(pairwise([0, *breaks, len(numbers)])) if numbers else []


def _take_back(standing: list[Stretch], first: int) -> None:
    """Everything from step number ``first`` on is rolled back."""
    while standing:
        ledger, start, stop = standing.pop()
        cut = bisect_left(ledger.numbers, first, start, stop)
        if cut < stop:
            ledger.lost.append((cut, stop))
        if cut > start:
            before = cut - 1
            if ledger.numbers[before] + ledger.weight(before) > first:
                ledger.lost_from[before] = min(first, ledger.lost_from.get(before, first))
            standing.append(Stretch(ledger, start, cut))
            return
