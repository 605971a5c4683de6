"""Step numbers where a loop has none: by the files of checkpoints, else by the optimizer's own count (rule 8).

A save tells the identity of its files, a restore those that it read. A file that this run saved is known again by
size and time, and by its inode (it may have been renamed) or its path (the mount may have changed). Then the next
step is the one after the last that the save holds. Where the file is none of this run's, the optimizer's own count
is believed; where there is none either, the number is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from goodput_plugins.core.attribution.past import CONTEXT

if TYPE_CHECKING:
    from goodput_plugins.core.attribution.observed import Observed, Saved

COUNTED = "optimizer"
"""The name of a NUMBER that is an optimizer's own count."""


class File(NamedTuple):
    """The identity of a file, as an event's data tells it."""

    path: str
    inode: int
    size: int
    modified: int

    def is_same(self, other: File) -> bool:
        """Whether both are one file."""
        return self[2:] == other[2:] and (self.inode == other.inode or self.path == other.path)


def files_of(data: Any) -> list[File]:
    """The files that an event's data tells of."""
    told = data.get("files") if isinstance(data, dict) else None
    if not isinstance(told, list):
        return []
    return [File(*file) for file in told if isinstance(file, list) and list(map(type, file)) == [str, int, int, int]]


def steps_of(data: Any) -> int | None:
    """How many steps of its attempt a save holds, if its data tells."""
    steps = data.get("steps") if isinstance(data, dict) else None
    return steps if type(steps) is int and steps >= 0 else None


class Files:
    """The files that attempts of a generation saved, each with the last step in it.

    Args:
        known: files, and the last step in each.
    """

    def __init__(self, known: Iterable[tuple[File, int]] = ()) -> None:
        self._known: dict[tuple[int, int], list[tuple[File, int]]] = {}
        for file, position in known:
            self.add([file], position)

    def __iter__(self) -> Iterator[tuple[File, int]]:
        return chain.from_iterable(self._known.values())

    def add(self, files: Iterable[File], position: int) -> None:
        """These files hold the steps up to ``position``."""
        for file in files:
            self._known.setdefault(file[2:], []).append((file, position))

    def position(self, files: Iterable[File]) -> int | None:
        """The last step in the save that one of ``files`` belongs to."""
        for file in files:
            for known, position in reversed(self._known.get(file[2:], ())):
                if file.is_same(known):
                    return position
        return None


class Anchors(NamedTuple):
    """What files and counts tell of one attempt.

    Attributes:
        numbers: the number of the step at an index; those after it count on.
        resumes: ``(when, position)`` of the restores of files that an earlier attempt saved.
    """

    numbers: dict[int, int]
    resumes: list[tuple[int, int]]


def anchors(seen: Observed, files: Files, base: int | None) -> Anchors:
    """The numbers that files and counts tell.

    Args:
        seen: the attempt.
        files: what earlier attempts saved.
        base: the number of its first step as long as nothing else tells one.
    """
    told = Anchors({}, [])
    counts = dict(seen.counts)
    restored = [(bisect_right(seen.times, when), when, read) for when, read in seen.file_restores]
    for at in sorted({*counts, *(at for at, _, _ in restored)}):
        for when, read in [(when, read) for index, when, read in restored if index == at]:
            position = files.position(read)
            if position is not None:
                told.resumes.append((when, position))
            else:
                position = _position_here(seen, when, read, told.numbers, base)
            if position is not None:
                told.numbers[at] = position + 1
        if at in counts:
            told.numbers.setdefault(at, counts[at])
    if told.numbers and base is not None:
        told.numbers.setdefault(0, base)
    if 0 not in told.numbers:  # from where the process went back is unknown, and so is all before
        told.numbers.clear()
    return told


def _position_here(
    seen: Observed, when: int, read: list[File], numbers: dict[int, int], base: int | None
) -> int | None:
    """The last step in a save of this same attempt, for a process that goes back."""
    for saved in reversed(seen.saves):
        if saved.start < when and any(file.is_same(mine) for file in read for mine in saved.files):
            index = last_index(seen, saved)
            before = max((at for at in numbers if at <= index), default=None)
            if before is not None:
                return numbers[before] + index - before
            return None if base is None else base + index
    return None


def last_index(seen: Observed, saved: Saved) -> int:
    """Which step of its attempt, counted from 0, is the last that a save holds; -1: none."""
    if saved.steps is not None:
        told_before = seen.past.steps - CONTEXT if seen.past is not None else 0
        return min(saved.steps - told_before, len(seen.times)) - 1
    return bisect_right(seen.times, saved.start) - 1
