"""Splitting what each interval has left, by the ideal step time (rules 3, 5, 6, 7 and 10)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from goodput_plugins.core.attribution.generations import Attempt
from goodput_plugins.core.attribution.ledger import TEARDOWN, WAIT, Ledger
from goodput_plugins.core.attribution.past import Stuck, Unsettled
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.report import Source

STUCK_NS = 100_000_000
"""An excess below this is never a stuck step."""

BURSTS = 5
"""A host that blocks now and then does so at least that often."""

SHORTEST_HANG_NS = 1_000_000_000
"""A process that was alive for less than this before it died did not hang."""

HANG: Source = (Bucket.INFRASTRUCTURE_RECOVERY, "HANG")
RECOVERY: Source = (Bucket.INFRASTRUCTURE_RECOVERY, None)


def judge(ledger: Ledger, ideal: int | None, following: Attempt | None) -> None:
    """Decide what of each interval is progress, and what the rest is.

    Args:
        ledger: laid out; its lower half is filled in.
        ideal: the ideal step time, ns; None where there is none.
        following: the next attempt of the generation.
    """
    ledger.ideal = ideal
    ledger.rest = HANG if ledger.attempt.crashed else TEARDOWN
    ledger.own = ledger.nets
    if not ledger.begins:
        return
    _judge_waits(ledger)
    _judge_stuck(ledger)
    _judge_last(ledger, following)
    if ledger.attempt.seen.past is None:
        _judge_first(ledger)
    if ledger.rest == HANG and ledger.own[-1] - (ledger.last_owns or 0) < SHORTEST_HANG_NS:
        ledger.rest = RECOVERY


def _judge_waits(ledger: Ledger) -> None:
    """Rule 3: where nothing is known of the device, how much of each wait stalls."""
    ideal = ledger.ideal
    if ledger.device is not None or ledger.attempt.seen.waits_stall or ideal is None:
        return
    waits = list(ledger.waits)
    for piece in ledger.pieces:
        step = bisect_right(ledger.begins, piece.start) - 1
        if piece.source == WAIT and step >= 0:
            waits[step] += piece.end - piece.start
    if not any(waits):
        return
    past = ledger.attempt.seen.past
    if past is None or not past.waited:
        first_step, first_wait = _first_wait(ledger)
        if first_step >= 0:
            waits[first_step] -= first_wait
    if ledger.stride == 1 and not ledger.weights:
        room = [ideal - net if net < ideal else 0 for net in ledger.nets]
    else:
        room = [max(0, ledger.weight(step) * ideal - net) for step, net in enumerate(ledger.nets)]
    ledger.overlaps = [wait if wait < free else free for wait, free in zip(waits, room, strict=True)]
    ledger.own = [net + overlap for net, overlap in zip(ledger.nets, ledger.overlaps, strict=True)]


def _first_wait(ledger: Ledger) -> tuple[int, int]:
    """``(step, ns)`` of the first wait after the start; step -1 is the preparation."""
    waits = [(p.start, p.end) for p in ledger.pieces if p.source == WAIT][:1]
    if ledger.wait_starts:
        waits.append((ledger.wait_starts[0], ledger.wait_ends[0]))
    start, end = min(waits)
    return bisect_right(ledger.begins, start) - 1, end - start


def _judge_stuck(ledger: Ledger) -> None:
    """Rule 7: an interval whose excess is more than (n + 1) x ideal, and more than 0.1 s, was stuck.

    The first step is rule 5's and the last rule 6's, unless it is still open in a living process.
    Where that would take more than half of all step time the host is bursty; but not if it is a few
    stretches that do, or a single one: that was a hang.
    """
    ideal, own, stride = ledger.ideal, ledger.own, ledger.stride
    if ideal is None:
        return
    first, last = max(1, ledger.since), len(own) - 1
    usual = stride * ideal + max((stride + 1) * ideal, STUCK_NS)
    judged = own[first : last + 1] if ledger.attempt.exit == "running" else own[first:last]
    for step in [at for at, left in enumerate(judged, first) if left > usual] if max(judged, default=0) > usual else ():
        weight = ledger.weight(step)
        excess = own[step] - weight * ideal
        if excess > max((weight + 1) * ideal, STUCK_NS):
            ledger.slow[step] = excess
    if not ledger.slow and ledger.attempt.seen.past is None:
        return
    stuck = stuck_so_far(ledger, last)
    if stuck.often >= BURSTS and 2 * stuck.total > stuck.measured and 2 * stuck.largest < stuck.total:
        if ledger.attempt.seen.past is not None:
            raise Unsettled
        ledger.bursty = True
        ledger.slow.clear()
        ledger.ideal = stuck.measured // sum(ledger.weight(step) for step in range(1, last))


def stuck_so_far(ledger: Ledger, stop: int) -> Stuck:
    """What rule 7 took from the steps before ``stop``, those of the past included."""
    past = ledger.attempt.seen.past
    before = Stuck() if past is None else past.stuck
    taken = [excess for step, excess in ledger.slow.items() if ledger.since <= step < stop]
    return Stuck(
        before.often + len(taken),
        before.total + sum(taken),
        max([before.largest, *taken]),
        before.measured + sum(ledger.own[max(1, ledger.since) : stop]),
    )


def _judge_last(ledger: Ledger, following: Attempt | None) -> None:
    """Rule 6: no later start bounds the last step, so the ideal or the device does."""
    attempt, ideal, own = ledger.attempt, ledger.ideal, ledger.own
    last = len(own) - 1
    if attempt.exit == "running":
        return
    if ledger.device is not None and ledger.device.last_done is not None:
        ledger.last_owns = _until_done(ledger, ledger.device.last_done)
    elif ideal is not None:
        ledger.last_owns = min(own[last], ledger.stride * ideal)
    resumed_at = following.resumes_at(ledger.stride) if following is not None else None
    if ideal is None or attempt.numbers is None or following is None or resumed_at is None:
        return
    completed = resumed_at - ledger.numbers[last]
    if completed <= 0:
        return
    ledger.weights[last] = completed
    if ledger.device is not None and ledger.device.last_done is not None:
        return
    ledger.last_owns = min(own[last], completed * ideal)
    if attempt.seen.end is None and ledger.last_owns == own[last]:
        gap = following.seen.start - ledger.until
        ledger.beyond = max(0, min(gap, completed * ideal - own[last]))


def _judge_first(ledger: Ledger) -> None:
    """Rule 5: what the first step has above the ideal is startup; of a single step, before rule 6."""
    first = ledger.own[0]
    single = len(ledger.own) == 1
    if single and ledger.device is not None and ledger.device.last_done is not None:
        first = _until_done(ledger, ledger.device.last_done)
    ledger.excess = first if ledger.ideal is None else max(0, first - ledger.weight(0) * ledger.ideal)
    if single and ledger.attempt.exit != "running":
        ledger.last_owns = first - ledger.excess


def _until_done(ledger: Ledger, done: int) -> int:
    """What the last step has left up to the moment when the device was done with it."""
    begin, end = ledger.interval(len(ledger.begins) - 1)
    taken: Sequence[tuple[int, int, Source]] = [*ledger.pieces_between(begin, end), *ledger.waits_between(begin, end)]
    after = end - done - sum(max(0, stop - max(start, done)) for start, stop, _ in taken)
    return max(0, ledger.own[-1] - after)
