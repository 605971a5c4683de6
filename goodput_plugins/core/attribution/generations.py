"""Which lives belong together: attempts, resumes, generations, disruptions; and step numbers.

A process that took no step and ended well is no attempt. A start after a completion that is no
resume begins a new generation; a start after a disruption always continues its own. The same holds
after a stop by the user, except that starting from scratch is then a new generation too.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from goodput_plugins.core.attribution.files import File, Files, anchors, last_index
from goodput_plugins.core.attribution.observed import Observed, Saved
from goodput_plugins.core.attribution.past import Past, Unsettled
from goodput_plugins.core.columns import UNKNOWN, Column

ALIVE_NS = 30_000_000_000
"""A process whose last sign is younger is alive."""
FOREIGN_ALIVE_NS = 60_000_000_000
"""The same for a foreign log, at least; it knows no heartbeat (then 10 x n x ideal counts)."""


@dataclass
class Attempt:
    """One life within its generation.

    Attributes:
        numbers: a number for each step, or None for all where they are unknown.
        exit: how it ended: ``completed``, ``user``, ``exception:X``, ``signal:X``, ``lost``, ``running``.
        until: where its own time ends: recorded end, last sign of life, or the start of the next.
        saves_at: ``(save, position)``: the last step that each save contains.
        expected: the number that the first step should have; None where nothing tells.
        next_step: what a restore says comes first, while no step has shown it.
        resumed: it restored a checkpoint of this run.
    """

    seen: Observed
    numbers: Sequence[int] | None
    exit: str = "lost"
    until: int = 0
    saves_at: list[tuple[Saved, int]] = field(default_factory=list)
    expected: int | None = None
    next_step: int | None = None
    resumed: bool = False

    def resumes_at(self, stride: int) -> int | None:
        """The number of the first step that it runs: shown, or announced by a restore.

        Where every n-th step is logged the first that is logged may not be the first that is run.
        """
        if not self.numbers:
            return self.next_step
        first = self.numbers[0]
        unlogged = stride > 1 and self.expected is not None and 0 < first - self.expected < 2 * stride
        return self.expected if unlogged else first

    def begins_with(self, stride: int) -> tuple[int | None, int | None]:
        """The first step that it told of, and the first that it runs."""
        return self.numbers[0] if self.numbers else None, self.resumes_at(stride)

    @property
    def crashed(self) -> bool:
        """It ended without completing and without being stopped by its user."""
        return self.exit == "lost" or self.exit.startswith(("exception:", "signal:"))


@dataclass
class Group:
    """The attempts of one generation.

    Attributes:
        stride: every how many steps one is logged (n), the usual distance; 1 where it cannot be told.
        first: the number of its first step; None while no number is known.
        highest: the highest number of a step.
    """

    attempts: list[Attempt] = field(default_factory=list)
    stride: int = 1
    first: int | None = None
    highest: int = -1
    distances: Counter[int] = field(default_factory=Counter)

    def add(self, attempt: Attempt) -> None:
        """Take in the next attempt."""
        self.attempts.append(attempt)
        numbers = attempt.numbers
        if not numbers:
            return
        self.first = numbers[0] if self.first is None else self.first
        if isinstance(numbers, range):
            self.highest = max(self.highest, numbers[-1])
            self.distances[1] += len(numbers) - 1
        else:
            self.highest = max(self.highest, max(numbers))
            self.distances.update(b - a for a, b in pairwise(numbers) if b > a)
        self.stride = min(self.distances, key=lambda n: (-self.distances[n], n)) if self.distances else 1


def group(lives: Iterable[Observed], past: Past | None = None) -> list[Group]:
    """The generations of a run, oldest first; or those of what follows its ``past``."""
    groups: list[Group] = []
    positions: dict[int, int] = {}
    files = Files()
    if past is not None:
        if not past.is_empty:
            groups = [Group(first=past.first, highest=past.highest, distances=Counter(past.distances))]
        positions, files = dict(past.earlier_positions), Files(_files(past.earlier_files))
    for seen in sorted(lives, key=lambda s: (s.start, s.life.id)):
        if not seen.times and seen.end is not None and seen.end.name == "completed":
            continue
        attempt = _numbered(seen, positions, files, first=not groups)
        if not groups or (groups[-1].attempts and _begins_anew(attempt, groups[-1])):
            if past is not None and not groups and attempt.resumed:
                raise Unsettled  # it begins no generation
            groups.append(Group())
            if not attempt.resumed:
                attempt = _numbered(seen, {}, Files(), first=True)
        groups[-1].add(attempt)
        _place_saves(attempt, groups[-1].stride)
        if seen.past is not None:
            _check_settled(attempt, seen.past)
            positions |= seen.past.positions
            for file, at in _files(seen.past.files):
                files.add([file], at)
        positions |= {saved.label: at for saved, at in attempt.saves_at if saved.label is not None}
        for saved, at in attempt.saves_at:
            files.add(saved.files, at)
    if past is not None:
        _check_group(groups, past)
    return groups


def _files(told: Iterable[tuple[tuple[Any, ...], int]]) -> list[tuple[File, int]]:
    return [(File(*file), at) for file, at in told]


def _check_settled(attempt: Attempt, past: Past) -> None:
    """What is new leaves the numbers of the steps before as they are."""
    seen = attempt.seen
    shifts = any(seen.numbers[at] not in (UNKNOWN, number) for at, number in seen.corrections)
    device = any(when != UNKNOWN for when in seen.done)
    if (seen.waits_stall, seen.deferred, device) != (past.waits_stall, past.deferred, past.device):
        raise Unsettled
    early = any(s.steps is not None and s.steps < past.steps for s in seen.saves if s.position is None)
    if shifts or early or seen.restores or seen.file_restores or seen.counts:
        raise Unsettled


def _check_group(groups: Sequence[Group], past: Past) -> None:
    """What is new leaves the attempts before as they were judged."""
    first = groups[0].attempts[0] if groups and groups[0].attempts else None
    if first is None or first.seen.life.id != past.life:
        raise Unsettled
    if not past.steps and first.begins_with(past.stride) != past.begins_with:
        raise Unsettled
    if not past.is_empty and groups[0].stride != past.stride:
        raise Unsettled


def _begins_anew(attempt: Attempt, group: Group) -> bool:
    end = group.attempts[-1].seen.end
    how = end.name if end is not None else None
    if how not in ("completed", "user") or attempt.resumed:
        return False
    return not _goes_on(attempt, group)


def _goes_on(attempt: Attempt, group: Group) -> bool:
    """Whether its first step is above the generation's first and at most one (n) above its last."""
    if not attempt.numbers or group.first is None:
        return False
    return group.first < attempt.numbers[0] <= group.highest + group.stride


