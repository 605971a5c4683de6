"""Columns of times in order, on a clock that is not set back or ahead.

In the order in which the entries were written, a higher step that began before a lower one shows that
the clock was set back: it and what was written later are moved on to where the clock had been. A step that
began long after its entry was written shows that the clock was set ahead: likewise, back.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import compress
from math import inf
from operator import le, lt, sub
from typing import NamedTuple

from goodput_plugins.core.columns import UNKNOWN

SKEW_NS = 1_000_000_000
"""Clocks of the hosts of one job differ by less."""


AHEAD_NS = 60_000_000_000
"""From here on a clock that runs before the log's own was set ahead."""


class Shift(NamedTuple):
    """From an entry on (the one written then, which told of that time), how far times are moved on, ns.

    Attributes:
        lost: by how much the clock stepped back just then, 0 if it was set ahead.
    """

    written: int
    time: int
    offset: int
    lost: int


def by_time(times: array[int], *others: array[int]) -> tuple[array[int], ...]:
    """Columns in the order of the first."""
    columns = (times, *others)
    if _ascends(times):
        return columns
    backwards = times[::-1]
    if _ascends(backwards):
        return backwards, *(column[::-1] for column in others)
    order = sorted(range(len(times)), key=times.__getitem__)
    return tuple(array("q", map(column.__getitem__, order)) for column in columns)


def shifts(times: array[int], numbers: array[int], written: array[int]) -> list[Shift]:
    """Where the clock stepped back, by what was told of steps; columns in order of time."""
    told_when = min(written, default=UNKNOWN) != UNKNOWN
    leads = (
        map(sub, times, written) if told_when else (t - w for t, w in zip(times, written, strict=True) if w != UNKNOWN)
    )
    ahead = max(leads, default=0) > AHEAD_NS
    if not ahead and (_ascends(numbers) or _ascends(written)):
        return []
    known = [number != UNKNOWN for number in numbers]
    told = sorted(zip(compress(written, known), compress(times, known), compress(numbers, known), strict=True))
    found: list[Shift] = []
    offset, newest, last, lead = 0, 0, UNKNOWN, UNKNOWN
    for when, time, number in told:
        moved, lost = time + offset, 0
        if number > last != UNKNOWN and moved < newest - SKEW_NS:
            lost, moved = newest - moved, newest
        elif UNKNOWN not in (when, lead) and moved - when > max(lead, 0) + AHEAD_NS:
            moved = when + max(lead, 0)
        if moved != time + offset:
            offset = moved - time
            found.append(Shift(when, time, offset, lost))
        newest, last = moved, number
        lead = lead if when == UNKNOWN else max(lead, moved - when)
    return found


def moved(times: array[int], written: Sequence[int], found: Sequence[Shift]) -> array[int]:
    """The times, moved on where the clock had stepped back."""
    if not found:
        return times
    return array("q", [moved_one(time, when, found) for time, when in zip(times, written, strict=True)])


def moved_one(time: int, written: int, found: Sequence[Shift]) -> int:
    """One time, moved on likewise."""
    place = bisect_right(found, (written, time, inf))
    return time + found[place - 1].offset if place else time


def each_once(times: array[int], numbers: array[int]) -> tuple[array[int], array[int]]:
    """Steps in order of time, each once."""
    if all(map(lt, times, times[1:])):
        return times, numbers
    steps = sorted(set(zip(times, numbers, strict=True)))
    return array("q", [time for time, _ in steps]), array("q", [number for _, number in steps])


def once(times: array[int]) -> array[int]:
    """Times in order, each once."""
    for ordered in (times, times[::-1]):
        if all(map(lt, ordered, ordered[1:])):
            return ordered
    return array("q", sorted(set(times)))


def _ascends(column: Sequence[int]) -> bool:
    return all(map(le, column, column[1:]))
