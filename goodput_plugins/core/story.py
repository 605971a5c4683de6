"""What happened, as far as findings tell of it: how often, and how long; stories add."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from goodput_plugins.core.attribution import Generation
from goodput_plugins.core.attribution.ledger import Ledger
from goodput_plugins.core.events import Activity

WORST = 3
"""How many stuck steps a finding names."""
MOST_STEPS = 4
"""Of how many steps it is kept that something was compiled again; findings name one less."""


@dataclass
class Story:
    """Counts and spans (ns) by what they are of.

    Attributes:
        often: how often something happened; of facts and compilations, by name.
        took: how long that took.
        worst: the stuck steps with the largest excess, ``(ns, number)``, worst first.
        compiled: what was compiled in the attempt that goes on.
        again: of each thing that was compiled again, the first steps at which.
    """

    often: Counter[tuple[str, ...]] = field(default_factory=Counter)
    took: Counter[tuple[str, ...]] = field(default_factory=Counter)
    worst: list[tuple[int, int]] = field(default_factory=list)
    compiled: set[str] = field(default_factory=set)
    again: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, generation: Generation, compiled: frozenset[str] = frozenset()) -> Story:
        """The story of a generation; ``compiled`` holds what was in its first attempt before it."""
        story = cls()
        for ledger in generation.ledgers:
            story._add_ledger(ledger, set(compiled) if ledger.since else set())
        story._count("lost", times=sum(block.begun for block in generation.taken) * generation.ledgers[0].stride)
        attempts = generation.attempts
        ended = sum(a.seen.foreign and a.exit == "completed" for a in attempts[:-1])
        story._count("disruption", times=generation.disruptions)
        story._count("ended, then resumed", times=ended)
        return story

    def __sub__(self, later: Story) -> Story:
        """What came before ``later``, which is the end of this; but for the worst, which that has to tell."""
        again = {name: [n for n in at if n not in later.again.get(name, ())] for name, at in self.again.items()}
        return Story(self.often - later.often, self.took - later.took, [], self.compiled, again)

    def __add__(self, other: Story) -> Story:
        worst = sorted([*self.worst, *other.worst], reverse=True)[:WORST]
        story = Story(self.often + other.often, self.took + other.took, worst, self.compiled | other.compiled)
        for again in (self.again, other.again):
            for name, steps in again.items():
                for step in steps:
                    story._add_step(name, step)
        return story

    def named(self, what: str) -> dict[str, tuple[int, int]]:
        """Of each name ``(how often, how long)``, dearest first."""
        found = {key[1]: (times, self.took[key]) for key, times in self.often.items() if key[0] == what}
        return dict(sorted(found.items(), key=lambda item: (-item[1][1], -item[1][0], item[0])))

    def _count(self, *key: str, times: int = 1, ns: int = 0) -> None:
        if times:
            self.often[key] += times
            self.took[key] += ns

    def _add_step(self, name: str, step: int) -> None:
        """It was compiled again at this step."""
        steps = self.again.setdefault(name, [])
        if len(steps) < MOST_STEPS and step not in steps:
            steps.append(step)

    def _add_ledger(self, ledger: Ledger, compiled: set[str]) -> None:
        seen, since = ledger.attempt.seen, ledger.since
        self._count("lost", times=sum(stop - start for start, stop in ledger.lost) * ledger.stride)
        self._count("step", times=len(ledger.begins) - since)
        stuck = [(ns, ledger.numbers[at]) for at, ns in ledger.slow.items() if at >= since]
        self._count("stuck", times=len(stuck))
        self.worst = sorted([*self.worst, *stuck], reverse=True)[:WORST]
        self._count("failed commit", times=seen.failed_commits)
        self._count("restore", times=len(seen.restores) + len(seen.file_restores))
        self._count("foreign wait", times=int(seen.foreign and seen.saw_waits))
        self._count("wait", times=int(seen.saw_waits))
        self._count("unseen device", times=int(seen.device_unseen and ledger.device is None))
        for what, name, duration, times in seen.facts:
            self._count(what, name, times=times, ns=duration)
        for name, start, ns in _compiled_again(ledger, compiled):
            self._count("recompiled", name, ns=ns)
            self._add_step(name, ledger.numbers[bisect_right(ledger.begins, start) - 1])
        self.compiled = compiled


def _compiled_again(ledger: Ledger, compiled: set[str]) -> Iterator[tuple[str, int, int]]:
    """What was compiled again after the attempt's first step, when, and for how long; fills ``compiled``."""
    stepping = ledger.begins[1] if len(ledger.begins) > 1 else ledger.until
    for interval in sorted(ledger.attempt.seen.intervals, key=lambda i: i.start):
        if interval.activity in (Activity.COMPILE, Activity.CACHE_LOAD) and interval.name and interval.end:
            if interval.name in compiled and interval.start >= stepping:
                yield interval.name, interval.start, interval.end - interval.start
            compiled.add(interval.name)
