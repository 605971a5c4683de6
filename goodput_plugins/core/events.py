"""What an event is: the one vocabulary that hooks, journals and attribution share.

A journal is a file of JSON lines. Its first line is an object, the header; every other line is one
event as an array, its fields in the order of :class:`Event` with trailing nulls left out::

    {"schema": "goodput-journal/1", "run": "digits-3f2a", "start": 1780000000000000000, ...}
    ["s",1780000012000000000,0,41]                           step 41 starts
    ["b",1780000013000000000,0,41,"save"]                    the training thread begins a save
    ["f",1780000013500000000,0,41,"save"]                    ... and finishes it
    ["x",1780000014000000000,0,null,"compile","jit(f)",2000000]    a compilation of 2 ms, told afterwards
    ["r",1780000015000000000,0,42,null,null,null,[30,...,-1]]      a run: step 42 starts, and more follow
    ["i",1780000015500000000,0,null,null,null,90000000]            the device had nothing to do for 90 ms
    ["a",1780000016000000000,0,52,null,null,null,[40,9,1000000000,0,0,0]]    9 more steps in the second after step 52

Times are integer nanoseconds since the epoch, durations integer nanoseconds.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple, TypeGuard

SCHEMA = "goodput-journal/1"


class Kind(StrEnum):
    """What happened. The value is the code that a journal line begins with."""

    START = "start"
    """The process began; ``time`` is when the operating system created it."""
    END = "end"
    """The attempt ended; ``name`` says how: ``completed``, ``user``, ``exception:ValueError``, ``signal:SIGTERM``."""
    STEP = "s"
    """A training step starts; ``step`` is its number or None; ``duration`` is unused."""
    RUN = "r"
    """A step starts, and others after it, in one line that grows; ``data`` holds whole numbers:
    the ordinal of the first step among the STEPs of this attempt; then, for each further step, three
    that are not negative: when it waited for data (ns after the step before began), how long, and
    when it began (likewise; 0, 0 where it did not wait); and in between, for each step that the
    device has finished, two negative ones: -1 - its ordinal, and -1 - when (ns after the run began).
    A lone -1 closes the line."""
    STEPS = "a"
    """Steps in sum: after the step that began at ``time`` a number of others began; ``data`` holds
    six whole numbers: the ordinal of that step among the STEPs of this attempt; how many others
    there were; when the last of them began (ns after the first); and, of the time up to there, how
    long the training thread waited for data while the device was busy, and else, and how long the
    device was idle (-1: not known)."""
    NUMBER = "n"
    """The number of the step that started last is ``step`` (a correction)."""
    DEVICE = "d"
    """The device finished the work of the ``step``-th STEP event of this attempt, counted from 0."""
    IDLE = "i"
    """Between two pieces of work, of one step or of two, the device had nothing to do for ``duration``."""
    BEGIN = "b"
    """``activity`` begins on ``thread``."""
    FINISH = "f"
    """``activity`` ends on ``thread``."""
    SPAN = "x"
    """``activity`` lasted ``duration`` from ``time``; told afterwards."""
    COMMIT = "commit"
    """The checkpoint ``step`` is durable; its background work lasted ``duration`` up to ``time``."""
    COMMIT_FAILED = "commit-failed"
    """The checkpoint ``step`` was lost; ``name`` is the error."""
    NOTICE = "notice"
    """Warning of a preemption or a SIGTERM; ``name`` says which."""
    HEARTBEAT = "h"
    """The process was alive."""
    PLUGIN = "plugin"
    """The plugin ``name`` is armed; ``data``: ``{"version": ..., "sees": [bucket, ...]}``."""
    RANK = "rank"
    """This is process ``step`` of ``data`` processes."""
    FACT = "fact"
    """Something a finding is made of: ``name`` says what (see :class:`Fact`), ``data`` of which function;
    it lasted ``duration``, ``step`` times (once, if that is None) taken together."""
    LOST = "lost"
    """Of what came before, ``step`` pieces could not be written; ``time`` is unused."""

    __hash__ = str.__hash__  # that of an enum is no C function


class Activity(StrEnum):
    """What a thread is busy with when it is not simply stepping."""

    IMPORT = "import"
    DEVICE_INIT = "device-init"
    PREPARATION = "prep"
    TRACE = "trace"
    LOWER = "lower"
    COMPILE = "compile"
    CACHE_LOAD = "cache-load"
    DATA = "data"
    SAVE = "save"
    RESTORE = "restore"
    DATA_REPLAY = "data-replay"
    CUSTOM = "custom"
    SLICE_DOWN = "slice-down"
    SCALE_UP = "scale-up"
    REINITIALIZATION = "reinit"

    __hash__ = str.__hash__


class Fact(StrEnum):
    """What a FACT tells."""

    CACHE_MISS = "cache-miss"
    """The program was not in the persistent cache."""
    CACHE_SAVED = "cache-saved"
    """It was there: compiling it had taken so much longer than loading it (no duration: that is not known)."""
    OTHER_WORK = "other-work"
    """Between two steps the device worked on this function, which is no step, for so long."""
    STEP_FUNCTION = "step-function"
    """One of several functions that take a loop's steps: so many more calls, on which the device worked for so long
    (0: not known)."""
    ARGUMENT = "argument"
    """The script passed this argument to Google's API: 1 for True, 0 for False as often."""
    FAULT = "fault"
    """This plugin of ours failed, and is off from here on."""
    TRACING = "tracing"
    """So many steps were traced lazily, which took the host so long."""


