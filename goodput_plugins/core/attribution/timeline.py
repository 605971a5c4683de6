"""The timeline: every second of a generation in order, each with its one bucket.

Here the ledgers become segments (rules 2, 9 and 11). They are made as they are asked for, so a run
of millions of steps needs no list of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from goodput_plugins.core.attribution.activities import Piece
from goodput_plugins.core.attribution.generations import Attempt, is_disruption
from goodput_plugins.core.attribution.ledger import (
    FIRST_STEP,
    PREPARATION,
    PRODUCTIVE,
    SLOW_STEP,
    Ledger,
)
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Breakdown, Source

WASTED: Source = (Bucket.WASTED_PROGRESS, None)
RECOVERY: Source = (Bucket.INFRASTRUCTURE_RECOVERY, None)
EXCLUDED: Source = (Bucket.EXCLUDED, None)


class Segment(NamedTuple):
    """A stretch of time with one owner.

    Attributes:
        start: ns since the epoch.
        end: ns since the epoch, after ``start``.
        bucket: who owns it.
        sub: its sub-source, if it has one.
        life: the attempt's number in its generation; None in a gap.
        step: the number of the step it lies in; None outside steps.
    """

    start: int
    end: int
    bucket: Bucket
    sub: str | None
    life: int | None
    step: int | None


@dataclass
class Generation:
    """One generation of a run, attributed.

    Attributes:
        ledgers: one for each attempt.
        end: where its timeline ends, ns since the epoch.
        preserved: the highest step inside a committed checkpoint; None where there is none.
        stride: every how many steps one is logged.
    """

    ledgers: list[Ledger]
    end: int
    preserved: int | None = None
    stride: int = 1

    @property
    def start(self) -> int:
        return self.ledgers[0].attempt.seen.start

    @property
    def attempts(self) -> list[Attempt]:
        return [ledger.attempt for ledger in self.ledgers]

    @property
    def completed(self) -> bool:
        return self.attempts[-1].exit == "completed"

    @property
    def overlapped(self) -> Breakdown:
        """Work beside the training thread; it owns no time."""
        return sum((ledger.overlapped for ledger in self.ledgers), Breakdown())

    @property
    def disrupted_at(self) -> list[int]:
        """When each disruption happened."""
        attempts = self.attempts
        return [a.until for a, b in zip(attempts, [*attempts[1:], None], strict=True) if is_disruption(a, b)]

    @property
    def disruptions(self) -> int:
        """How often the run was disrupted."""
        return len(self.disrupted_at)

    def segments(self) -> Iterator[Segment]:
        """All time from the first process start to the end, in order, without gap or overlap."""
        followers: list[Ledger | None] = [*self.ledgers[1:], None]
        for life, (ledger, following) in enumerate(zip(self.ledgers, followers, strict=True)):
            yield from self._attempt(life, ledger)
            until = ledger.until + ledger.beyond
            if ledger.beyond:
                lost = len(ledger.begins) - 1 in ledger.lost_from
                yield Segment(ledger.until, until, *(WASTED if lost else PRODUCTIVE), life, ledger.numbers[-1])
            gap_to = following.attempt.seen.start if following is not None else self.end
            if until < gap_to:
                yield Segment(until, gap_to, *self._gap(ledger.attempt, following), None, None)

    def _gap(self, attempt: Attempt, following: Ledger | None) -> Source:
        """Rule 2: who owns the time after an attempt."""
        after = following.attempt if following is not None else None
        return RECOVERY if is_disruption(attempt, after) else EXCLUDED

    def _attempt(self, life: int, ledger: Ledger) -> Iterator[Segment]:
        first = ledger.begins[0] if ledger.begins else ledger.until
        yield from _fill(ledger.attempt.seen.start, first, ledger.pieces_of(-1), [(PREPARATION, None, None)], life)
        simple = not ledger.slow and ledger.stride == 1
        last = len(ledger.begins) - 1
        pieces_from = ledger.first_piece
        for step in range(last + 1):
            begin, end = ledger.interval(step)
            if simple and 0 < step < last and pieces_from[step + 1] == pieces_from[step + 2] and begin < end:
                owner = WASTED if step in ledger.lost_from else PRODUCTIVE
                yield Segment(begin, end, *owner, life, ledger.numbers[step])
                continue
            pieces = ledger.pieces_of(step)
            if step in ledger.stalled:
                pieces = _stalled_part(pieces, ledger.stalled[step])
            own = end - begin - sum(piece.end - piece.start for piece in pieces)
            yield from _fill(begin, end, pieces, self._parts(ledger, step, own), life, ledger.numbers[step])

    def _parts(self, ledger: Ledger, step: int, own: int) -> list[Part]:
        """Rule 11: what a step's own time is spent on, in order; the last part takes what is left."""
        parts: list[Part] = []
        if step == 0 and ledger.excess:
            parts.append((FIRST_STEP, ledger.excess, None))
            own -= ledger.excess
        rest: Source | None = None
        if step == len(ledger.begins) - 1 and ledger.last_owns is not None:
            own, rest = ledger.last_owns, ledger.rest
        elif step in ledger.slow:
            own, rest = own - ledger.slow[step], SLOW_STEP
        parts += self._progress(ledger, step, own)
        parts.append((rest, None, None) if rest is not None else (parts.pop()[0], None, None))
        return parts

    def _progress(self, ledger: Ledger, step: int, own: int) -> list[Part]:
        """Rules 8 and 10: a step's progress, kept and lost; an interval of n is spread over its steps."""
        number, weight = ledger.numbers[step], ledger.weights[step]
        lost = ledger.lost_from.get(step, number + weight)
        cuts = {number, number + weight, max(number, lost)}
        if self.preserved is not None and number <= self.preserved < number + weight:
            cuts.add(self.preserved + 1)
        ordered = sorted(cuts)
        return [
            (
                WASTED if begin >= lost else PRODUCTIVE,
                own * (end - number) // weight - own * (begin - number) // weight,
                begin,
            )
            for begin, end in pairwise(ordered)
        ]


Part = tuple[Source, int | None, int | None]
"""A source, how much of the free time it takes (None: the rest), the step number if it differs."""


def _stalled_part(pieces: list[Piece], stalled: int) -> list[Piece]:
    """The pieces with only the first ``stalled`` ns of the waits."""
    kept = []
    for piece in pieces:
        if piece.source[0] is Bucket.DATA_LOADING_SYNC:
            end = min(piece.end, piece.start + stalled)
            stalled -= end - piece.start
            if piece.start < end:
                kept.append(piece._replace(end=end))
        else:
            kept.append(piece)
    return kept


def _fill(
    begin: int, end: int, pieces: list[Piece], parts: list[Part], life: int, number: int | None = None
) -> Iterator[Segment]:
    """The pieces where they lie, and the parts, one after the other, in what is free between them."""
    waiting = iter(parts)
    source, left, step = next(waiting)
    at = begin
    for piece in [*pieces, None]:
        free_to = end if piece is None else piece.start
        while at < free_to:
            if left == 0:
                source, left, step = next(waiting)
                continue
            to = free_to if left is None else min(free_to, at + left)
            yield Segment(at, to, *source, life, number if step is None else step)
            left = None if left is None else left - (to - at)
            at = to
        if piece is not None:
            yield Segment(piece.start, piece.end, *piece.source, life, number)
            at = piece.end
