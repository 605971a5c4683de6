"""Rule 4, device time: where the host runs ahead, a step is where the device works on it.

A call that returned in 0.1 ms was a step of 220 ms. With the time at which each step's work was
done, a step begins when its call was made or when the device was done with the one before,
whichever is later; the device is busy with it from its dispatch to the end of its work; and only
while the device is idle does time belong to what the host was doing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import ge

from goodput_plugins.core.attribution.activities import Piece
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.columns import UNKNOWN, ascends, packed

CALL_GAP_NS = 50_000_000
"""Compiling that starts this soon after a call, or after the last part of it, belongs to that call."""


@dataclass
class DeviceSteps:
    """Steps as the device saw them; columns, ns since the epoch.

    Attributes:
        begins: when each step begins.
        dispatched: when its work was handed to the device, which had nothing else to do by then; until laid out.
        free: when the device had nothing to do again.
        last_done: when the last step's work was done; None if that was not sampled.
        sampled: for each step whether its end was told; None if all were.
    """

    begins: Sequence[int]
    dispatched: Sequence[int]
    free: Sequence[int]
    last_done: int | None
    sampled: Sequence[bool] | None = None

    def pack(self) -> None:
        """Keep the columns in an eighth of the memory, once they are laid out."""
        self.begins, self.free = packed(self.begins), packed(self.free)
        self.dispatched = self.begins


def on_device(
    called: list[int], done: list[int], pieces: Sequence[Piece], until: int, *, deferred: bool = False
) -> DeviceSteps:
    """Steps by the device's clock. A step that was not sampled keeps the device busy to the next.

    Where work is ``deferred`` to the end of a call, all compiling in it comes before the work, and so does a save that
    was over before the work was done: it would have had to wait for it.

    """
    handed = _prepared(called, done, pieces) if deferred else _handed(called, pieces, until)
    free = later(done, called)
    has_unknown = free is not done and UNKNOWN in done
    if handed:
        free = list(free)
    for step, moment in handed.items():
        free[step] = max(done[step], moment)
    if not ascends(free):
        free = list(accumulate(free, max))
    following = called[1:]
    begins: Sequence[int] = later(following, free)
    begins = called if begins is following else [called[0], *begins]
    dispatched = list(begins) if handed else begins
    for step, moment in handed.items():
        dispatched[step] = max(moment, free[step - 1]) if step else moment
    last_done = min(free[-1], until)
    sampled = None
    if has_unknown:
        sampled = [when != UNKNOWN for when in done]
        nexts = [*begins[1:], dispatched[-1]]  # nothing bounds the last step but rule 6: the host has the rest
        free = [end if told else following for end, following, told in zip(free, nexts, sampled, strict=True)]
    if max(free[-1], dispatched[-1]) > until:
        begins, dispatched, free = ([min(moment, until) for moment in c] for c in (begins, dispatched, free))
    return DeviceSteps(begins, dispatched, free, last_done if done[-1] != UNKNOWN else None, sampled)


def later(times: list[int], others: list[int]) -> list[int]:
    """The later of each two; ``times`` itself where none of the others is."""
    if all(map(ge, times, others)):
        return times
    return [time if time > other else other for time, other in zip(times, others, strict=False)]


def _handed(called: Sequence[int], pieces: Sequence[Piece], until: int) -> dict[int, int]:
    """When a call handed its work over, if not at once: when what it had to compile was compiled.

    Where an evaluation still ran on the device, the work came to be done when that was over.
    """
    handed: dict[int, int] = {}
    compiling = [p for p in pieces if p.source[0] is Bucket.PROGRAM_STARTUP]
    for piece in pieces:
        if piece.source[0] is Bucket.CUSTOM:
            step = bisect_left(called, piece.end) - 1
            if step >= 0 and piece.start < called[step]:
                handed[step] = piece.end
    starts = [p.start for p in compiling]
    steps = {bisect_right(called, start) - 1 for start in starts}
    for step in steps - {-1}:
        limit = called[step + 1] if step + 1 < len(called) else until
        moment, at = handed.get(step, called[step]), bisect_left(starts, called[step])
        while at < len(compiling) and starts[at] <= moment + CALL_GAP_NS and compiling[at].end <= limit:
            moment = compiling[at].end
            at += 1
        handed[step] = moment
    return handed


def _prepared(called: Sequence[int], done: Sequence[int], pieces: Sequence[Piece]) -> dict[int, int]:
    """When a call that compiled or saved before it handed work over had done that."""
    handed: dict[int, int] = {}
    for piece in pieces:
        step, source = bisect_right(called, piece.start) - 1, piece.source[0]
        if step < 0 or source not in (Bucket.PROGRAM_STARTUP, Bucket.SAVE):
            continue
        if source is Bucket.PROGRAM_STARTUP if done[step] == UNKNOWN else piece.end <= done[step]:
            handed[step] = piece.end
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
