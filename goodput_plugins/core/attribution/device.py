"""Rule 4, device time: where the host runs ahead, a step is where the device works on it.

A call that returned in 0.1 ms was a step of 220 ms. With the time at which each step's work was
done, a step begins when its call was made or when the device was done with the one before,
whichever is later; the device is busy with it from its dispatch to the end of its work; and only
while the device is idle does time belong to what the host was doing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from goodput_plugins.core.attribution.activities import Piece
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Source

HOST_GAP: Source = (Bucket.OTHER, "HOST_GAP")

CALL_GAP_NS = 50_000_000
"""Compiling that starts this soon after a call, or after the last part of it, belongs to that call."""


class DeviceSteps(NamedTuple):
    """Steps as the device saw them.

    Attributes:
        begins: when each step begins.
        busy: ``(from, to)`` for each step.
        last_done: when the last step's work was done; None if that was not sampled.
    """

    begins: list[int]
    busy: list[tuple[int, int]]
    last_done: int | None


def on_device(times: Sequence[int], done: Sequence[int | None], pieces: Sequence[Piece], until: int) -> DeviceSteps:
    """Steps by the device's clock. A step that was not sampled keeps the device busy to the next."""
    compiling = [p for p in pieces if p.source[0] is Bucket.PROGRAM_STARTUP]
    compiles_at = [p.start for p in compiling]
    begins: list[int] = []
    froms: list[int] = []
    tos: list[int | None] = []
    free_at = 0
    for at, called in enumerate(times):
        dispatched = called
        if compiling:
            limit = times[at + 1] if at + 1 < len(times) else until
            dispatched = _dispatched(called, limit, compiling, bisect_left(compiles_at, called))
        begins.append(min(max(called, free_at), until))
        froms.append(min(max(dispatched, free_at), until))
        finished = done[at]
        if finished is not None:
            free_at = min(max(finished, dispatched, free_at), until)
        tos.append(free_at if finished is not None else None)
    if tos and tos[-1] is None:
        tos[-1] = froms[-1]  # nothing bounds the last step but rule 6: leave what follows to the host
    ends = [*begins[1:], until]
    busy = [
        (begin, max(begin, min(end, until if to is None else to)))
        for begin, to, end in zip(froms, tos, ends, strict=True)
    ]
    return DeviceSteps(begins, busy, tos[-1] if done and done[-1] is not None else None)


def _dispatched(called: int, limit: int, compiling: Sequence[Piece], at: int) -> int:
    """When the call that may have compiled handed its work to the device."""
    moment = called
    while at < len(compiling) and compiling[at].start <= moment + CALL_GAP_NS and compiling[at].end <= limit:
        moment = compiling[at].end
        at += 1
    return moment


def idle_only(pieces: Sequence[Piece], steps: DeviceSteps, until: int) -> tuple[list[Piece], int]:
    """What remains of ``pieces`` while the device is idle, unexplained idle added as HOST_GAP.

    Idle between a step's work and the next step is a gap; after the last step it is left to
    rule 6, and time inside a call before its dispatch to the step itself.

    Returns:
        The pieces, and the time that pieces of DATA_LOADING_SYNC lost (it was overlapped), ns.
    """
    kept: list[Piece] = []
    overlapped = 0
    at = 0
    idle_from = 0
    ends = len(steps.busy)
    for step in range(ends + 1):
        idle_to = steps.busy[step][0] if step < ends else until
        covered_to = idle_from
        gap_to = steps.begins[step] if 0 < step < ends else 0
        while at < len(pieces) and pieces[at].start < idle_to:
            piece = pieces[at]
            begin = max(piece.start, idle_from)
            end = min(piece.end, idle_to)
            if begin < end:
                _gap(kept, covered_to, min(begin, gap_to))
                kept.append(Piece(begin, end, piece.source))
                covered_to = end
            if piece.end > idle_to:
                break
            at += 1
        _gap(kept, covered_to, gap_to)
        idle_from = steps.busy[step][1] if step < ends else until
    spent = sum(p.end - p.start for p in pieces if p.source[0] is Bucket.DATA_LOADING_SYNC)
    left = sum(p.end - p.start for p in kept if p.source[0] is Bucket.DATA_LOADING_SYNC)
    overlapped = spent - left
    return kept, overlapped


def _gap(kept: list[Piece], begin: int, end: int) -> None:
    if begin < end:
        kept.append(Piece(begin, end, HOST_GAP))
