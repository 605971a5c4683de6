"""Work in two halves, one of them done by a forked process: a big report takes little more than half the time.

Only for a process that is ours alone and has one thread: a fork of any other might hang.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

BIG = 8_000_000
"""Fewer bytes are read in less than half a second."""


def worth_it(path: Path) -> bool:
    """Whether to read a file, or those of a directory, in two halves."""
    try:
        big = sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path])) > BIG
    except OSError:  # there is none, or one of them has gone
        return False
    return big and threading.active_count() == 1 and has_idle_processor()


def has_idle_processor() -> bool:
    """Whether one has nothing to do at this moment: those of a training job are not ours to take."""
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])  # this process included
        return running < len(os.sched_getaffinity(0))
    except (OSError, ValueError, IndexError, AttributeError):  # no Linux
        return False


def each(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What ``function`` makes of each item, in order; every second item goes to another process."""
    whole = list(items)
    mine, theirs = whole[::2], whole[1::2]
    if not theirs:
        return list(map(function, mine))
    try:
        child, answers = _forked(function, theirs)
    except OSError:  # there are too many processes, or open files
        return list(map(function, whole))
    try:
        done = list(map(function, mine))
        others: list[Result] | None = _received(answers, len(theirs))
    finally:
        answers.close()
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if others is None:  # whatever became of that process
        others = list(map(function, theirs))
    results = done + others
    results[::2], results[1::2] = done, others
    return results


def _forked(function: Callable[[Item], Result], items: list[Item]) -> tuple[int, BinaryIO]:
    """A process that does these items: its id, and where the results come once it has done them all."""
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if child:
        os.close(writing)
        return child, os.fdopen(reading, "rb")
    try:
        os.close(reading)
        results = [pickle.dumps(function(item), pickle.HIGHEST_PROTOCOL) for item in items]
        with os.fdopen(writing, "wb") as answers:
            answers.writelines(results)
    except BaseException:
        os._exit(1)
    os._exit(0)


def _received(answers: BinaryIO, count: int) -> list[Result] | None:
    """So many results; None if they do not all come."""
    try:
        return [pickle.load(answers) for _ in range(count)]
    except Exception:
        return None
