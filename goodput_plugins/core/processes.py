"""Whether the process that wrote a journal is gone, where the machine that it ran on can be asked.

A journal's header says by ``process`` who wrote it: the system, and when that made the process. A reader in the same
system knows at once that a process was killed; everywhere else nothing is known but when it was last heard of.

>>> is_gone({"pid": os.getpid(), "process": identity()})
False
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any, NamedTuple


class Told(NamedTuple):
    """What Linux tells of a process.

    Attributes:
        state: one letter, as ``ps`` shows it.
        threads: how many it has.
        began: when it was made, in clock ticks since the machine was started.
    """

    state: bytes
    threads: int
    began: int


def told_of(pid: int | str) -> Told:
    """What ``/proc/PID/stat`` tells.

    Raises:
        OSError: there is none, or it is not shown to this user.
        ValueError, IndexError: it is of another form.
    """
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rsplit(b")", 1)[1].split()
    return Told(fields[0], int(fields[17]), int(fields[19]))


def identity() -> list[object] | None:
    """This process, as a header tells it; None where nothing can be told."""
    try:
        return [_system(os.getpid()), told_of("self").began]
    except (OSError, ValueError, IndexError):
        return None


def is_gone(header: Mapping[str, Any]) -> bool:
    """Whether the process that wrote this header has certainly ended; what it wrote was written before this call.

    A process that nobody has waited for (a zombie) is gone, and so is one whose number another one has by now.
    """
    pid, told = header.get("pid"), header.get("process")
    if type(pid) is not int or pid < 1 or type(told) is not list or len(told) != 2:
        return False
    try:
        if told[0] != _system(os.getpid()):
            return False
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):  # it is another user's; or there can be none of that number
        pass
    except OSError:
        return False
    try:
        now = told_of(pid)
    except (OSError, ValueError, IndexError):
        return False
    return now.began != told[1] or (now.state in (b"Z", b"X") and now.threads <= 1)


@functools.cache
def _system(process: int) -> str:
    """What this process shares with others only if they see each other by number, and since the machine was started.

    Raises:
        OSError: nothing tells it here.
    """
    if os.readlink("/proc/self") != str(process):
        raise OSError("/proc shows the processes of others")
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    places = (f"/proc/self/ns/{kind}" for kind in ("pid", "time"))
    return " ".join([boot, *(os.readlink(place) for place in places if os.path.lexists(place))])
