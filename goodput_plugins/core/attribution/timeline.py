"""The timeline: every second of a generation in order, each with its one bucket.

Here the ledgers become segments (rules 2, 9 and 11), made as they are asked for.
:mod:`~goodput_plugins.core.attribution.tally` sums them up without making them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import NamedTuple

from goodput_plugins.core.attribution.activities import Piece
from goodput_plugins.core.attribution.generations import Attempt, is_disruption
from goodput_plugins.core.attribution.judge import RECOVERY
from goodput_plugins.core.attribution.ledger import WAIT, Ledger
from goodput_plugins.core.attribution.past import Block
from goodput_plugins.core.attribution.pauses import with_gaps
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Source

PRODUCTIVE: Source = (Bucket.PRODUCTIVE, None)
WASTED: Source = (Bucket.WASTED_PROGRESS, None)
PREPARATION: Source = (Bucket.TRAINING_PREP, None)
FIRST_STEP: Source = (Bucket.PROGRAM_STARTUP, "FIRST_STEP")
SLOW_STEP: Source = (Bucket.OTHER, "SLOW_STEP")
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
        blocks: what stands of the past, if there is one.
        taken: what was taken back of it.
    """

    ledgers: list[Ledger]
    end: int
    preserved: int | None = None
    blocks: list[Block] = field(default_factory=list)
    taken: list[Block] = field(default_factory=list)

    @property
    def start(self) -> int:
        return self.ledgers[0].attempt.seen.start

    @property
    def attempts(self) -> list[Attempt]:
        return [ledger.attempt for ledger in self.ledgers]

    @property
    def completed(self) -> bool:
        return self.ledgers[-1].attempt.exit == "completed"

    @cached_property
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
        for life, ledger in enumerate(self.ledgers):
            yield from self.preparation(life)
            for step in range(len(ledger.begins)):
                yield from self.of_step(life, step)
            yield from self.after(life)

    def preparation(self, life: int) -> Iterator[Segment]:
        """The segments of an attempt before its first step."""
        ledger = self.ledgers[life]
        begin, end = ledger.attempt.seen.start, ledger.first_begin
        pieces = sorted(ledger.pieces_between(begin, end) + ledger.waits_between(begin, end))
        return _fill(begin, end, pieces, [(PREPARATION, None, None)], life)

    def of_step(self, life: int, step: int) -> Iterator[Segment]:
        """The segments of a step's interval."""
        ledger = self.ledgers[life]
        begin, end = ledger.interval(step)
        pieces = sorted(ledger.pieces_between(begin, end) + ledger.waits_between(begin, end))
        if ledger.overlaps and ledger.overlaps[step]:
            waited = sum(piece.end - piece.start for piece in pieces if piece.source == WAIT)
            pieces = _stalled_part(pieces, waited - ledger.overlaps[step])
        if ledger.device is not None and step + 1 < len(ledger.begins):
            pieces = with_gaps(pieces, ledger.device.free[step], end)
        own = end - begin - sum(piece.end - piece.start for piece in pieces)
        return _fill(begin, end, pieces, self._parts(ledger, step, own), life, ledger.numbers[step])

    def after(self, life: int) -> Iterator[Segment]:
        """Rule 2: what lies between an attempt's own time and the next one, or the end."""
        ledger = self.ledgers[life]
        until = ledger.until + ledger.beyond
        following = self.ledgers[life + 1].attempt if life + 1 < len(self.ledgers) else None
        if ledger.beyond:
            source = WASTED if ledger.is_lost(len(ledger.begins) - 1) else PRODUCTIVE
            yield Segment(ledger.until, until, *source, life, ledger.numbers[-1])
        gap_to = following.seen.start if following is not None else self.end
        if until < gap_to:
            source = RECOVERY if is_disruption(ledger.attempt, following) else EXCLUDED
            yield Segment(until, gap_to, *source, None, None)

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
        parts.append((rest, None, None) if rest is not None else (parts[-1][0], None, parts[-1][2]))
        return parts

    def _progress(self, ledger: Ledger, step: int, own: int) -> list[Part]:
        """Rules 8 and 10: a step's progress, kept and lost; an interval of n is spread over its steps."""
        number, weight = ledger.numbers[step], ledger.weight(step)
        lost = number if ledger.is_lost(step) else ledger.lost_from.get(step, number + weight)
        cuts = {number, number + weight, max(number, lost)}
        if self.preserved is not None and number <= self.preserved < number + weight:
            cuts.add(self.preserved + 1)
        return [
            (
                WASTED if begin >= lost else PRODUCTIVE,
                own * (end - number) // weight - own * (begin - number) // weight,
                begin,
            )
            for begin, end in pairwise(sorted(cuts))
        ]


Part = tuple[Source, int | None, int | None]
"""A source, how much of the free time it takes (None: the rest), the step number if it differs."""


def _stalled_part(pieces: list[Piece], stalled: int) -> list[Piece]:
    """The pieces with only the first ``stalled`` ns of the waits."""
    kept = []
    for piece in pieces:
        if piece.source == WAIT:
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
    for piece in chain(pieces, [None]):
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
