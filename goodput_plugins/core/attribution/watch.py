"""Going through the events of a life that are no steps: what is open when, what is saved and restored (rule 1)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from goodput_plugins.core.attribution.files import COUNTED, files_of, steps_of
from goodput_plugins.core.attribution.observed import WAIT, Interval, Observed, Saved
from goodput_plugins.core.events import Activity, Event, Kind


class Watch:
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
        if event.activity is None:
            return
        took_no_time = key in self.zero_length
        interval = Interval(event.time, event.time if took_no_time else None, event.activity, event.name, event.thread)
        if not took_no_time:
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
