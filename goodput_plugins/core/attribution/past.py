"""What was attributed before and need not be looked at again, so that a live poll costs only what is new.

A generation's time up to a moment is kept as sums; only what follows is attributed. The moment is the
beginning of a step, or of an attempt, so that nothing lies across it. One thing can still change
what lies before: a rewind makes productive time wasted (rule 8). So progress is kept in
:class:`Block` s, which end where a checkpoint does, and where a rewind would begin.

``core.live`` makes and uses it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CONTEXT = 2
"""So many steps before the moment are told again: the first step after it is then one like others."""


class Unsettled(Exception):
    """What is new changes what was attributed before: all has to be attributed again."""


class Block(NamedTuple):
    """Progress of steps that stand, numbers ``[first, stop)``.

    Attributes:
        ns: how much progress.
        begun: how many intervals begin in it.
        attempt: the place of its attempt in the generation.
    """

    first: int
    stop: int
    ns: int
    begun: int
    attempt: int


class Stuck(NamedTuple):
    """Rule 7 so far: stuck steps, their excess, the largest one, and the time of all steps."""

    often: int = 0
    total: int = 0
    largest: int = 0
    measured: int = 0


@dataclass
class Past:
    """A generation up to the beginning of a step, or of an attempt. Times in ns since the epoch, spans in ns.

    Attributes:
        moment: when that step or attempt begins.
        called: when the step was called; or, again, when the attempt begins.
        life: the id of the attempt that goes on, or begins.
        steps: how many steps of that attempt came before; 0: it begins.
        begins_with: for an attempt that begins, the first step that it told of, and that it runs.
        saves: ``(start, label, committed, position)`` of its saves that may still be told of.
        elsewhere: ``(start, end, activity, name, thread)`` of what other threads were at; end None: not told yet.
        waited: it has waited for data.
        waits_stall, deferred, noticed, device: as :class:`Observed` has them; whether the device tells.
        stuck: rule 7 so far.
        positions, files: what its durable saves hold; to those of earlier attempts they are added when it has ended.

        earlier_positions, earlier_files: what saves of earlier attempts hold.
        first, highest, distances: as the group of attempts has them.
        samples: of each attempt, the first step times.
        own_ideals: of each attempt, the ideal that these make.
        ideal: by which the attempt that goes on is judged.
        blocks: progress that stands.
        limit: the highest preserved step, saves of the attempt that goes on aside.
        best: the highest step in those of them that are committed.
    """

    moment: int
    called: int
    life: str
    steps: int
    begins_with: tuple[int | None, int | None] | None = None
    saves: list[tuple[int, int | None, bool, int]] = field(default_factory=list)
    elsewhere: list[tuple[int, int | None, str, str | None, int]] = field(default_factory=list)
    waited: bool = False
    waits_stall: bool = False
    deferred: bool = False
    noticed: bool = False
    device: bool = False
    stuck: Stuck = field(default_factory=Stuck)
    positions: dict[int, int] = field(default_factory=dict)
    files: list[tuple[tuple[Any, ...], int]] = field(default_factory=list)

    earlier_positions: dict[int, int] = field(default_factory=dict)
    earlier_files: list[tuple[tuple[Any, ...], int]] = field(default_factory=list)
    first: int | None = None
    highest: int = -1
    stride: int = 1
    distances: Counter[int] = field(default_factory=Counter)
    samples: list[array[int]] = field(default_factory=list)
    own_ideals: list[int | None] = field(default_factory=list)
    ideal: int = 0
    blocks: list[Block] = field(default_factory=list)
    limit: int | None = None
    best: int | None = None

    @property
    def is_empty(self) -> bool:
        """The attempt that begins is the first of its generation."""
        return not self.steps and not self.own_ideals


def preserved_of(blocks: Sequence[Block], keeps: int | None, *, completed: bool) -> int:
    """The progress of these blocks in steps up to ``keeps``, or in all of a completed run.

    Raises:
        Unsettled: a block is preserved in part.
    """
    if completed:
        return sum(block.ns for block in blocks)
    if keeps is None:
        return 0
    inside = bisect_right(blocks, keeps, key=lambda block: block.stop - 1)  # numbers ascend
    if inside < len(blocks) and blocks[inside].first <= keeps:
        raise Unsettled
    return sum(block.ns for block in blocks[:inside])
