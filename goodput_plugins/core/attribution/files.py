"""Step numbers where a loop has none: by its checkpoints, else by the optimizer's own count (rule 8).

A save tells the identity of its files, a restore those that it read. A file that this run saved is known again by
size and time, and by its inode (it may have been renamed) or its path (the mount may have changed). Then the next
step is the one after the last that the save holds. Where the file is none of this run's, the optimizer's own count
is believed; where there is none either, the number is unknown.

Where checkpoints have labels instead, a process that goes back goes on behind the step that the label stands for,
unless the labels of its later saves say where it went on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from goodput_plugins.core.attribution.past import CONTEXT
from goodput_plugins.core.columns import UNKNOWN

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


def anchors(seen: Observed, files: Files, positions: Mapping[int, int], base: int | None) -> Anchors:
    """The numbers that checkpoints and counts tell.

    Args:
        seen: the attempt.
        files: what earlier attempts saved.
        positions: the last step in each checkpoint of theirs, by label.
        base: the number of its first step as long as nothing else tells one.
    """
    told = Anchors({}, [])
    counts = dict(seen.counts)
    restored = [(bisect_right(seen.times, when), when, read) for when, read in seen.file_restores]
    back = [(bisect_right(seen.times, when), when, label) for when, label in seen.restores]
    back = [known for known in back if 0 < known[0] < len(seen.times) and seen.numbers[known[0]] == UNKNOWN]
    for at in sorted({*counts, *(at for at, *_ in (*restored, *back))}):
        for when, read in [(when, read) for index, when, read in restored if index == at]:
            position = files.position(read)
            if position is not None:
                told.resumes.append((when, position))
            else:
                mine = [s for s in seen.saves if any(file.is_same(saved) for file in read for saved in s.files)]
                position = _position_here(seen, when, mine, told.numbers, base)
            if position is not None:
                told.numbers[at] = position + 1
        for when, label in [(when, label) for index, when, label in back if index == at]:
            number = _after_label(seen, when, at, label, positions, told.numbers, base)
            if number is not None:
                told.numbers[at] = number
        if at in counts:
            told.numbers.setdefault(at, counts[at])
    if told.numbers and base is not None:
        told.numbers.setdefault(0, base)
    if 0 not in told.numbers and (not len(seen.numbers) or seen.numbers[0] == UNKNOWN):
        told.numbers.clear()  # from where the process went back is unknown, and so is all before
    return told


def _position_here(
    seen: Observed, when: int, saves: Sequence[Saved], numbers: Mapping[int, int], base: int | None
) -> int | None:
    """The last step in the last of these saves of this same attempt before then, for a process that goes back."""
    saved = next((saved for saved in reversed(saves) if saved.start < when), None)
    return None if saved is None else _number_at(seen, last_index(seen, saved), numbers, base)


def _number_at(seen: Observed, index: int, numbers: Mapping[int, int], base: int | None) -> int | None:
    """The number of the step at an index, as far as it is known by now; -1: of the one before the first."""
    if index < 0:
        first = _number_at(seen, 0, numbers, base) if seen.times else base
        return None if first is None else first - 1
    before = max((at for at in numbers if at <= index), default=0)
    for at in range(index, before - 1, -1):
        if seen.numbers[at] != UNKNOWN:
            return seen.numbers[at] + index - at
    start = numbers.get(before, base)
    return None if start is None else start + index - before


def _after_label(
    seen: Observed,
    when: int,
    at: int,
    label: int,
    positions: Mapping[int, int],
    numbers: Mapping[int, int],
    base: int | None,
) -> int | None:
    """The number of the step at an index, before which the checkpoint of that label was restored."""
    labelled = [saved for saved in seen.saves if saved.label is not None]
    position = _position_here(seen, when, [s for s in labelled if s.label == label], numbers, base)
    if position is None:
        position = positions.get(label)
    if position is None:
        return None if labelled or positions else label + 1
    following = next((saved for saved in labelled if saved.start > when), None)
    if following is None or following.label is None:
        return position + 1
    return following.label - (label - position) - (last_index(seen, following) - at)


def last_index(seen: Observed, saved: Saved) -> int:
    """Which step of its attempt, counted from 0, is the last that a save holds; -1: none."""
    if saved.steps is not None:
        told_before = seen.past.steps - CONTEXT if seen.past is not None else 0
        return min(saved.steps - told_before, len(seen.times)) - 1
    return bisect_right(seen.times, saved.start) - 1
