"""What one life of a process shows: its steps, waits, activities, checkpoints and how it ended.

This, with :mod:`~goodput_plugins.core.attribution.watch`, is the only place of attribution that looks at raw
events. Everything later works on :class:`~goodput_plugins.core.attribution.observed.Observed`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, compress, groupby
from operator import attrgetter, gt, lt

from goodput_plugins.core.attribution.observed import Interval, Observed, Saved
from goodput_plugins.core.attribution.past import Past
from goodput_plugins.core.attribution.watch import Watch
from goodput_plugins.core.columns import UNKNOWN, ascends, packed
from goodput_plugins.core.events import Activity, Event, Kind, in_order
from goodput_plugins.core.runlog import Life, Steps

FEW = 32
"""So many waits are put in their places one by one."""

_time = attrgetter("time")


def observe(life: Life, until: int | None = None, past: Past | None = None) -> Observed:
    """Sort out the events of a life, those after ``until`` left out; or of what follows its ``past``."""
    events = sorted_events(life.events)
    if until is not None:
        events = events[: bisect_right(events, until, key=lambda e: e.time)]
    watch = _watched(life, events, until, past)
    watch.close()
    _part_waits(watch.seen)
    if until is not None:
        watch.seen.last_sign = min(watch.seen.last_sign, until)
    return watch.seen


def gone_through(life: Life) -> Observed:
    """What a life's events show, for :attr:`Life.shown` of the same life with later events only.

    Nothing is open where they end, and two steps at least have begun since the last of them.
    """
    return _watched(life, sorted_events(life.events), None, None).seen


def _watched(life: Life, events: list[Event], until: int | None, past: Past | None) -> Watch:
    """The events of a life, gone through."""
    steps, events = _steps_of(life, events)
    seen = Observed(life, last_sign=life.start, past=past)
    if life.shown is not None:
        seen = life.shown.copy(life)
    if past is not None:
        seen.saves = [Saved(start, label, committed, position=at) for start, label, committed, at in past.saves]
        seen.waits_stall, seen.deferred, seen.noticed = past.waits_stall, past.deferred, past.noticed
    _take_steps(seen, steps, until)
    watch = Watch(seen, steps.thread or 0)
    for event in events:
        watch.note(event)
    return watch


def sorted_events(events: list[Event]) -> list[Event]:
    """Events in an order that does not depend on the order in which they arrived."""
    by_time = sorted(events, key=_time)
    times = list(map(_time, by_time))
    if all(map(lt, times, times[1:])):
        return by_time
    ordered = sorted(by_time, key=in_order)
    return [event for _, same in groupby(ordered, in_order) for event in _in_total_order(list(same))]


def _in_total_order(events: list[Event]) -> list[Event]:
    return sorted(events, key=_total_order) if len(events) > 1 else events


def _total_order(event: Event) -> tuple[object, ...]:
    return (
        *in_order(event),
        event.kind.value,
        event.thread,
        UNKNOWN if event.step is None else event.step,
        event.activity or "",
        event.name or "",
        UNKNOWN if event.duration is None else event.duration,
        str(event.data),
    )


def _steps_of(life: Life, events: list[Event]) -> tuple[Steps, list[Event]]:
    """The steps that were told in columns or, else, those among the events; and the other events."""
    if life.steps.told or not any(e.kind in (Kind.STEP, Kind.DEVICE, Kind.RUN) for e in events):
        return life.steps, events
    steps = Steps()
    return steps, [event for event in events if not steps.add(event)]


def _take_steps(seen: Observed, steps: Steps, until: int | None) -> None:
    """The columns in order of time, cut at ``until``, the device's times put beside their steps."""
    times, numbers, ordinals = steps.times, steps.numbers, steps.ordinals
    if not ascends(times):
        order = sorted(range(len(times)), key=times.__getitem__)
        times, numbers, ordinals = (array("q", [c[at] for at in order]) for c in (times, numbers, ordinals))
    if times and times[0] < seen.start:  # no step began before its process
        times = array("q", [max(time, seen.start) for time in times])
    starts, ends = steps.wait_starts, steps.wait_ends
    idle_starts, idle_ends = steps.idle_starts, steps.idle_ends
    done, done_ordinals, alive = steps.done, steps.done_ordinals, steps.alive
    if until is not None:
        count, waits = bisect_right(times, until), bisect_right(ends, until)
        if waits < len(starts) and starts[waits] <= until:
            seen.intervals.append(Interval(starts[waits], None, Activity.DATA, None))
        times, numbers, ordinals = times[:count], numbers[:count], ordinals[:count]
        starts, ends = starts[:waits], ends[:waits]
        known = [at for at, when in enumerate(done) if when <= until]
        done, done_ordinals = (array("q", [c[at] for at in known]) for c in (done, done_ordinals))
        alive = array("q", [when for when in alive if when <= until])
        known = [at for at, when in enumerate(idle_starts) if when <= until]
        idle_starts, idle_ends = (array("q", [c[at] for at in known]) for c in (idle_starts, idle_ends))
    seen.times, seen.numbers = times, numbers
    seen.wait_starts, seen.wait_ends = starts, ends
    seen.idle_starts, seen.idle_ends = idle_starts, idle_ends
    if done:
        seen.done = _by_step(ordinals, done_ordinals, done)
    signs = [max(told, default=0) for told in (done, alive, idle_starts)]
    seen.last_sign = max([seen.last_sign, *times[-1:], *signs])