def _numbered(seen: Observed, positions: dict[int, int], files: Files, *, first: bool) -> Attempt:
    """An attempt with its step numbers, as far as they can be known (rule 8)."""
    restored = [
        (when, positions.get(label, label)) for when, label in seen.restores if label in positions or not positions
    ]
    start = _resumed_at(seen, restored)
    told = anchors(seen, files, positions, 0 if start is None and first else start)
    restored = sorted([*restored, *told.resumes])
    start = _resumed_at(seen, restored)
    expected = 0 if start is None and first else start
    numbers = seen.numbers
    for at, number in (told.numbers | ({} if start is None else {0: start})).items():
        if at < len(numbers) and numbers[at] == UNKNOWN:
            numbers = array("q", [*numbers[:at], number, *numbers[at + 1 :]])
    filled = _fill(numbers, seen.corrections, base=expected)
    if filled is None:
        filled = _by_saves(seen, positions)
    attempt = Attempt(seen, filled, expected=expected, resumed=bool(restored))
    if restored and not seen.times:
        attempt.next_step = restored[-1][1] + 1
    return attempt


def _resumed_at(seen: Observed, restored: Sequence[tuple[int, int]]) -> int | None:
    """The number of the first step, behind what was restored last before it; None if nothing was."""
    before = [position for when, position in restored if not seen.times or when <= seen.times[0]]
    return before[-1] + 1 if before else None


