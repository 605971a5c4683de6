"""Waits for data out of the times at which they began and ended.

A wait is simple if its begin and end are next to each other, and nothing else happens in between but, at
most, that one step starts. Simple waits stay in columns. Of the others (a lost end, two processes telling
the same, an activity inside) the begins and ends become events, and the rules for events decide.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import le, lt

from goodput_plugins.core.columns import column
from goodput_plugins.core.events import Activity, Event, Kind

OVER = (Kind.FINISH, Kind.COMMIT)
"""What tells that something is over; at equal times it comes before the begin of a wait."""


def pair(
    begins: array[int], ends: array[int], steps: Sequence[int], others: Iterable[Event]
) -> tuple[array[int], array[int], list[Event]]:
    """Sort waits out; all times in order, each once, ns.

    Args:
        begins: when waits began.
        ends: when waits ended.
        steps: when steps began.
        others: what else happened.

    Returns:
        The begins and ends of simple waits, and the events of the others.
    """
    if _alternate(begins, ends):
        simple = bytearray(b"\1") * len(ends) + bytearray(len(begins) - len(ends))
        places: Sequence[int] = range(len(begins))
    else:
        simple, places = _lone_ends(begins, ends, steps)
    _leave_straddling(simple, begins, ends, places, steps)
    for other in others:
        at = bisect_right(begins, other.time) - 1
        if at >= 0 and simple[at] and other.time <= ends[places[at]]:
            simple[at] = other.time == begins[at] and other.kind in OVER
    if simple:
        simple[0] = 0  # it may be what its life begins with
    paired, odd_begins = _parted(begins, simple)
    paired_ends, odd_ends = _parted(ends, _used(places, simple, len(ends)))
    odd = [Event(Kind.BEGIN, time, activity=Activity.DATA) for time in odd_begins]
    odd += [Event(Kind.FINISH, time, activity=Activity.DATA) for time in odd_ends]
    return paired, paired_ends, odd


def _parted(times: array[int], chosen: bytearray) -> tuple[array[int], list[int]]:
    """The times that are chosen, and the others."""
    kept, others, at = column(), [], 0
    while (place := chosen.find(0, at)) >= 0:
        kept += times[at:place]
        others.append(times[place])
        at = place + 1
    return kept + times[at:], others


def _used(places: Sequence[int], simple: bytearray, count: int) -> bytearray:
    """For each end whether it is that of a simple wait."""
    if isinstance(places, range):
        return simple[:count]
    used = bytearray(count)
    for at in compress(places, simple):
        used[at] = 1
    return used


def _alternate(begins: Sequence[int], ends: Sequence[int]) -> bool:
    """Whether each begin has its end; the last one may be open."""
    is_one_each = len(begins) - len(ends) in (0, 1)
    return is_one_each and all(map(lt, begins, ends)) and all(map(le, ends, begins[1:]))


def _lone_ends(begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> tuple[bytearray, list[int]]:
    """For each begin whether exactly one end comes before the next begin, and the place of the first that does.

    After a begin without an end nothing is simple until a step starts.
    """
    simple = bytearray(len(begins))
    places: list[int] = []
    dangling_until = 0
    for at, begin in enumerate(begins):
        first = bisect_right(ends, begin, places[-1] if places else 0)
        places.append(first)
        stop = bisect_right(ends, begins[at + 1], first) if at + 1 < len(begins) else len(ends)
        if stop == first:
            step = bisect_left(steps, begin)
            dangling_until = steps[step] if step < len(steps) else begins[-1] + 1
        simple[at] = stop == first + 1 and begin > dangling_until
    return simple, places


def _leave_straddling(
    simple: bytearray, begins: Sequence[int], ends: Sequence[int], places: Sequence[int], steps: Sequence[int]
) -> None:
    """Waits in which more than one step starts are not simple."""
    first = bisect_left(steps, begins[0]) if begins else 0
    if len(begins) == len(ends) and all(map(lt, steps[first:], begins[1:])) and all(map(le, ends, steps[first + 1 :])):
        return  # steps and waits take turns
    step, count = 0, len(steps)
    for at, begin in enumerate(begins):
        while step < count and steps[step] < begin:
            step += 1
        if step + 1 < count and simple[at] and ends[places[at]] > steps[step + 1]:
            simple[at] = 0
