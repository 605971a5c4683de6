"""When the thread that watches the device looks at it.

Each look takes the interpreter from the host's thread: of a step of 1 ms, four looks cost it 75 us. A long step is
looked at finely towards its end, seen late by under 1 % on average. Short ones that wait behind each other are
waited for together. Where the host waits for each step before it calls the next, that call finds the last step done,
which is as good as a look of the thread's, provided that the host does nothing else in between. Whether it does
is seen in one step of 16, looked at finely; as long as it does not, the thread only comes by now and then, and sees
the stalls that are longer than :data:`SELDOM`. The step before a stall is taken to be like those before it, if these
are alike.
"""

from __future__ import annotations

from collections import deque

SHORTEST_POLL = 200_000
LONGEST_POLL = 20_000_000
POLLS_PER_STEP = 64
"""Once a step may end, a look comes after this fraction of the time waited."""
SHORTEST_SAMPLE = 5_000_000
"""Of the steps in flight, those shorter are waited for together."""
RECENT = 8
"""A step is first looked at when it has run for most of the shortest of so many steps before it."""
SHORT_STEP = 20_000_000
"""Longer steps are always looked at finely."""
COMING_BY, SELDOM = 4_000_000, 10_000_000
"""How often the thread comes by where the host's calls tell when steps were done: if each is queued, and if not."""
REGULAR = 1.25
"""Steps are alike if the longest of the last ones took at most so many times the shortest."""
SMALL_GAP, LARGE_GAP = 0.02, 0.03
"""Of a step, what the host may do between its end and the next call, to be taken for nothing; and where that ends."""
MOST_GAP = 0.15
"""So much one step counts at most: in a gap of more than :data:`SELDOM` the thread comes by anyway."""
MEMORY = 16
"""Over so many steps that were looked at finely the gap is averaged."""
STEPS_PER_PROBE = 16


class Pace:
    """Of one loop's steps; times in ns."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._gap = MOST_GAP
        self._small_gap = SMALL_GAP
        self._looked_at: tuple[int, int, int] | None = None

    @property
    def shortest(self) -> int:
        """The shortest of the last steps; 0 if there was none."""
        return min(self._recent, default=0)

    @property
    def usual(self) -> int:
        """What each of the last steps took; 0 if they are not alike."""
        alike = len(self._recent) == RECENT and max(self._recent) <= REGULAR * self.shortest
        return self._median if alike else 0

    @property
    def _median(self) -> int:
        return sorted(self._recent)[len(self._recent) // 2]

    @property
    def host_tells(self) -> bool:
        """Whether the host's next call tells well enough when a step was done."""
        return self._gap < self._small_gap and self.shortest < SHORT_STEP

    def waits_together(self, count: int) -> bool:
        """Whether so many steps in flight, and another, are too short to be looked at one by one."""
        return bool(self._recent) and self._median * count < SHORTEST_SAMPLE

    def is_probe(self, ordinal: int) -> bool:
        """Whether this step is looked at finely in any case; one in :data:`STEPS_PER_PROBE`, in no regular order."""
        return ordinal * 2_654_435_761 % 2**32 < 2**32 // STEPS_PER_PROBE

    def called(self, ordinal: int, at: int) -> None:
        """A step was called then: had the host done something else since the one before was done?"""
        looked_at, self._looked_at = self._looked_at, None
        if looked_at is not None and looked_at[0] == ordinal - 1:
            self.followed(*looked_at[1:], at)

    def followed(self, called: int, done: int, following: int) -> None:
        """Of a step that was looked at finely: when it was called, when it was done, when the next was called."""
        gap = min(MOST_GAP, max(0, following - done) / max(1, following - called))
        self._gap += (gap - self._gap) / MEMORY
        if self._gap < SMALL_GAP:
            self._small_gap = LARGE_GAP
        elif self._gap > LARGE_GAP:
            self._small_gap = SMALL_GAP

    def looked_at(self, ordinal: int, called: int, done: int) -> None:
        """A step was looked at finely."""
        self._looked_at = ordinal, called, done

    def took(self, duration: int) -> None:
        """A step took the device so long."""
        self._recent.append(duration)

    def pause(self, now: int, since: int, earliest: int, count: int) -> float:
        """How long to wait, s, before the next look at ``count`` steps that run since then."""
        pause = max(earliest - now, (now - since) // POLLS_PER_STEP, SHORTEST_POLL * count)
        return min(pause, LONGEST_POLL) / 1e9

    def idle_pauses(self) -> tuple[float, float]:
        """How long to wait, s, until something is in flight: at first, and at most."""
        if self.host_tells:
            return COMING_BY / 1e9, COMING_BY / 1e9
        return SHORTEST_POLL / 1e9, min(LONGEST_POLL, max(SHORTEST_SAMPLE, self.shortest) // 4) / 1e9
