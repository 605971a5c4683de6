"""What one life of a process shows: its steps, waits, activities, checkpoints and how it ended.

This is the only place of attribution that looks at raw events. Everything later works on
:class:`Observed`, whose columns and lists are in order of time.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, compress, groupby
from operator import attrgetter, gt, le, lt
from typing import Any

from goodput_plugins.core.attribution.files import COUNTED, File, files_of, steps_of
from goodput_plugins.core.attribution.past import Past
from goodput_plugins.core.events import Activity, Event, Kind, in_order
from goodput_plugins.core.runlog import UNKNOWN, Life, Steps, column

WAIT = "wait"
"""The name of a SAVE that only waited for one: it is no checkpoint."""

_time = attrgetter("time")


@dataclass(slots=True)
class Interval:
    """An activity from ``start`` to ``end`` (None: its end never came).

    Attributes:
        thread: whose it is.
        whole: it was told afterwards, as a whole.
    """

    start: int
    end: int | None
    activity: Activity
    name: str | None
    thread: int = 0
    whole: bool = False


@dataclass(slots=True)
class Saved:
    """A checkpoint: when its save began and under which step it is stored.

    Attributes:
        files: the files it is made of, where they are told.
        steps: how many steps of its attempt it holds, where that is told.
        position: the last step in it, where that was found out before.
    """

    start: int
    label: int | None
    committed: bool = False
    files: list[File] = field(default_factory=list)
    steps: int | None = None
    position: int | None = None


@dataclass
class Observed:
    """One life, sorted out. Times in ns since the epoch.

    Attributes:
        times: when each step of the training thread started.
        numbers: the step numbers as recorded, or UNKNOWN.
        done: when the device finished each step, or UNKNOWN. Empty: nothing is known.
        corrections: ``(index, number)``: the step at that index has that number.
        wait_starts: when the training thread began to wait for data, of the waits that ended.
        wait_ends: when they ended.
        intervals: all other activities of the training thread.
        elsewhere: activities of other threads, which own no time.
        restores: ``(when, label)`` of checkpoints that were restored.
        file_restores: ``(when, files)`` of checkpoints that were restored.
        counts: ``(index, number)``: what an optimizer counted, for the step at that index.
        commits: ``(begun, committed)``: the background work of each checkpoint that became durable.
        facts: ``(what, of which function, how long, how often)``: what findings are made of.
        end: the END event, if one was recorded.
        last_sign: when the process was last known to be alive.
        waits_stall: the device is the host, so that every wait for data stalls.
        device_unseen: it is not, and nothing will tell when it has done a step.
        deferred: a step's work is compiled and handed to the device at the end of its call.
        dangling: when activities of the training thread began whose end has not come.
        past: what was attributed before; None if this is all of the life.
    """

    life: Life
    times: array[int] = field(default_factory=column)
    numbers: array[int] = field(default_factory=column)
    done: array[int] = field(default_factory=column)
    corrections: list[tuple[int, int]] = field(default_factory=list)
    wait_starts: array[int] = field(default_factory=column)
    wait_ends: array[int] = field(default_factory=column)
    intervals: list[Interval] = field(default_factory=list)
    elsewhere: list[Interval] = field(default_factory=list)
    saves: list[Saved] = field(default_factory=list)
    restores: list[tuple[int, int]] = field(default_factory=list)
    file_restores: list[tuple[int, list[File]]] = field(default_factory=list)
    counts: list[tuple[int, int]] = field(default_factory=list)
    failed_commits: int = 0
    commits: list[tuple[int, int]] = field(default_factory=list)
    facts: list[tuple[str, str, int, int]] = field(default_factory=list)
    noticed: bool = False
    plugins: dict[str, str] = field(default_factory=dict)
    sees: set[str] = field(default_factory=set)
    end: Event | None = None
    last_sign: int = 0
    waits_stall: bool = False
    device_unseen: bool = False
    deferred: bool = False
    dangling: list[int] = field(default_factory=list)
    past: Past | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Another process that made it has the life from the one that asked for it."""
        return vars(self) | {"life": None}

    @property
    def start(self) -> int:
        return self.life.start

    @property
    def foreign(self) -> bool:
        return self.life.foreign

    def others(self, activity: Activity) -> list[tuple[int, int]]:
        """When other threads did that; an end that never came is the last sign of life."""
        return [
            (i.start, i.end if i.end is not None and i.end >= 0 else self.last_sign)
            for i in self.elsewhere
            if i.activity is activity
        ]

    @property
    def saw_waits(self) -> bool:
        """Whether it ever waited for data, as far as was told."""
        return bool(self.wait_starts) or any(i.activity is Activity.DATA for i in (*self.intervals, *self.elsewhere))


