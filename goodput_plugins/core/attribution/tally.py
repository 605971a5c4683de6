"""Sums over the timeline, of all of it or of a window, without making every segment.

Most steps are alike: progress, a wait, an idle gap. Stretches of such steps are summed by column;
the others (the first, the last, stuck ones, those at the edge of a window or half rolled back) go
through their segments. Both ways give the same nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, pairwise

from goodput_plugins.core.attribution.ledger import HOST_GAP, WAIT, Beside, Ledger
from goodput_plugins.core.attribution.timeline import PRODUCTIVE, WASTED, Generation, Segment
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Breakdown, Source

Window = tuple[int, int]


@dataclass
class Tally:
    """Nanoseconds by source.

    Attributes:
        by_attempt: of each attempt.
        between: of what lies between attempts.
        beside: of each attempt what was done beside.
        preserved: progress in steps that are inside a committed checkpoint, or of a completed run.
    """

    by_attempt: list[Counter[Source]] = field(default_factory=list)
    between: Counter[Source] = field(default_factory=Counter)
    beside: list[Beside] = field(default_factory=list)
    preserved: int = 0

    @property
    def spent(self) -> Breakdown:
        """Of all time."""
        return sum(map(Breakdown, self.by_attempt), Breakdown(self.between))

    @property
    def overlapped(self) -> Breakdown:
        """Work beside the training thread; it owns no time."""
        told = zip(self.beside, self.by_attempt, strict=True)
        return sum((beside.overlapped(spent[WAIT]) for beside, spent in told), Breakdown())


def tally(generation: Generation, window: Window | None = None) -> Tally:
    """Sum up a generation, clipped to a window (ns since the epoch)."""
    return whole([tally_one(generation, life, window) for life in range(len(generation.ledgers))])


def tally_one(generation: Generation, life: int, window: Window | None = None, *, alone: bool = False) -> Tally:
    """Sum up one of its attempts, and what follows that.

    What was done beside before the window belongs to the sums of what came before, if there are such; not if the
    window stands ``alone``.
    """
    low, high = window if window is not None else (generation.start, generation.end)
    one = _Attempt(generation, life, low, high)
    one.add_all()
    beside = one.ledger.beside(low if alone or one.ledger.attempt.seen.past is None else 0, high)
    return Tally([one.spent], one.between, [beside], one.preserved)


def whole(tallies: Iterable[Tally]) -> Tally:
    """The sums of all attempts."""
    total = Tally()
    for one in tallies:
        total.by_attempt += one.by_attempt
        total.between.update(one.between)
        total.beside += one.beside
        total.preserved += one.preserved
    return total


class _Attempt:
    """The sums of one attempt."""

    def __init__(self, generation: Generation, life: int, low: int, high: int) -> None:
        self.generation = generation
        self.life = life
        self.ledger: Ledger = generation.ledgers[life]
        self.low, self.high = low, high
        self.spent: Counter[Source] = Counter()
        self.between: Counter[Source] = Counter()
        self.preserved = 0

    def add_all(self) -> None:
        if self.low < self.ledger.first_begin and self.high > self.ledger.attempt.seen.start:
            self.add(self.generation.preparation(self.life))
        self.add(self.generation.after(self.life))
        singles, edges = self._singles(), self._edges()
        first, stop = self._overlapping()
        around = {edge for at in singles for edge in (at, at + 1)}
        cuts = sorted({first, stop, *around, *(edge for edge in edges if first < edge < stop)})
        for begin, end in pairwise(cuts):
            if begin in singles:
                self.add(self.generation.of_step(self.life, begin))
            else:
                self.add_alike(begin, end)

    def add(self, segments: Iterable[Segment]) -> None:
        """Add segments, clipped to the window."""
        for start, end, bucket, sub, life, step in segments:
            took = min(end, self.high) - max(start, self.low)
            if took > 0:
                (self.between if life is None else self.spent)[bucket, sub] += took
                if bucket is Bucket.PRODUCTIVE and self._is_preserved(step):
                    self.preserved += took

    def add_alike(self, begin: int, end: int) -> None:
        """Add steps that lie inside the window and are all kept, or all rolled back."""
        ledger = self.ledger
        low, high = ledger.begins[begin], ledger.interval(end - 1)[1]
        progress = sum(ledger.own[begin:end])
        waited = ledger.waited_between(low, high) - sum(ledger.overlaps[begin:end])
        lost = ledger.is_lost(begin)
        self._spend(WASTED if lost else PRODUCTIVE, progress)
        self._spend(WAIT, waited)
        left = high - low - progress - waited
        for start, stop, source in ledger.pieces_between(low, high):
            self.spent[source] += stop - start
            left -= stop - start
        self._spend(HOST_GAP, left)
        if not lost and self._is_preserved(ledger.numbers[begin]):
            self.preserved += progress

    def _spend(self, source: Source, ns: int) -> None:
        if ns:
            self.spent[source] += ns

    def _is_preserved(self, step: int | None) -> bool:
        keeps = self.generation.preserved
        return self.generation.completed or (keeps is not None and step is not None and step <= keeps)

    def _overlapping(self) -> tuple[int, int]:
        """The steps whose intervals touch the window, as ``(first, stop)``."""
        begins = self.ledger.begins
        if not begins or self.ledger.until <= self.low:
            return 0, 0
        return max(0, bisect_right(begins, self.low) - 1), bisect_left(begins, self.high)

    def _singles(self) -> set[int]:
        """The steps of the window that are not like others."""
        ledger = self.ledger
        first, stop = self._overlapping()
        singles = {0, len(ledger.begins) - 1, first, stop - 1, *ledger.slow, *ledger.lost_from}
        keeps = self.generation.preserved
        if keeps is not None and (ledger.stride > 1 or ledger.weights):
            singles |= {bisect_right(ledger.numbers, keeps, *stretch) - 1 for stretch in ledger.stretches}
        return {step for step in singles if first <= step < stop}

    def _edges(self) -> set[int]:
        """Where stretches of steps that are alike may end."""
        ledger, keeps = self.ledger, self.generation.preserved
        edges = set(chain.from_iterable([*ledger.lost, *ledger.stretches]))
        if keeps is not None:
            edges |= {bisect_right(ledger.numbers, keeps, *stretch) for stretch in ledger.stretches}
        return edges