def _by_step(ordinals: Sequence[int], done_ordinals: Sequence[int], done: Sequence[int]) -> array[int]:
    """When each step was done, by its place; UNKNOWN where that was not told."""
    if done_ordinals == ordinals and isinstance(done, array):
        return done
    by_ordinal = dict(zip(done_ordinals, done, strict=True))
    if len(by_ordinal) < len(done):  # some were told twice
        for ordinal, when in zip(done_ordinals, done, strict=True):
            by_ordinal[ordinal] = max(when, by_ordinal[ordinal])
    return array("q", [by_ordinal.get(ordinal, UNKNOWN) for ordinal in ordinals])


def _part_waits(seen: Observed) -> None:
    """Put the waits that touch no other activity, nor each other, into the columns."""
    starts, ends = seen.wait_starts, seen.wait_ends
    apart = not any(map(gt, ends, starts[1:]))
    seen.last_sign = max([seen.last_sign, *(ends[-1:] if apart else ends)])
    ended = [i for i in seen.intervals if i.activity is Activity.DATA and i.end is not None]
    if ended:
        seen.intervals = [i for i in seen.intervals if i.activity is not Activity.DATA or i.end is None]
        told = [(i.start, i.end) for i in ended if i.end is not None and i.start < i.end]
        starts, ends, apart = _with_more(starts, ends, told, apart=apart)
    mixed: set[int] = set()
    if not apart:
        mixed = {at for at, (end, start) in enumerate(zip(ends, starts[1:], strict=False)) if end > start}
        mixed |= {at + 1 for at in mixed}
    reach = list(accumulate(ends, max)) if mixed else ends
    for interval in seen.intervals:
        low = bisect_right(reach, interval.start)
        high = len(starts) if interval.end is None else bisect_left(starts, interval.end)
        mixed.update(range(low, high))
    if mixed:
        seen.intervals += [Interval(starts[at], ends[at], Activity.DATA, None) for at in sorted(mixed)]
        keep = bytearray(b"\1") * len(starts)
        for at in mixed:
            keep[at] = 0
        starts, ends = packed(list(compress(starts, keep))), packed(list(compress(ends, keep)))
    seen.wait_starts, seen.wait_ends = starts, ends


def _with_more(
    starts: array[int], ends: array[int], told: list[tuple[int, int]], *, apart: bool
) -> tuple[array[int], array[int], bool]:
    """The waits in the columns and those that were told, in order; and whether they lie apart."""
    if apart and len(told) <= FEW:
        all_starts, all_ends = starts[:], ends[:]
        for start, end in told:
            at = bisect_right(all_ends, start)
            if at < len(all_starts) and all_starts[at] < end:
                break
            all_starts.insert(at, start)
            all_ends.insert(at, end)
        else:
            return all_starts, all_ends, True
    # Sorted apart they may be paired anew, but at each moment as many waits are open as before.
    starts = packed(sorted([*starts, *(start for start, _ in told)]))
    ends = packed(sorted([*ends, *(end for _, end in told)]))
    return starts, ends, not any(map(gt, ends, starts[1:]))