def observe(life: Life, until: int | None = None, past: Past | None = None) -> Observed:
    """Sort out the events of a life, those after ``until`` left out; or of what follows its ``past``."""
    events = sorted_events(life.events)
    if until is not None:
        events = events[: bisect_right(events, until, key=lambda e: e.time)]
    steps, events = _steps_of(life, events)
    seen = Observed(life, last_sign=life.start, past=past)
    if past is not None:
        seen.saves = [Saved(start, label, committed, position=at) for start, label, committed, at in past.saves]
        seen.waits_stall, seen.deferred, seen.noticed = past.waits_stall, past.deferred, past.noticed
    _take_steps(seen, steps, until)
    watch = _Watch(seen, steps.thread or 0)
    for event in events:
        watch.note(event)
    watch.close()
    if until is not None:
        seen.last_sign = min(seen.last_sign, until)
    return seen


def sorted_events(events: list[Event]) -> list[Event]:
    """Events in an order that does not depend on the order in which they arrived."""
    by_time = sorted(events, key=_time)
    times = list(map(_time, by_time))
    if all(map(lt, times, times[1:])):
        return by_time
    return [event for _, same in groupby(by_time, _time) for event in _in_total_order(list(same))]


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
    if not all(map(le, times, times[1:])):
        order = sorted(range(len(times)), key=times.__getitem__)
        times, numbers, ordinals = (array("q", [c[at] for at in order]) for c in (times, numbers, ordinals))
    if times and times[0] < seen.start:  # no step began before its process
        times = array("q", [max(time, seen.start) for time in times])
    starts, ends = steps.wait_starts, steps.wait_ends
    done, done_ordinals = steps.done, steps.done_ordinals
    if until is not None:
        count, waits = bisect_right(times, until), bisect_right(ends, until)
        if waits < len(starts) and starts[waits] <= until:
            seen.intervals.append(Interval(starts[waits], None, Activity.DATA, None))
        times, numbers, ordinals = times[:count], numbers[:count], ordinals[:count]
        starts, ends = starts[:waits], ends[:waits]
        known = [at for at, when in enumerate(done) if when <= until]
        done, done_ordinals = (array("q", [c[at] for at in known]) for c in (done, done_ordinals))
    seen.times, seen.numbers = times, numbers
    seen.wait_starts, seen.wait_ends = starts, ends
    if done:
        seen.done = _by_step(ordinals, done_ordinals, done)
    for told in (times, ends, done):
        if told:
            seen.last_sign = max(seen.last_sign, max(told))


def _by_step(ordinals: Sequence[int], done_ordinals: Sequence[int], done: Sequence[int]) -> array[int]:
    """When each step was done, by its place; UNKNOWN where that was not told."""
    if done_ordinals == ordinals and isinstance(done, array):
        return done
    by_ordinal = dict(zip(done_ordinals, done, strict=True))
    if len(by_ordinal) < len(done):  # some were told twice
        for ordinal, when in zip(done_ordinals, done, strict=True):
            by_ordinal[ordinal] = max(when, by_ordinal[ordinal])
    return array("q", [by_ordinal.get(ordinal, UNKNOWN) for ordinal in ordinals])


