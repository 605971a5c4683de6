"""Time, read once and passed in.

One wall-clock anchor is taken per process; everything after it is the monotonic clock added to that
anchor. So no interval is negative, whatever an NTP daemon does to the wall clock meanwhile.
"""

from __future__ import annotations

import functools
import os
import time
import weakref
from collections.abc import Callable

from goodput_plugins.core.processes import told_of

Clock = Callable[[], int]
"""Returns nanoseconds since the epoch, never less than before."""

_parts: weakref.WeakKeyDictionary[Clock, tuple[int, Clock]] = weakref.WeakKeyDictionary()


def system_clock() -> Clock:
    """A clock anchored now.

    ``CLOCK_BOOTTIME`` is used where it exists: it goes on while the machine is suspended.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    read = time.monotonic_ns if boottime is None else functools.partial(time.clock_gettime_ns, boottime)
    anchor = time.time_ns() - read()

    def clock() -> int:
        return anchor + read()

    _parts[clock] = anchor, read
    return clock


def parts(clock: Clock) -> tuple[int, Clock]:
    """What a clock adds to what it reads, so that whoever is in a hurry may do so without a call."""
    return _parts.get(clock, (0, clock))


def process_start(now: int) -> int:
    """When the operating system created this process, in ns since the epoch.

    Linux tells it in clock ticks (10 ms) since boot, in field 22 of ``/proc/self/stat``. Elsewhere
    the answer is ``now``, the first moment that this package saw.
    """
    try:
        ticks = told_of("self").began
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return min(now, now - age)
