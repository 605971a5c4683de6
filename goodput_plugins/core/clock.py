"""Time, read once and passed in.

One wall-clock anchor is taken per process; everything after it is the monotonic clock added to that
anchor. So no interval is negative, whatever an NTP daemon does to the wall clock meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns nanoseconds since the epoch, never less than before."""


def system_clock() -> Clock:
    """A clock anchored now.

    ``CLOCK_BOOTTIME`` is used where it exists: it goes on while the machine is suspended.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    if boottime is None:
        anchor = time.time_ns() - time.monotonic_ns()
        return lambda: anchor + time.monotonic_ns()
    read = time.clock_gettime_ns
    anchor = time.time_ns() - read(boottime)
    return lambda: anchor + read(boottime)


def process_start(now: int) -> int:
    """When the operating system created this process, in ns since the epoch.

    Linux tells it in clock ticks (10 ms) since boot, in field 22 of ``/proc/self/stat``. Elsewhere
    the answer is ``now``, the first moment that this package saw.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return min(now, now - age)