class _Watch:
    """Goes through the other events of a life once, keeping what is open."""

    def __init__(self, seen: Observed, thread: int) -> None:
        self.seen = seen
        self.thread = thread
        self.first_step = None if seen.past is None else 0
        if seen.times and seen.past is None:
            self.first_step = seen.times[0]
        self.open: dict[int, list[Interval]] = {}
        for start, end, activity, name, thread in seen.past.elsewhere if seen.past is not None else ():
            interval = Interval(start, end, Activity(activity), name, thread, whole=end is not None)
            seen.elsewhere.append(interval)
            if end is None:
                self.open.setdefault(thread, []).append(interval)
        self.zero_length: set[tuple[int, int, Activity | None, str | None]] = set()

    def note(self, event: Event) -> None:
        seen = self.seen
        last_sign = event.time
        if event.kind is Kind.BEGIN:
            self.begin(event)
        elif event.kind is Kind.FINISH:
            self.finish(event)
        elif event.kind is Kind.SPAN and event.activity is not None:
            last_sign += event.duration or 0
            self.add(Interval(event.time, last_sign, event.activity, event.name, event.thread, whole=True))
            self.checkpoint(event)
        else:
            self.mark(event)
        seen.last_sign = max(seen.last_sign, last_sign)

    def begin(self, event: Event) -> None:
        key = (event.time, event.thread, event.activity, event.name)
        if event.activity is None or key in self.zero_length:
            return
        interval = Interval(event.time, None, event.activity, event.name, event.thread)
        self.open.setdefault(event.thread, []).append(interval)
        self.add(interval)
        if event.activity is Activity.SAVE:
            self.checkpoint(event)

    def finish(self, event: Event) -> None:
        opened = self.open.get(event.thread, [])
        self.forget_lost(opened, event)
        for at in range(len(opened) - 1, -1, -1):
            interval = opened[at]
            if interval.activity is event.activity and event.name in (None, interval.name):
                interval.end = event.time
                for inner in opened[at + 1 :]:
                    inner.end = inner.end or -event.time  # its own end may still come; see _believed_end
                del opened[at]
                break
        else:
            # At equal times ends come first, so the end of something that took no time precedes it.
            self.zero_length.add((event.time, event.thread, event.activity, event.name))
        if event.activity is Activity.RESTORE:
            self.checkpoint(event)
        elif event.activity is Activity.SAVE and event.name != WAIT and event.step is not None and self.seen.saves:
            newest = self.seen.saves[-1]
            newest.label = event.step if newest.label is None else newest.label

    def forget_lost(self, opened: list[Interval], event: Event) -> None:
        """An end that comes after the second step start since its begin is none (rule 1)."""
        stepped = bisect_left(self.seen.times, event.time)
        limit = self.seen.times[stepped - 2] if stepped > 1 else -1
        while opened and opened[0].start <= limit and self.owns(opened[0].start, event.thread):
            del opened[0]

    def owns(self, start: int, thread: int) -> bool:
        """Whether what begins then on this thread is the training thread's."""
        early = thread == 0 and (self.first_step is None or start < self.first_step)
        return early or thread == self.thread

    def add(self, interval: Interval) -> None:
        (self.seen.intervals if self.owns(interval.start, interval.thread) else self.seen.elsewhere).append(interval)

    def checkpoint(self, event: Event) -> None:
        if event.activity is Activity.SAVE:
            if event.name != WAIT:
                self.seen.saves.append(Saved(event.time, event.step))
        elif event.activity is Activity.RESTORE:
            if event.step is not None:
                self.seen.restores.append((event.time, event.step))
            if files := files_of(event.data):
                self.seen.file_restores.append((event.time, files))

    def mark(self, event: Event) -> None:
        seen = self.seen
        match event.kind:
            case Kind.NUMBER if event.step is not None and (at := bisect_right(seen.times, event.time)):
                (seen.counts if event.name == COUNTED else seen.corrections).append((at - 1, event.step))
            case Kind.COMMIT:
                seen.commits.append((event.time - (event.duration or 0), event.time))
                self.commit(event)
            case Kind.COMMIT_FAILED:
                seen.failed_commits += 1
            case Kind.FACT:
                times = 1 if event.step is None else event.step
                seen.facts.append((event.name or "", str(event.data or "?"), event.duration or 0, times))
            case Kind.NOTICE:
                seen.noticed = True
            case Kind.END if seen.foreign or seen.end is None or _went_on(seen, seen.end):
                seen.end = event
            case Kind.PLUGIN:
                data = event.data if isinstance(event.data, dict) else {}
                seen.plugins[event.name or "?"] = str(data.get("version", "?"))
                seen.sees.update(map(str, data.get("sees", ())))
                seen.waits_stall |= data.get("device") == "host"
                seen.device_unseen |= data.get("device") == "unseen"
                seen.deferred |= data.get("device") == "deferred"

    def commit(self, event: Event) -> None:
        """The newest save under that label is durable; of those without one, the newest that is not yet."""
        for saved in reversed(self.seen.saves):
            if saved.label == event.step and not (saved.committed and event.step is None):
                saved.committed = True
                saved.files, saved.steps = files_of(event.data), steps_of(event.data)
                return

    def close(self) -> None:
        seen = self.seen
        if seen.end is not None and _went_on(seen, seen.end):
            seen.end = None
        seen.dangling = [
            interval.start
            for thread, opened in self.open.items()
            for interval in opened
            if self.owns(interval.start, thread)
        ]
        for interval in seen.intervals:
            interval.end = _believed_end(interval, seen.times)
        _part_waits(seen)


def _went_on(seen: Observed, end: Event) -> bool:
    """Whether steps show that this was not the end."""
    return bool(seen.times) and end.time < seen.times[-1]


def _believed_end(interval: Interval, steps: Sequence[int]) -> int | None:
    """Rule 1: a step's start ends what is open, unless its own end comes before the following step.

    A negative end marks one that was lost while the activity around it ended (at that time).
    """
    at = bisect_left(steps, interval.start)
    first = steps[at] if at < len(steps) else None
    following = steps[at + 1] if at + 1 < len(steps) else None
    own = interval.end if interval.end is not None and interval.end >= 0 else None
    if own is not None and (following is None or own <= following):
        return own
    around = -interval.end if own is None and interval.end is not None else None
    ends = [end for end in (first, around) if end is not None]
    return min(ends) if ends else None


def _part_waits(seen: Observed) -> None:
    """Put the waits that touch no other activity, nor each other, into the columns."""
    starts, ends = seen.wait_starts, seen.wait_ends
    ended = [i for i in seen.intervals if i.activity is Activity.DATA and i.end is not None]
    if ended:
        seen.intervals = [i for i in seen.intervals if i.activity is not Activity.DATA or i.end is None]
        told = [(i.start, i.end) for i in ended if i.end is not None and i.start < i.end]
        # Sorted apart they may be paired anew, but at each moment as many waits are open as before.
        starts = array("q", sorted([*starts, *(start for start, _ in told)]))
        ends = array("q", sorted([*ends, *(end for _, end in told)]))
    mixed: set[int] = set()
    if any(map(gt, ends, starts[1:])):
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
        starts, ends = array("q", compress(starts, keep)), array("q", compress(ends, keep))
    seen.wait_starts, seen.wait_ends = starts, ends
