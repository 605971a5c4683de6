"""The ledger of one attempt: its steps' intervals and everything that owns a part of them.

:func:`open_ledger` lays out, from what was observed, when each step begins and what else owns time
in its interval. What is left is the step's own; :mod:`~goodput_plugins.core.attribution.judge`
splits that. Columns have one value a step, so that a million steps are a few sums.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import sub
from typing import Any, NamedTuple

from goodput_plugins.core.attribution.activities import Piece
from goodput_plugins.core.attribution.device import DeviceSteps
from goodput_plugins.core.attribution.generations import Attempt
from goodput_plugins.core.attribution.ideal import JUDGED
from goodput_plugins.core.attribution.past import CONTEXT
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Activity
from goodput_plugins.core.report import Breakdown, Source

WAIT: Source = (Bucket.DATA_LOADING_SYNC, None)
TEARDOWN: Source = (Bucket.OTHER, "TEARDOWN")
HOST_GAP: Source = (Bucket.OTHER, "HOST_GAP")


class Beside(NamedTuple):
    """Waits for data and background work of checkpoints, ns."""

    waited: int = 0
    saving: int = 0

    def overlapped(self, stalled: int) -> Breakdown:
        """What of it owns no time, where so much of the waits is DATA_LOADING_SYNC."""
        spent = {Bucket.DATA_LOADING_ASYNC: self.waited - stalled, Bucket.SAVE_ASYNC: self.saving}
        return Breakdown({(bucket, None): ns for bucket, ns in spent.items() if ns > 0})


@dataclass
class Ledger:
    """One attempt's time, laid out. Times in ns since the epoch, spans in ns.

    Attributes:
        stride: every how many steps one is logged (n).
        begins: when each step begins; the first one ends the preparation.
        numbers: a number for each step (its index where numbers are unknown).
        weights: how many steps an interval is, where that is not ``stride``.
        pieces: what owns time for itself, in order, cut at the steps' beginnings; without waits.
        wait_starts, wait_ends: waits for data that count, in order, each within one interval.
        waits: of each step, how long it waited; empty where the device tells.
        nets: of each step, its interval less pieces, waits and gaps.
        device: the steps by the device's clock; None where only the host's is known.
        waited: waits for data that touch other activities, before any of them is found to be overlapped.

        ideal: by which the attempt is judged; None where there is none.
        own: ``nets`` and what waits overlapped (rule 3).
        overlaps: of each step, how much of its waits was overlapped; empty where all of them stall.
        excess: FIRST_STEP time of the first interval.
        slow: SLOW_STEP time by step.
        last_owns: the progress of the last step; None: all that it has left.
        rest: the source of what is left after the last step.
        beyond: progress of the last step and its successors past ``until``.
        bursty: the host is, so rule 7 does not apply.

        lost: stretches of steps ``(start, stop)`` that are rolled back.
        lost_from: for a step of which a part is, the number from which on it is.
        stretches: ``(start, stop)`` of steps with ascending numbers.
    """

    attempt: Attempt
    stride: int
    begins: Sequence[int] = ()
    numbers: Sequence[int] = ()
    weights: dict[int, int] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    wait_starts: Sequence[int] = ()
    wait_ends: Sequence[int] = ()
    waits: Sequence[int] = ()
    nets: Sequence[int] = ()
    device: DeviceSteps | None = None
    waited: list[tuple[int, int]] = field(default_factory=list)

    ideal: int | None = None
    own: Sequence[int] = ()
    overlaps: Sequence[int] = ()
    excess: int = 0
    slow: dict[int, int] = field(default_factory=dict)
    last_owns: int | None = None
    rest: Source = TEARDOWN
    beyond: int = 0
    bursty: bool = False

    lost: list[tuple[int, int]] = field(default_factory=list)
    lost_from: dict[int, int] = field(default_factory=dict)
    stretches: list[tuple[int, int]] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        """Another process that laid it out has the attempt from the one that asked for it."""
        return vars(self) | {"attempt": None}

    @property
    def until(self) -> int:
        return self.attempt.until

    @property
    def since(self) -> int:
        """The first step that counts; those before belong to the past."""
        past = self.attempt.seen.past
        return 0 if past is None else CONTEXT

    @property
    def first_begin(self) -> int:
        """When the first step begins; where there is none, the end."""
        return self.begins[0] if self.begins else self.until

    def weight(self, step: int) -> int:
        """How many steps the interval of this one is."""
        return self.weights.get(step, self.stride)

    def interval(self, step: int) -> tuple[int, int]:
        """From the start of a step to that of the next (or the end of the attempt's own time)."""
        end = self.begins[step + 1] if step + 1 < len(self.begins) else self.until
        return self.begins[step], end

    @property
    def unlogged(self) -> int:
        """Where every n-th step is logged: how many were taken after the last that was."""
        if self.stride == 1 or not self.ideal or self.last_owns is None:
            return 0
        return min(max(0, round(self.last_owns / self.ideal) - 1), self.stride - 1)

    def is_lost(self, step: int) -> bool:
        """Whether a step is rolled back as a whole."""
        return any(start <= step < stop for start, stop in self.lost)

    def kept_steps(self, low: int, high: int) -> int:
        """How many steps that began in ``[low, high)`` are not rolled back."""
        first, stop = bisect_left(self.begins, low), bisect_left(self.begins, high)
        kept = stop - first
        for start, end in self.lost:
            kept -= max(0, min(end, stop) - max(start, first))
        return kept * self.stride

    def pieces_between(self, begin: int, end: int) -> list[Piece]:
        """The pieces that lie in a step's interval, or in the preparation."""
        low = bisect_left(self.pieces, begin, key=_start)
        return self.pieces[low : bisect_left(self.pieces, end, low, key=_start)]

    def waits_between(self, begin: int, end: int) -> list[Piece]:
        """The waits that lie in a step's interval, or in the preparation."""
        low, high = bisect_left(self.wait_starts, begin), bisect_left(self.wait_starts, end)
        return [
            Piece(start, stop, WAIT)
            for start, stop in zip(self.wait_starts[low:high], self.wait_ends[low:high], strict=True)
        ]

    def waited_between(self, begin: int, end: int) -> int:
        """How long these waits are, ns."""
        low, high = bisect_left(self.wait_starts, begin), bisect_left(self.wait_starts, end)
        return sum(map(sub, self.wait_ends[low:high], self.wait_starts[low:high]))

    def gap(self, step: int) -> int:
        """How long the device was idle in a step's interval for no known reason, ns."""
        if self.device is None or step + 1 >= len(self.begins):
            return 0
        free, end = self.device.free[step], self.begins[step + 1]
        if free >= end:
            return 0
        known = sum(piece.end - piece.start for piece in self.pieces_between(free, end))
        return end - free - known - self.waited_between(free, end)

    def beside(self, low: int, high: int) -> Beside:
        """What was done between two moments beside the training thread, or by it while the device worked."""
        seen = self.attempt.seen
        low, high = max(low, seen.start), min(high, self.until)
        reading = [*self.waited, *seen.others(Activity.DATA)]
        waited = _overlap(reading, low, high) + _overlap_sorted(seen.wait_starts, seen.wait_ends, low, high)
        saving = _overlap([*seen.commits, *seen.others(Activity.SAVE)], low, high)
        return Beside(waited, saving)

    def step_times(self) -> Iterable[int]:
        """The time of a step, waits and other buckets subtracted: of all but the first and the last.

        Where the device tells, only of those whose beginning and end it told.
        """
        if self.stride == 1 and self.weights.keys() <= {len(self.nets) - 1} and not self._unsampled:
            first = max(1, self.since)
            return self.nets[first:-1]
        return (self.nets[at] // self.stride for at in self.usual_steps())

    def numbered_steps(self) -> Iterator[tuple[int, int]]:
        """The number and the time of each step that :meth:`step_times` tells."""
        return ((self.numbers[at], self.nets[at] // self.stride) for at in self.usual_steps())

    @property
    def _unsampled(self) -> bool:
        """Whether the device did not tell of every step."""
        return self.device is not None and self.device.sampled is not None

    def usual_steps(self) -> Iterator[int]:
        """The steps whose time is told: neither the first nor the last, nor one whose number skips."""
        told = self.device.sampled if self.device is not None else None
        for at in range(max(1, self.since), len(self.nets) - 1):
            if at not in self.weights and (told is None or (told[at] and told[at - 1])):
                yield at

    def sample(self) -> list[int]:
        """The step times that the attempt's ideal is made of: its first ones."""
        return list(islice(self.step_times(), JUDGED - 1))


def _start(piece: Piece) -> int:
    return piece[0]


def _overlap(stretches: Iterable[tuple[int, int]], low: int, high: int) -> int:
    """How much of these stretches lies between two moments."""
    return sum(max(0, min(end, high) - max(start, low)) for start, end in stretches)


def _overlap_sorted(starts: Sequence[int], ends: Sequence[int], low: int, high: int) -> int:
    """The same for stretches without overlap, in order."""
    first, stop = bisect_right(ends, low), bisect_left(starts, high)
    if first >= stop:
        return 0
    cut = max(0, low - starts[first]) + max(0, ends[stop - 1] - high)
    waited: int = sum(map(sub, ends[first:stop], starts[first:stop]))
    return waited - cut
