"""Rule 1, the sweep: of the activities that are open at a moment, the innermost owns it.

Innermost is the one that began last. The result is pieces: stretches of time without overlap, in
order, each with the one source that owns it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from goodput_plugins.core.attribution.observed import Interval
from goodput_plugins.core.buckets import OWNER_OF, Bucket
from goodput_plugins.core.events import Activity
from goodput_plugins.core.report import Source


class Piece(NamedTuple):
    """A stretch of time, ns since the epoch, and who owns it."""

    start: int
    end: int
    source: Source


def source_of(activity: Activity, name: str | None) -> Source:
    """The bucket and sub-source that an activity gives its time to."""
    if activity is Activity.CUSTOM:
        return Bucket.CUSTOM, (name or "UNKNOWN").upper()
    return OWNER_OF[activity]


def sweep(intervals: Iterable[Interval], start: int, end: int) -> list[Piece]:
    """The pieces of ``intervals`` between ``start`` and ``end``; an open one lasts to ``end``."""
    clipped = []
    for interval in intervals:
        begins = max(interval.start, start)
        ends = end if interval.end is None else min(interval.end, end)
        if begins < ends:
            clipped.append((interval.start, begins, ends, source_of(interval.activity, interval.name)))
    clipped.sort(key=lambda c: (c[0], -c[2]))
    pieces: list[Piece] = []
    for cluster in _clusters(clipped):
        if len(cluster) == 1:
            pieces.append(Piece(*cluster[0][1:]))
        else:
            pieces.extend(_innermost(cluster))
    return pieces


_Clipped = tuple[int, int, int, Source]


def _clusters(clipped: list[_Clipped]) -> Iterator[list[_Clipped]]:
    """Groups of intervals that touch no other group."""
    cluster: list[_Clipped] = []
    reach = 0
    for item in clipped:
        if cluster and item[1] >= reach:
            yield cluster
            cluster = []
        cluster.append(item)
        reach = max(reach, item[2]) if len(cluster) > 1 else item[2]
    if cluster:
        yield cluster


def _innermost(cluster: list[_Clipped]) -> Iterator[Piece]:
    """Cut a cluster so that each moment belongs to the interval that began last."""
    moments = sorted({moment for item in cluster for moment in item[1:3]})
    upcoming = iter(cluster)
    item = next(upcoming, None)
    active: list[_Clipped] = []
    pending: Piece | None = None
    for begins, ends in pairwise(moments):
        while item is not None and item[1] <= begins:
            active.append(item)
            item = next(upcoming, None)
        while active and active[-1][2] <= begins:
            active.pop()
        owner = next((a for a in reversed(active) if a[2] > begins), None)
        if owner is None:
            continue
        if pending is not None and pending.end == begins and pending.source == owner[3]:
            pending = pending._replace(end=ends)
            continue
        if pending is not None:
            yield pending
        pending = Piece(begins, ends, owner[3])
    if pending is not None:
        yield pending
