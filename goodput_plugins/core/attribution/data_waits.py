"""Where waits for data lie among the steps, and how long each step waited (rule 4)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import compress
from operator import ge, le, lt, sub
from typing import NamedTuple

from goodput_plugins.core.attribution.device import DeviceSteps


class Waits(NamedTuple):
    """Waits that count, in order, ns since the epoch, each within one interval.

    Attributes:
        starts: when each began.
        ends: when each ended.
        of_steps: of each step, how long it waited.
    """

    starts: Sequence[int]
    ends: Sequence[int]
    of_steps: Sequence[int]


def lay_waits(starts: Sequence[int], ends: Sequence[int], called: Sequence[int], device: DeviceSteps | None) -> Waits:
    """Waits, cut at the steps' beginnings; where the device tells, only the parts in which it was idle.

    Args:
        starts: when waits began, in order, ns since the epoch.
        ends: when they ended.
        called: when each step was called.
        device: the steps as the device saw them.
    """
    if not called:
        return Waits(starts, ends, ())
    told = starts, ends
    starts, ends = listed = list(starts), list(ends)
    early = bisect_left(starts, called[0])
    late = starts[early:]
    idle = device is not None and all(map(ge, late, device.free))
    usual = _one_a_step(late, ends[early:], called, follow=idle)
    if device is not None and not (usual and idle):
        starts, ends = _while_idle(starts, ends, early, device) if usual else idle_waits(starts, ends, device)
    if not usual or (early and ends[early - 1] > called[0]):
        return _cut(called if device is None else device.begins, *_with_time(starts, ends))
    of_steps = list(map(sub, ends[early:], starts[early:]))
    if not all(of_steps):
        starts, ends = _with_time(starts, ends)
    if starts is listed[0] and ends is listed[1]:
        starts, ends = told
    return Waits(starts, ends, of_steps + [0] * (len(called) - len(of_steps)))


def _one_a_step(starts: Sequence[int], ends: Sequence[int], called: Sequence[int], *, follow: bool) -> bool:
    """Whether each step but the last is followed by one wait, which ends before the next is called.

    ``follow``: it is known that they follow, since they began when the device was done with the step.
    """
    if not len(called) - 1 <= len(starts) <= len(called):
        return False
    return (follow or all(map(le, called, starts))) and all(map(le, ends, called[1:]))


def _while_idle(
    starts: Sequence[int], ends: Sequence[int], early: int, device: DeviceSteps
) -> tuple[list[int], Sequence[int]]:
    """:func:`idle_waits`, where one wait follows each step; no time is left of one that is overlapped."""
    told = zip(starts[early:], ends[early:], device.free, strict=False)
    begins = [start if start > idle else idle if idle < end else end for start, end, idle in told]
    return [*starts[:early], *begins], ends


def idle_waits(starts: Sequence[int], ends: Sequence[int], device: DeviceSteps) -> tuple[list[int], list[int]]:
    """The parts of waits during which the device was idle.

    A wait lies between two calls, since one thread makes both. So what counts is when the device was
    done with what had been called before.
    """
    free, dispatched = device.free, device.dispatched
    places = [bisect_left(free, end) for end in ends]
    begins = [max(start, free[at - 1] if at else 0) for start, at in zip(starts, places, strict=True)]
    stops = [min(end, dispatched[at]) if at < len(free) else end for end, at in zip(ends, places, strict=True)]
    return _with_time(begins, stops)


def _with_time(starts: Sequence[int], ends: Sequence[int]) -> tuple[list[int], list[int]]:
    """Those that take any time."""
    lasting = list(map(lt, starts, ends))
    return list(compress(starts, lasting)), list(compress(ends, lasting))


def _cut(begins: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Waits:
    """Waits, cut at the steps' beginnings."""
    of_steps = [0] * len(begins)
    step, last = -1, len(begins) - 1
    following = begins[0]
    straddling: list[int] = []
    for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
        while following <= start and step < last:
            step += 1
            following = begins[step + 1] if step < last else end
        if following < end and step < last:
            straddling.append(at)
        elif step >= 0:
            of_steps[step] += end - start
    if straddling:
        cuts = {at: begins[bisect_right(begins, starts[at]) : bisect_left(begins, ends[at])] for at in straddling}
        starts = sorted([*starts, *(cut for inner in cuts.values() for cut in inner)])
        ends = sorted([*ends, *(cut for inner in cuts.values() for cut in inner)])
        return _cut(begins, starts, ends)
    return Waits(starts, ends, of_steps)
