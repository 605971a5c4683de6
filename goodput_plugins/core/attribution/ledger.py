"""The ledger of one attempt: its steps' intervals and everything that owns a part of them.

A ledger is built in two strokes. :func:`open_ledger` lays out intervals and pieces from what was
observed; :func:`judge` decides, given the ideal step time, how the rest of each interval is split
(rules 3, 5, 6, 7 and 10). What is left over for the step itself is productive, until rule 8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise

from goodput_plugins.core.attribution.activities import Piece, sweep
from goodput_plugins.core.attribution.device import idle_only, on_device
from goodput_plugins.core.attribution.generations import Attempt
from goodput_plugins.core.attribution.ideal import JUDGED
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Activity
from goodput_plugins.core.report import Breakdown, Source

STUCK_NS = 100_000_000
"""An excess below this is never a stuck step."""

PRODUCTIVE: Source = (Bucket.PRODUCTIVE, None)
PREPARATION: Source = (Bucket.TRAINING_PREP, None)
FIRST_STEP: Source = (Bucket.PROGRAM_STARTUP, "FIRST_STEP")
SLOW_STEP: Source = (Bucket.OTHER, "SLOW_STEP")
TEARDOWN: Source = (Bucket.OTHER, "TEARDOWN")
HANG: Source = (Bucket.INFRASTRUCTURE_RECOVERY, "HANG")


@dataclass
class Ledger:
    """One attempt's time, laid out. Times in ns since the epoch, spans in ns.

    Attributes:
        stride: every how many steps one is logged (n).
        begins: when each step begins; ``begins[0]`` ends the preparation.
        numbers: a number for each step (its index where numbers are unknown).
        weights: how many steps each interval is (n where every n-th is logged).
        nets: each interval less waits and all other buckets.
        pieces: what owns time for itself, in order, cut at the steps' beginnings.
        first_piece: for each step the index of its first piece; for the last one plus 1, the end.
        waits: for each step with waits, their total.
        ideal: by which this attempt is judged.
        excess: FIRST_STEP time of the first interval.
        slow: SLOW_STEP time by step.
        stalled: how much of a step's waits stalls, where not all of it does.
        last_owns: what the last step owns at most; None: its whole interval.
        rest: the source of what is left after the last step.
        beyond: productive time of the last step and its successors past ``until``.
        bursty: rule 7 does not apply.
        overlapped: DATA_LOADING_ASYNC and CHECKPOINT_SAVE_ASYNC.
        lost_from: for each step that is rolled back, the number from which on it is.
    """

    attempt: Attempt
    stride: int
    begins: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    nets: list[int] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    first_piece: list[int] = field(default_factory=list)
    waits: dict[int, int] = field(default_factory=dict)
    ideal: int | None = None
    excess: int = 0
    slow: dict[int, int] = field(default_factory=dict)
    stalled: dict[int, int] = field(default_factory=dict)
    last_owns: int | None = None
    rest: Source = TEARDOWN
    beyond: int = 0
    bursty: bool = False
    device: bool = False
    last_done: int | None = None
    overlapped: Breakdown = field(default_factory=Breakdown)
    lost_from: dict[int, int] = field(default_factory=dict)

    @property
    def until(self) -> int:
        return self.attempt.until

    def interval(self, step: int) -> tuple[int, int]:
        """From the start of a step to that of the next (or the end of the attempt's own time)."""
        end = self.begins[step + 1] if step + 1 < len(self.begins) else self.until
        return self.begins[step], end

    def pieces_of(self, step: int) -> list[Piece]:
        """What owns a part of a step's interval; step -1 is the preparation."""
        return self.pieces[self.first_piece[step + 1] : self.first_piece[step + 2]]

    def sample(self) -> list[int]:
        """The step times that the attempt's ideal is made of: its first ones, as ``step_times`` has them."""
        return list(islice(self.step_times(), JUDGED - 1))

    def step_times(self) -> Iterator[int]:
        """The time of a step, waits and other buckets subtracted: of all but the first and the last."""
        for at in range(1, len(self.begins) - 1):
            if self.weights[at] == self.stride:
                yield self.nets[at] // self.stride


def open_ledger(attempt: Attempt, stride: int) -> Ledger:
    """Lay out an attempt's intervals and pieces."""
    seen = attempt.seen
    ledger = Ledger(attempt, stride)
    until = attempt.until
    count = sum(1 for t in seen.times if t < until) if seen.times and seen.times[-1] >= until else len(seen.times)
    times, done = seen.times[:count], seen.done[:count]
    numbers = attempt.numbers[:count] if attempt.numbers is not None else list(range(count))
    pieces = sweep(seen.intervals, seen.start, until)
    overlapped = 0
    if any(d is not None for d in done):
        steps = on_device(times, done, pieces, until)
        pieces, overlapped = idle_only(pieces, steps, until)
        times = steps.begins
        ledger.device, ledger.last_done = True, steps.last_done
    elif stride > 1:
        times, numbers = _with_first_step(attempt, times, numbers, pieces, stride)
    ledger.begins, ledger.numbers = times, numbers
    _lay_out(ledger, pieces)
    ledger.weights = _weights(numbers, stride)
    ledger.overlapped = _beside(attempt, overlapped)
    return ledger


def _with_first_step(
    attempt: Attempt, times: list[int], numbers: list[int], pieces: list[Piece], stride: int
) -> tuple[list[int], list[int]]:
    """Rule 5: where the first logged step was not the first run, begin at the end of preparation."""
    expected = attempt.expected
    if not times or expected is None or numbers[0] <= expected:
        return times, numbers
    begin = max((p.end for p in pieces if p.end <= times[0]), default=attempt.seen.start)
    if begin >= times[0] or numbers[0] - expected >= 2 * stride:
        return times, numbers
    return [begin, *times], [expected, *numbers]


def _weights(numbers: list[int], stride: int) -> list[int]:
    """How many steps each interval is; numbers may skip, which makes no step of nothing."""
    weights = [b - a if b > a else stride for a, b in pairwise(numbers)]
    return [*weights, stride] if numbers else []


def _lay_out(ledger: Ledger, pieces: list[Piece]) -> None:
    """Cut the pieces at the steps' beginnings; sum up what each interval has left."""
    begins = ledger.begins
    bounds = [*begins, ledger.until]
    taken = [0] * len(bounds)
    at = 0  # the piece belongs to the interval that ends at bounds[at]; 0 is the preparation
    ledger.first_piece = [0]
    for begin, end, source in pieces:
        while begin < end:
            while at < len(begins) and bounds[at] <= begin:
                at += 1
                ledger.first_piece.append(len(ledger.pieces))
            cut = min(end, bounds[at]) if at < len(begins) else end
            ledger.pieces.append(Piece(begin, cut, source))
            taken[at] += cut - begin
            if source[0] is Bucket.DATA_LOADING_SYNC and at:
                ledger.waits[at - 1] = ledger.waits.get(at - 1, 0) + cut - begin
            begin = cut
    ledger.first_piece += [len(ledger.pieces)] * (len(bounds) + 1 - len(ledger.first_piece))
    ledger.nets = [
        max(0, end - begin - took) for begin, end, took in zip(bounds, bounds[1:], taken[1:], strict=False)
    ]


def _beside(attempt: Attempt, waits: int) -> Breakdown:
    """Overlapped work: of other threads, of the background of saves, of waits under a busy device."""
    seen = attempt.seen
    spent = {Bucket.DATA_LOADING_ASYNC: waits, Bucket.SAVE_ASYNC: seen.commits_took}
    for interval in seen.elsewhere:
        end = min(interval.end if interval.end is not None and interval.end >= 0 else attempt.until, attempt.until)
        if interval.activity is Activity.DATA:
            spent[Bucket.DATA_LOADING_ASYNC] += max(0, end - interval.start)
        elif interval.activity is Activity.SAVE:
            spent[Bucket.SAVE_ASYNC] += max(0, end - interval.start)
    return Breakdown({(bucket, None): ns for bucket, ns in spent.items() if ns})


def judge(ledger: Ledger, ideal: int | None, following: Attempt | None) -> None:
    """Split what each interval has left, by the ideal step time (rules 3, 5, 6, 7 and 10)."""
    ledger.ideal = ideal
    ledger.rest = HANG if ledger.attempt.crashed else TEARDOWN
    if not ledger.begins:
        return
    own = _judge_waits(ledger, ideal)
    _judge_stuck(ledger, own)
    _judge_last(ledger, own, following)
    first = own[0] if len(own) > 1 else _until_done(ledger, own)
    if ledger.ideal is None:
        ledger.excess = first
    else:
        ledger.excess = max(0, first - ledger.weights[0] * ledger.ideal)
    if len(own) == 1 and ledger.attempt.exit != "running":
        ledger.last_owns = first - ledger.excess


def _judge_waits(ledger: Ledger, ideal: int | None) -> list[int]:
    """Rule 3: how much of each wait stalls; returns what every interval has left for its step."""
    own = ledger.nets
    if ledger.device or ledger.attempt.seen.waits_stall or not ledger.waits or ideal is None:
        return own
    own = list(own)
    first_step, first_wait = _first_wait(ledger)
    overlapped = 0
    for step, waited in ledger.waits.items():
        at_once = first_wait if step == first_step else 0
        room = max(0, own[step] + waited - at_once - ledger.weights[step] * ideal)
        stalled = at_once + min(waited - at_once, room)
        if stalled < waited:
            ledger.stalled[step] = stalled
            own[step] += waited - stalled
            overlapped += waited - stalled
    ledger.overlapped += Breakdown({(Bucket.DATA_LOADING_ASYNC, None): overlapped})
    return own


def _first_wait(ledger: Ledger) -> tuple[int, int]:
    """``(step, ns)`` of the first wait after the start; step -1 is the preparation."""
    for at, piece in enumerate(ledger.pieces):
        if piece.source[0] is Bucket.DATA_LOADING_SYNC:
            return bisect_right(ledger.first_piece, at) - 2, piece.end - piece.start
    return -1, 0


def _judge_stuck(ledger: Ledger, own: list[int]) -> None:
    """Rule 7: an interval whose excess is more than (n + 1) x ideal, and more than 0.1 s, was stuck.

    The first step is rule 5's and the last rule 6's, unless it is still open in a living process.
    """
    ideal, last = ledger.ideal, len(own) - 1
    if ideal is None:
        return
    for step in range(1, last + (ledger.attempt.exit == "running")):
        weight = ledger.weights[step]
        excess = own[step] - weight * ideal
        if excess > STUCK_NS and excess > (weight + 1) * ideal:
            ledger.slow[step] = excess
    measured = sum(own[1:last])
    if 2 * sum(excess for step, excess in ledger.slow.items() if step < last) > measured > 0:
        ledger.bursty = True
        ledger.slow.clear()
        ledger.ideal = measured // sum(ledger.weights[1:last])


def _judge_last(ledger: Ledger, own: list[int], following: Attempt | None) -> None:
    """Rule 6: no later start bounds the last step, so the ideal or the device does."""
    attempt, ideal, last = ledger.attempt, ledger.ideal, len(own) - 1
    if attempt.exit == "running":
        return
    if ledger.last_done is not None:
        ledger.last_owns = _until_done(ledger, own)
    elif ideal is not None:
        ledger.last_owns = min(own[last], ledger.stride * ideal)
    if ideal is None or attempt.numbers is None or following is None or following.first_number is None:
        return
    completed = following.first_number - ledger.numbers[last]
    if completed <= 0:
        return
    ledger.weights[last] = completed
    if attempt.seen.end is None:
        ledger.last_owns = min(own[last], completed * ideal)
        if ledger.last_owns == own[last]:
            gap = following.seen.start - ledger.until
            ledger.beyond = max(0, min(gap, completed * ideal - own[last]))


def _until_done(ledger: Ledger, own: list[int]) -> int:
    """What the last step has left up to the moment when the device was done with it."""
    last = len(own) - 1
    if ledger.last_done is None:
        return own[last]
    free_after = ledger.until - ledger.last_done
    for piece in ledger.pieces_of(last):
        free_after -= max(0, piece.end - max(piece.start, ledger.last_done))
    return max(0, own[last] - free_after)
