"""Laying out an attempt: when each of its steps begins, and what else owns time in its interval."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import sub

from goodput_plugins.core.attribution.activities import Piece, sweep
from goodput_plugins.core.attribution.data_waits import Waits, lay_waits
from goodput_plugins.core.attribution.device import idle_pieces, on_device
from goodput_plugins.core.attribution.generations import Attempt
from goodput_plugins.core.attribution.ledger import WAIT, Ledger
from goodput_plugins.core.attribution.pauses import pauses_in
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.columns import UNKNOWN, packed

PREPARING = (Bucket.TPU_INITIALIZATION, Bucket.TRAINING_PREP, Bucket.RESTORE)
"""What comes before the first batch."""


def open_ledger(attempt: Attempt, stride: int) -> Ledger:
    """Lay out an attempt's intervals and what owns time in them."""
    seen, until = attempt.seen, attempt.until
    count = bisect_right(seen.times, until)
    called: Sequence[int] = seen.times[:count]
    column = called
    numbers = attempt.numbers[:count] if attempt.numbers is not None else range(count)
    pieces = sweep(seen.intervals, seen.start, until)
    starts, ends = _clip(seen.wait_starts, seen.wait_ends, seen.start, until)
    ledger = Ledger(attempt, stride)
    ledger.waited = [(p.start, p.end) for p in pieces if p.source == WAIT]
    if any(when != UNKNOWN for when in seen.done[:count]):
        called = list(called)
        device = on_device(called, seen.done[:count].tolist(), pieces, until, deferred=seen.deferred)
        idle = list(zip(seen.idle_starts, seen.idle_ends, strict=True))
        pauses = pauses_in(idle, pieces, (starts, ends), device) if idle else []
        pieces = sorted([*idle_pieces(pieces, device, until), *pauses])
        ledger.device = device
    elif stride > 1 and count:
        called, numbers = _with_first_step(attempt, called, numbers, pieces, stride)
    ledger.begins, ledger.numbers = called if ledger.device is None else ledger.device.begins, numbers
    if not isinstance(numbers, range):
        ledger.weights = {at: b - a for at, (a, b) in enumerate(pairwise(numbers)) if b > a and b - a != stride}
    _lay_out(ledger, pieces, lay_waits(starts, ends, called, ledger.device))
    if ledger.device is not None:
        if ledger.device.begins is called:
            ledger.device.begins = column
        ledger.device.pack()
        ledger.begins = ledger.device.begins
    return ledger


def _clip(starts: Sequence[int], ends: Sequence[int], low: int, high: int) -> tuple[Sequence[int], Sequence[int]]:
    """The waits between two moments."""
    if starts and (starts[0] < low or ends[-1] > high):
        clipped = [(max(s, low), min(e, high)) for s, e in zip(starts, ends, strict=True) if e > low and s < high]
        return array("q", [s for s, _ in clipped]), array("q", [e for _, e in clipped])
    return starts, ends


def _with_first_step(
    attempt: Attempt, called: Sequence[int], numbers: Sequence[int], pieces: Sequence[Piece], stride: int
) -> tuple[Sequence[int], Sequence[int]]:
    """Rule 5: where the first logged step was not the first run, that one begins when all was prepared."""
    first = attempt.resumes_at(stride)
    if first is None or first == numbers[0]:
        return called, numbers
    seen = attempt.seen
    ready = [p.end for p in pieces if p.source[0] in PREPARING and p.end <= called[0]]
    prepared = max(ready, default=seen.start)
    waits = [(p.start, p.end) for p in pieces if p.source == WAIT]
    waits += zip(seen.wait_starts, seen.wait_ends, strict=True)
    batch = min((wait for wait in waits if prepared <= wait[0]), default=(0, prepared))[1]
    if batch >= called[0]:
        return called, numbers
    return array("q", [batch, *called]), array("q", [first, *numbers])


def _lay_out(ledger: Ledger, pieces: Sequence[Piece], waits: Waits) -> None:
    """Cut pieces at the steps' beginnings; sum up what each interval has left."""
    begins, device, last = list(ledger.begins), ledger.device, len(ledger.begins) - 1
    if device is not None:  # what is left of an idle device's time is a gap, which :meth:`Ledger.gaps` finds again
        nets = list(map(sub, device.free, begins))
        nets[last] = ledger.until - begins[last] - waits.of_steps[last]
    else:
        nets = list(map(sub, map(sub, [*begins[1:], ledger.until], begins), waits.of_steps))
        ledger.waits = packed(waits.of_steps)
    step = -1
    for begin, end, source in pieces:
        while begin < end:
            step = bisect_right(begins, begin, max(step, 0)) - 1
            cut = min(end, begins[step + 1]) if step < last else end
            ledger.pieces.append(Piece(begin, cut, source))
            idle = device is not None and step < last and begin >= device.free[step]
            if step >= 0 and not idle:
                nets[step] -= cut - begin
            begin = cut
    ledger.nets = packed(nets)
    ledger.wait_starts, ledger.wait_ends = packed(waits.starts), packed(waits.ends)
