"""What one life of a process shows: its steps, activities, checkpoints and how it ended.

This is the only place of attribution that looks at raw events. Everything later works on
:class:`Observed`, whose lists are in order of time.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from goodput_plugins.core.events import Activity, Event, Kind, in_order
from goodput_plugins.core.runlog import Life


@dataclass(slots=True)
class Interval:
    """An activity of the training thread from ``start`` to ``end`` (None: its end never came)."""

    start: int
    end: int | None
    activity: Activity
    name: str | None


@dataclass(slots=True)
class Saved:
    """A checkpoint: when its save began and under which step it is stored."""

    start: int
    label: int | None
    committed: bool = False


@dataclass
class Observed:
    """One life, sorted out. Times in ns since the epoch.

    Attributes:
        times: when each step of the training thread started.
        numbers: the step numbers as recorded; None where not told.
        done: when the device finished each step; None where not sampled. Empty: nothing is known.
        corrections: ``(index, number)``: the step at that index has that number.
        intervals: activities of the training thread.
        elsewhere: activities of other threads, which own no time.
        restores: ``(when, label)`` of checkpoints that were restored.
        commits_took: background time of all commits, ns.
        end: the END event, if one was recorded.
        last_sign: when the process was last known to be alive.
        waits_stall: the device is the host, so that every wait for data stalls.
    """

    life: Life
    times: list[int] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)
    done: list[int | None] = field(default_factory=list)
    corrections: list[tuple[int, int]] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)
    elsewhere: list[Interval] = field(default_factory=list)
    saves: list[Saved] = field(default_factory=list)
    restores: list[tuple[int, int]] = field(default_factory=list)
    failed_commits: int = 0
    commits_took: int = 0
    noticed: bool = False
    plugins: dict[str, str] = field(default_factory=dict)
    sees: set[str] = field(default_factory=set)
    end: Event | None = None
    last_sign: int = 0
    waits_stall: bool = False

    @property
    def start(self) -> int:
        return self.life.start

    @property
    def foreign(self) -> bool:
        return self.life.foreign


def observe(life: Life, until: int | None = None) -> Observed:
    """Sort out the events of a life, those after ``until`` left out."""
    events = sorted_events(life.events)
    seen = Observed(life, last_sign=life.start)
    thread = next((e.thread for e in events if e.kind is Kind.STEP), 0)
    watch = _Watch(seen, thread)
    for event in events:
        if until is not None and event.time > until:
            break
        watch.note(event)
    watch.close()
    return seen


def sorted_events(events: list[Event]) -> list[Event]:
    """Events in an order that does not depend on the order in which they arrived."""
    if all(a.time < b.time for a, b in pairwise(events)):
        return events
    return sorted(events, key=_total_order)


def _total_order(event: Event) -> tuple[object, ...]:
    absent = -(2**63)
    return (
        *in_order(event),
        event.kind.value,
        event.thread,
        absent if event.step is None else event.step,
        event.activity or "",
        event.name or "",
        absent if event.duration is None else event.duration,
        str(event.data),
    )


class _Watch:
    """Goes through the events of a life once, keeping what is open."""

    def __init__(self, seen: Observed, thread: int) -> None:
        self.seen = seen
        self.thread = thread
        self.open: dict[int, list[Interval]] = {}
        self.zero_length: set[tuple[int, int, Activity | None, str | None]] = set()
        self.ordinals: dict[int, int] = {}
        self.ordinal = 0
        self.devices: list[tuple[int, int]] = []

    def note(self, event: Event) -> None:
        seen = self.seen
        kind = event.kind
        if kind is Kind.STEP:
            if event.thread == self.thread:
                self.ordinals[self.ordinal] = len(seen.times)
                seen.times.append(event.time)
                seen.numbers.append(event.step)
            self.ordinal += 1
        elif kind is Kind.DEVICE and event.step is not None:
            self.devices.append((event.step, event.time))
        elif kind is Kind.BEGIN:
            self.begin(event)
        elif kind is Kind.FINISH:
            self.finish(event)
        elif kind is Kind.SPAN and event.activity is not None:
            end = event.time + (event.duration or 0)
            self.add(Interval(event.time, end, event.activity, event.name), event.thread)
            self.checkpoint(event, event.time)
            seen.last_sign = max(seen.last_sign, end)
        else:
            self.mark(event)
        seen.last_sign = max(seen.last_sign, event.time)

    def begin(self, event: Event) -> None:
        key = (event.time, event.thread, event.activity, event.name)
        if event.activity is None or key in self.zero_length:
            return
        interval = Interval(event.time, None, event.activity, event.name)
        self.open.setdefault(event.thread, []).append(interval)
        self.add(interval, event.thread)
        if event.activity is Activity.SAVE:
            self.checkpoint(event, event.time)

    def finish(self, event: Event) -> None:
        opened = self.open.get(event.thread, [])
        for at in range(len(opened) - 1, -1, -1):
            interval = opened[at]
            if interval.activity is event.activity and event.name in (None, interval.name):
                interval.end = event.time
                for inner in opened[at + 1 :]:
                    inner.end = inner.end or -event.time  # its own end may still come; see close()
                del opened[at]
                break
        else:
            # At equal times ends come first, so the end of something that took no time precedes it.
            self.zero_length.add((event.time, event.thread, event.activity, event.name))
        if event.activity is Activity.RESTORE:
            self.checkpoint(event, event.time)

    def add(self, interval: Interval, thread: int) -> None:
        ours = thread == self.thread or (thread == 0 and not self.seen.times)
        (self.seen.intervals if ours else self.seen.elsewhere).append(interval)

    def checkpoint(self, event: Event, when: int) -> None:
        if event.activity is Activity.SAVE:
            self.seen.saves.append(Saved(when, event.step))
        elif event.activity is Activity.RESTORE and event.step is not None:
            self.seen.restores.append((when, event.step))

    def mark(self, event: Event) -> None:
        seen = self.seen
        match event.kind:
            case Kind.NUMBER if event.step is not None and seen.times:
                seen.corrections.append((len(seen.times) - 1, event.step))
            case Kind.COMMIT:
                seen.commits_took += event.duration or 0
                self.commit(event.step)
            case Kind.COMMIT_FAILED:
                seen.failed_commits += 1
            case Kind.NOTICE:
                seen.noticed = True
            case Kind.END:
                seen.end = event
            case Kind.PLUGIN:
                data = event.data if isinstance(event.data, dict) else {}
                seen.plugins[event.name or "?"] = str(data.get("version", "?"))
                seen.sees.update(map(str, data.get("sees", ())))
                seen.waits_stall |= data.get("device") == "host"

    def commit(self, label: int | None) -> None:
        """The newest save under that label is durable."""
        for saved in reversed(self.seen.saves):
            if saved.label == label:
                saved.committed = True
                return

    def close(self) -> None:
        seen = self.seen
        if seen.end is not None and seen.times and seen.end.time < seen.times[-1]:
            seen.end = None  # it went on, so that was not its end
        if self.devices:
            seen.done = [None] * len(seen.times)
            for ordinal, when in self.devices:
                at = self.ordinals.get(ordinal)
                if at is not None:
                    seen.done[at] = max(when, seen.done[at] or 0)
        for interval in seen.intervals:
            interval.end = _believed_end(interval, seen.times)


def _believed_end(interval: Interval, steps: list[int]) -> int | None:
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