def _by_saves(seen: Observed, positions: dict[int, int]) -> Sequence[int] | None:
    """Numbers by what saves are called: earlier attempts show how far a label is from the last step in it."""
    distances = {label - position for label, position in positions.items()}
    labelled = [(last_index(seen, saved), saved.label) for saved in seen.saves if saved.label is not None]
    at, label = next(((at, label) for at, label in labelled if at >= 0), (0, None))
    if label is None or len(distances) != 1:
        return None
    base = label - distances.pop() - at
    return range(base, base + len(seen.times)) if base >= 0 else None


def _fill(told: Column, corrections: Sequence[tuple[int, int]], base: int | None) -> Sequence[int] | None:
    """Numbers for all steps: corrected, then counted on from and back to the known ones."""
    if not told:
        return range(0)
    if not corrections and isinstance(told, range):
        return told
    if not corrections and told[0] != UNKNOWN and told == array("q", range(told[0], told[0] + len(told))):
        return range(told[0], told[0] + len(told))
    numbers = list(told)
    since = 0
    for at, value in corrections:
        recorded = numbers[at]
        if recorded == UNKNOWN:
            numbers[at] = value
        elif recorded != value:
            numbers[since:] = [n if n == UNKNOWN else n + value - recorded for n in numbers[since:]]
        since = at + 1
    first = next((at for at, n in enumerate(numbers) if n != UNKNOWN), None)
    if first is None:
        return None if base is None else range(base, base + len(numbers))
    filled = [max(0, number) for number in range(numbers[first] - first, numbers[first])]  # none is below the first
    for n in numbers[first:]:
        filled.append(filled[-1] + 1 if n == UNKNOWN else n)
    return array("q", filled)


def _place_saves(attempt: Attempt, stride: int) -> None:
    """The last step inside each save: by its place in time, not by its label's convention.

    Where only every n-th step is logged, the label tells which step of the interval it was.
    """
    numbers = attempt.numbers
    for saved in attempt.seen.saves:
        if saved.position is not None:
            attempt.saves_at.append((saved, saved.position))
            continue
        at = last_index(attempt.seen, saved)
        if not numbers or (at < 0 and saved.steps is None):
            continue
        position = numbers[at] if at >= 0 else numbers[0] - 1
        if saved.label is not None and position < saved.label < position + stride:
            position = saved.label
        attempt.saves_at.append((saved, position))


def settle(group: Group, following: int | None, as_of: int | None, now: int | None, live_ns: int) -> None:
    """Decide how each attempt ended and until when its time is its own (rules 2 and 9).

    Args:
        group: the attempts; their ``exit`` and ``until`` are set.
        following: when the next generation started, None for the newest.
        as_of: the moment of the query, if one was named.
        now: the wall clock, where known.
        live_ns: how young the last sign of a living process is.
    """
    starts = [attempt.seen.start for attempt in group.attempts[1:]]
    for attempt, next_start in zip(group.attempts, [*starts, following], strict=True):
        seen = attempt.seen
        moment = now if as_of is None else as_of
        if seen.end is not None:
            attempt.exit, attempt.until = seen.end.name or "completed", seen.end.time
        elif next_start is None and moment is not None and _lives(seen, as_of, moment - live_ns):
            attempt.exit = "running"
            ends_at_last_entry = seen.foreign and as_of is None
            attempt.until = seen.last_sign if ends_at_last_entry else max(moment, seen.last_sign)
        else:
            attempt.exit, attempt.until = "lost", seen.last_sign
        if next_start is not None:
            attempt.until = min(attempt.until, next_start)
        attempt.until = max(attempt.until, seen.start)


def _lives(seen: Observed, as_of: int | None, since: int) -> bool:
    """Whether a process that told of no end was heard of since then; whether it is gone is known for now only."""
    return seen.last_sign >= since and not (seen.life.gone and as_of is None)


def is_disruption(attempt: Attempt, following: Attempt | None) -> bool:
    """Whether this attempt's end counts as a disruption (DESIGN section 1)."""
    if attempt.crashed:
        return True
    if following is None or attempt.exit == "user":
        return False
    if attempt.seen.foreign:
        return True  # a clean end cannot be told from one in a `finally`
    return attempt.seen.noticed
