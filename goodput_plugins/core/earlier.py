"""What a report needs of the time before a moment, where that was attributed once and for all.

Its sums add to those of what followed; ``core.live`` keeps it, together with what attribution needs
(:class:`~goodput_plugins.core.attribution.past.Past`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from goodput_plugins.core.attribution.ledger import Beside
from goodput_plugins.core.report import AttemptSummary, Source
from goodput_plugins.core.story import Story

RECENT = 1_100
"""How many of the last step times the deviation is made of."""


@dataclass
class Told:
    """What a report tells of an attempt.

    Attributes:
        spent: its time by source, without progress that stood when it was put here.
    """

    start: int
    end: int
    exit: str
    exit_code: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    spent: Counter[Source] = field(default_factory=Counter)


class Ended(NamedTuple):
    """The attempts of an :class:`Earlier` as a report tells of them.

    Attributes:
        standing: how many blocks of their progress stand.
        spent: the time of each by source; of the last one, which goes on, up to the moment.
        summaries: of all but the last.
        total: the time of all but the last.
    """

    standing: int
    spent: list[Counter[Source]]
    summaries: tuple[AttemptSummary, ...]
    total: Counter[Source]


@dataclass
class Earlier:
    """A generation up to a moment; empty: nothing was put here. Times in ns since the epoch, spans in ns.

    Attributes:
        moment: up to which.
        start: of the generation.
        attempts: the last one goes on.
        between: the time between attempts, by source.
        overlapped: work beside the training thread of attempts that have ended, by source.
        beside: of the attempt that goes on.
        times: how many steps took so long.
        width: how finely step times of the attempt that goes on are kept.
        recent: the last step times.
        sees: buckets that could be seen.
        has_saves: a checkpoint was saved.
        ended: what the last report told of the attempts; it makes the next one cheap.
    """

    moment: int = 0
    start: int = 0
    attempts: list[Told] = field(default_factory=list)
    between: Counter[Source] = field(default_factory=Counter)
    overlapped: Counter[Source] = field(default_factory=Counter)
    beside: Beside = field(default_factory=Beside)
    times: Counter[int] = field(default_factory=Counter)
    width: int = 0
    recent: list[int] = field(default_factory=list)
    story: Story = field(default_factory=Story)
    sees: set[str] = field(default_factory=set)
    plugins: dict[str, str] = field(default_factory=dict)
    has_saves: bool = False
    ended: Ended | None = field(default=None, compare=False, repr=False)

    def without_time(self) -> Earlier:
        """The same for a window after the moment: none of the time counts."""
        attempts = [replace(told, spent=Counter()) for told in self.attempts]
        return replace(self, attempts=attempts, between=Counter(), overlapped=Counter(), beside=Beside(), ended=None)


def joined(earlier: list[Counter[Source]], later: list[Counter[Source]]) -> list[Counter[Source]]:
    """The time of each attempt, where the last of the earlier ones is the first of the later ones."""
    if not earlier:
        return later
    return [*earlier[:-1], earlier[-1] + later[0], *later[1:]]
