"""What the entries of one job tell, each thing once: steps and waits in columns, all else as events.

Steps and waits are by far the most of a log. So they are taken in shape by shape, many entries at a
time, and never become events, except for waits that are no simple pair of a begin and an end.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import compress, repeat
from operator import sub
from typing import Any

from goodput_plugins.core.columns import UNKNOWN, column
from goodput_plugins.core.compact import Attempts
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.exports import COLUMNS, Column
from goodput_plugins.core.payloads import LATEST, NotUnderstood, step_number, translate

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400 * 1_000_000_000

EXACT_FROM, EXACT_FOR = 1 << 30, 1_000
"""From the year 2004 on, differences of times below so many seconds can be scaled to ns without rounding."""


@dataclass
class Times:
    """A column of times, and when each was written (UNKNOWN: not told); ns since the epoch."""

    times: array[int] = field(default_factory=column)
    written: array[int] = field(default_factory=column)

    def extend(self, times: list[int], written: list[int]) -> None:
        self.times.fromlist(times)
        self.written.fromlist(written)

    def join(self, other: Times) -> None:
        self.times.extend(other.times)
        self.written.extend(other.written)


@dataclass
class Told:
    """What was told of one job.

    Attributes:
        steps: when steps began.
        numbers: their numbers.
        begins: when waits for data began.
        ends: when they ended.
        others: every other event, with the earliest time at which it was written.
        ours: what our own entries hold.
        skipped: why entries were not understood, and how many.
        copies: how many starts were copies of another process, of those that are no longer here.
        found: and of those that are, once a log was made.
        clock_is_sound: no clock was seen that was set.
        tells_when_written: of waits, too, it is kept when they were written; only a clock that was set needs that.
        follows: an attempt came before what is here.
    """

    steps: Times = field(default_factory=Times)
    numbers: array[int] = field(default_factory=column)
    begins: Times = field(default_factory=Times)
    ends: Times = field(default_factory=Times)
    others: dict[Event, int] = field(default_factory=dict)
    ours: Attempts = field(default_factory=Attempts)
    skipped: Counter[str] = field(default_factory=Counter)
    copies: int = 0
    found: int = 0
    clock_is_sound: bool = True
    tells_when_written: bool = True
    follows: bool = False

    def add(self, payloads: Sequence[Mapping[str, Any]], written: Sequence[datetime | None]) -> None:
        """Take in payloads of one shape: of equal keys."""
        keys = payloads[0].keys()
        key = next((key for key in COLUMNS if key in keys), None)
        times = [payload[key] for payload in payloads] if key is not None else []
        if key is not None and _are_times(times):
            numbers = [step_number(payload.get("step_count")) for payload in payloads] if key == COLUMNS[0] else []
            self.add_column(Column(key, None, times, numbers, list(written)))
        elif "schema" in keys:
            self.skipped["another version of our entries"] += sum(not self.ours.add(payload) for payload in payloads)
            self.skipped += Counter()
        else:
            self._translate(payloads, written)

    def add_column(self, column: Column) -> None:
        """Take in steps, or begins or ends of waits."""
        kind = {COLUMNS[0]: self.steps, COLUMNS[1]: self.begins, COLUMNS[2]: self.ends}[column.key]
        written = _all_nanoseconds_of(column.written) if kind is self.steps or self.tells_when_written else []
        kind.extend(nanoseconds(column.times), written)
        self.numbers.fromlist([UNKNOWN if number is None else number for number in column.numbers])

    def _translate(self, payloads: Sequence[Mapping[str, Any]], written: Sequence[datetime | None]) -> None:
        """Take in payloads one by one."""
        for payload, at in zip(payloads, map(_nanoseconds_of, written), strict=True):
            try:
                for event in translate(payload, at):
                    self._add_event(event, at)
            except NotUnderstood as reason:
                self.skipped[str(reason)] += 1

    def _add_event(self, event: Event, written: int) -> None:
        if event.kind is Kind.STEP:
            self.steps.extend([event.time], [written])
            self.numbers.append(UNKNOWN if event.step is None else event.step)
        elif event.activity is Activity.DATA and event.kind is Kind.BEGIN:
            self.begins.extend([event.time], [written])
        elif event.activity is Activity.DATA and event.kind is Kind.FINISH:
            self.ends.extend([event.time], [written])
        else:
            self.others[event] = min(written, self.others.get(event, written))

    def join(self, other: Told) -> None:
        """Take in all that another one holds."""
        self.steps.join(other.steps)
        self.numbers.extend(other.numbers)
        self.begins.join(other.begins)
        self.ends.join(other.ends)
        for event, written in other.others.items():
            self._add_event(event, written)
        self.ours.join(other.ours)
        self.skipped += other.skipped

    def leave_out(self, stretches: Sequence[tuple[int, int]]) -> None:
        """Forget what was told of these stretches of time."""
        for low, high in stretches:
            for times, *more in ((self.steps.times, self.steps.written, self.numbers), *self._waits()):
                kept = [not low <= time <= high for time in times]
                for values in (times, *more):
                    values[:] = array("q", compress(values, kept))
            for event in [event for event in self.others if low <= event.time <= high]:
                del self.others[event]

    @property
    def earliest(self) -> int:
        """The earliest time that was told; beyond all times if none was."""
        columns = (self.steps.times, self.begins.times, self.ends.times, [event.time for event in self.others])
        return min((min(times) for times in columns if times), default=2**63)

    def leave_context(self, moment: int, times: array[int], numbers: Sequence[int]) -> None:
        """Forget what was told of the time before a moment; but tell these steps before it."""
        written = dict(zip(self.steps.times, self.steps.written, strict=True))
        self.leave_out([(0, moment - 1)])
        self.steps.times = times + self.steps.times
        self.steps.written = array("q", [written.get(time, UNKNOWN) for time in times]) + self.steps.written
        self.numbers = array("q", [*numbers, *self.numbers])
        self.follows = True

    def _waits(self) -> tuple[tuple[array[int], array[int]], ...]:
        return (self.begins.times, self.begins.written), (self.ends.times, self.ends.written)


def _nanoseconds_of(written: datetime | None) -> int:
    """When an entry was written, ns since the epoch."""
    return UNKNOWN if written is None else (written - _EPOCH) // _MICROSECOND * 1000


def _all_nanoseconds_of(written: Sequence[datetime | None]) -> list[int]:
    try:
        spans = list(map(sub, written, repeat(written[0])))
    except TypeError:  # one is None
        return list(map(_nanoseconds_of, written))
    base = _nanoseconds_of(written[0])
    return [base + span.days * _DAY + span.seconds * 1_000_000_000 + span.microseconds * 1_000 for span in spans]


def _are_times(values: Sequence[Any]) -> bool:
    """Whether all are times that a clock can show, POSIX seconds."""
    are_numbers = {int, float}.issuperset(map(type, values))
    return are_numbers and min(values) >= 0 and max(values) < LATEST and math.isfinite(sum(values))


def nanoseconds(values: Sequence[float]) -> list[int]:
    """POSIX seconds as nanoseconds, whole seconds and fraction scaled apart."""
    ordered = sorted(values)  # takes less time than ``min`` and ``max``
    start = int(ordered[0])
    if start >= EXACT_FROM and ordered[-1] - start < EXACT_FOR:
        base = start * 1_000_000_000
        return [base + round((value - start) * 1e9) for value in values]
    whole = list(map(int, values))
    return [
        full * 1_000_000_000 + round((value - full) * 1_000_000_000) for value, full in zip(values, whole, strict=True)
    ]
