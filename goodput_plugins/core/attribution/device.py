"""Rule 4, device time: where the host runs ahead, a step is where the device works on it.

A call that returned in 0.1 ms was a step of 220 ms. With the time at which each step's work was
done, a step begins when its call was made or when the device was done with the one before,
whichever is later; the device is busy with it from its dispatch to the end of its work; and only
while the device is idle does time belong to what the host was doing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, compress
from operator import le, lt

from goodput_plugins.core.attribution.activities import Piece
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.runlog import UNKNOWN

CALL_GAP_NS = 50_000_000
"""Compiling that starts this soon after a call, or after the last part of it, belongs to that call."""


@dataclass
class DeviceSteps:
    """Steps as the device saw them; columns, ns since the epoch.

    Attributes:
        begins: when each step begins.
        dispatched: when its work was handed to the device, which had nothing else to do by then.
        free: when the device had nothing to do again.
        last_done: when the last step's work was done; None if that was not sampled.
        sampled: for each step whether its end was told; None if all were.
    """

    begins: Sequence[int]
    dispatched: Sequence[int]
    free: Sequence[int]
    last_done: int | None
    sampled: Sequence[bool] | None = None


def on_device(called: Sequence[int], done: Sequence[int], pieces: Sequence[Piece], until: int) -> DeviceSteps:
    """Steps by the device's clock. A step that was not sampled keeps the device busy to the next."""
    handed = _handed(called, pieces, until)
    free = list(accumulate(map(max, done, handed), max))  # UNKNOWN is below every time
    begins = [called[0], *map(max, called[1:], free)]
    dispatched = [handed[0], *map(max, handed[1:], free)]
    last_done = None
    if done[-1] == UNKNOWN:
        free[-1] = dispatched[-1]  # nothing bounds the last step but rule 6: leave what follows to the host
    else:
        last_done = min(free[-1], until)
    sampled = [when != UNKNOWN for when in done] if UNKNOWN in done else None
    if sampled is not None:
        free = [
            max(end, following) if when == UNKNOWN else end
            for end, following, when in zip(free, [*begins[1:], 0], done, strict=True)
        ]
    if max(free[-1], begins[-1], dispatched[-1]) > until:
        begins, dispatched, free = ([min(moment, until) for moment in c] for c in (begins, dispatched, free))
    return DeviceSteps(array("q", begins), array("q", dispatched), array("q", free), last_done, sampled)


def _handed(called: Sequence[int], pieces: Sequence[Piece], until: int) -> Sequence[int]:
    """When each call handed its work over: at once, or when what it had to compile was compiled."""
    compiling = [p for p in pieces if p.source[0] is Bucket.PROGRAM_STARTUP]
    if not compiling:
        return called
    starts = [p.start for p in compiling]
    handed = list(called)
    steps = {bisect_right(called, p.start) - 1 for p in compiling}
    for step in steps - {-1}:
        limit = called[step + 1] if step + 1 < len(called) else until
        moment, at = called[step], bisect_left(starts, called[step])
        while at < len(compiling) and starts[at] <= moment + CALL_GAP_NS and compiling[at].end <= limit:
            moment = compiling[at].end
            at += 1
        handed[step] = moment
    return handed


def idle_pieces(pieces: Sequence[Piece], steps: DeviceSteps, until: int) -> list[Piece]:
    """What remains of ``pieces`` while the device is idle: before the first, between and after steps."""
    kept: list[Piece] = []
    count = len(steps.begins)
    for piece in pieces:
        step = bisect_right(steps.free, piece.start) - 1  # the piece begins after that one was done
        while True:
            low = steps.free[step] if step >= 0 else 0
            high = steps.dispatched[step + 1] if step + 1 < count else until
            begin, end = max(piece.start, low), min(piece.end, high)
            if begin < end:
                kept.append(Piece(begin, end, piece.source))
            step += 1
            if step >= count or steps.free[step] >= piece.end:
                break
    return kept


def idle_waits(
    starts: Sequence[int], ends: Sequence[int], called: Sequence[int], steps: DeviceSteps
) -> tuple[Sequence[int], Sequence[int]]:
    """The parts of waits during which the device was idle.

    A wait lies between two calls, since one thread makes both. So what counts is when the device was
    done with what had been called before.
    """
    free, dispatched = steps.free, steps.dispatched
    early = bisect_left(starts, called[0])
    if _one_a_step(starts[early:], ends[early:], called):
        begins = [*starts[:early], *map(max, starts[early:], free)]
        stops: Sequence[int] = ends
    else:
        lows = [free[at - 1] if at else 0 for at in map(partial(bisect_left, free), ends)]
        nexts = [dispatched[at] if at < len(dispatched) else UNKNOWN for at in map(partial(bisect_left, free), ends)]
        begins = list(map(max, starts, lows))
        stops = [end if up == UNKNOWN else min(end, up) for end, up in zip(ends, nexts, strict=True)]
    idle = list(map(lt, begins, stops))
    return array("q", compress(begins, idle)), array("q", compress(stops, idle))


def _one_a_step(starts: Sequence[int], ends: Sequence[int], called: Sequence[int]) -> bool:
    """Whether each step but the last is followed by one wait, which ends before the next is called."""
    if not len(called) - 1 <= len(starts) <= len(called):
        return False
    return all(map(le, called, starts)) and all(map(le, ends, called[1:]))
