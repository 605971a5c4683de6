"""Rule 4 inside a step of several pieces of work: between them the device may have nothing to do.

Then the time is not the step's but the host's, as it is between two steps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

from goodput_plugins.core.attribution.activities import Piece
from goodput_plugins.core.attribution.device import DeviceSteps
from goodput_plugins.core.attribution.ledger import HOST_GAP, WAIT

Stretch = tuple[int, int]


def pauses_in(
    idle: Sequence[Stretch], pieces: Sequence[Piece], waits: tuple[Sequence[int], Sequence[int]], device: DeviceSteps
) -> list[Piece]:
    """Who owns the time that the device was idle inside steps, in order.

    Args:
        idle: when the device had nothing to do, in any order; between steps too.
        pieces: what the host did.
        waits: when its other waits for data began and ended.
        device: the steps as the device saw them.
    """
    starts, ends = waits
    found: list[Piece] = []
    for begin, end in _inside(_joined(idle), device):
        low, high = bisect_right(ends, begin), bisect_left(starts, end)
        waited = [Piece(s, e, WAIT) for s, e in zip(starts[low:high], ends[low:high], strict=True)]
        done = pieces[bisect_right(pieces, begin, key=itemgetter(1)) : bisect_left(pieces, end, key=itemgetter(0))]
        owners = [piece._replace(start=max(piece.start, begin), end=min(piece.end, end)) for piece in [*waited, *done]]
        found += with_gaps(sorted(owners), begin, end)
    return found


def with_gaps(pieces: list[Piece], begin: int, end: int) -> list[Piece]:
    """The pieces, and a HOST_GAP wherever there is none between ``begin`` and ``end``."""
    at = bisect_right(pieces, begin, key=itemgetter(1))
    filled: list[Piece] = []
    for piece in pieces[at:]:
        if begin < piece.start:
            filled.append(Piece(begin, piece.start, HOST_GAP))
        filled.append(piece)
        begin = piece.end
    if begin < end:
        filled.append(Piece(begin, end, HOST_GAP))
    return pieces[:at] + filled


def _joined(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Stretches in order, those that touch as one."""
    if all(a[1] < b[0] for a, b in pairwise(stretches)):
        return list(stretches)
    joined: list[Stretch] = []
    for start, end in sorted(stretches):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _inside(stretches: Sequence[Stretch], device: DeviceSteps) -> Iterator[Stretch]:
    """The parts of stretches that lie between a step's dispatch and its end."""
    free, dispatched = device.free, device.dispatched
    for start, end in stretches:
        step = bisect_right(free, start)
        while step < len(free) and dispatched[step] < end:
            begin, stop = max(start, dispatched[step]), min(end, free[step])
            if begin < stop:
                yield begin, stop
            step += 1