class Event(NamedTuple):
    """One thing that happened.

    Attributes:
        kind: what happened.
        time: when, in ns since the epoch; for a SPAN, when it began.
        thread: 0 is the main thread; others are numbered as they appear.
        step: a step number, a checkpoint's step, or (DEVICE) the ordinal of a step event.
        activity: for BEGIN, FINISH and SPAN.
        name: a function, a custom event's name, an error, a plugin.
        duration: in ns, for SPAN, IDLE and COMMIT.
        data: anything else, JSON.
    """

    kind: Kind
    time: int
    thread: int = 0
    step: int | None = None
    activity: Activity | None = None
    name: str | None = None
    duration: int | None = None
    data: Any = None


EXIT_CODE = "exit_code"
"""The key of the exit code in the data of an END."""

_RANK_AT_EQUAL_TIMES = {Kind.FINISH: 0, Kind.START: 1, Kind.STEP: 3, Kind.NUMBER: 4, Kind.END: 5}


def in_order(event: Event) -> tuple[int, int]:
    """The sort key of a log: by time; at equal times ends, job start, other starts, steps, job end."""
    return event.time, _RANK_AT_EQUAL_TIMES.get(event.kind, 2)


def encode(event: Event) -> bytes:
    """The journal line of an event, newline included."""
    fields = list(event)
    while fields[-1] is None:
        fields.pop()
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes | str) -> Event:
    """The event of a journal line.

    Raises:
        ValueError: the line is torn, or no event of ours.
    """
    return event_of(json.loads(line))


def event_of(fields: Any) -> Event:
    """The event of a journal line that was parsed already.

    Raises:
        ValueError: it is no event of ours.
    """
    try:
        kind, time, thread, step, activity, name, duration, data = list(fields) + _LEFT_OUT[len(fields) :]
        kind = _KINDS[kind]
        if activity is not None:
            activity = _ACTIVITIES[activity]
    except (TypeError, ValueError, LookupError):
        raise ValueError("not an event") from None
    if type(time) is not int or not 0 <= time <= LATEST or type(thread) is not int:
        raise ValueError("an event without a time")
    if type(step) not in _WHOLE or type(duration) not in _WHOLE:
        raise ValueError("an event with a step or duration that is no whole number")
    if kind is Kind.RUN and not is_run(data):
        raise ValueError("a run that is none")
    if kind is Kind.STEPS and not is_sum(data):
        raise ValueError("a sum of steps that is none")
    if type(name) not in _TEXT or not 0 <= (duration or 0) <= LARGEST:
        raise ValueError("an event with a name or duration that is none")
    return Event(kind, time, thread, step, activity, name, duration, data)


LATEST = 2**62
"""The last time that there can be (year 2116), ns since the epoch: what is added to it still fits into 64 bits."""

_KINDS = {kind.value: kind for kind in Kind}
_ACTIVITIES = {activity.value: activity for activity in Activity}
_LEFT_OUT: list[Any] = [None, None, *Event._field_defaults.values()]
"""What the fields are that a line leaves out; the first two it may not."""
_WHOLE = (int, type(None))
_TEXT = (str, type(None))


def is_number(step: int | None) -> TypeGuard[int]:
    """Whether this can be a step's number; -1 is before the first."""
    return step is not None and -1 <= step <= LARGEST_STEP


def is_run(data: Any) -> bool:
    """Whether these could be the numbers of a RUN: few enough, and none too large to add up."""
    return (
        isinstance(data, list)
        and bool(data)
        and {int}.issuperset(map(type, data))
        and data[0] >= 0
        and min(data) >= -LARGEST
        and max(data) <= LARGEST
    )


def is_sum(data: Any) -> bool:
    """Whether these could be the numbers of a STEPS."""
    if not (is_run(data) and len(data) == 6):
        return False
    _, count, duration, overlapped, stalled, idle = data
    if min(count, duration, overlapped, stalled, idle + 1) < 0:
        return False
    return bool(count <= MOST_STEPS and overlapped + stalled <= duration and idle <= duration)


LARGEST_STEP = 2**53
"""A step number beyond it is none."""
MOST_STEPS = 100_000
"""How many steps a STEPS may tell of."""
LARGEST = 2**61
"""The largest number that a RUN may hold (73 years in ns)."""
