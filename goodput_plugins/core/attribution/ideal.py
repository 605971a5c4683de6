"""The ideal step time: what a step takes when nothing disturbs it.

It is the mean of the step times that are not above ``median + 3 x MAD`` (median absolute deviation
from the median; robust against stalls, without a lower cut-off). Step times here are net: waits for
data and every other bucket are subtracted in full.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

JUDGED = 1_000
"""The ideal of an attempt is frozen after this many steps, so that history is never judged anew."""
ENOUGH = 20
"""With fewer steps an attempt's own ideal is not trusted."""
FEWEST = 3
"""With fewer steps in all there is no ideal."""


def ideal_of(step_times: Sequence[int]) -> int | None:
    """The ideal of these step times (ns); None if there are none."""
    if not step_times:
        return None
    ordered = sorted(step_times)
    middle = _middle(ordered)
    below = bisect_left(ordered, middle)
    spread = _middle(sorted([middle - t for t in ordered[:below]] + [t - middle for t in ordered[below:]]))
    usual = ordered[: bisect_right(ordered, middle + 3 * spread)]
    return round(sum(usual) / len(usual))


def _middle(ordered: Sequence[float]) -> float:
    """The median of what is in order."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def ideals(samples: Sequence[Sequence[int]], before: Sequence[int | None] = ()) -> list[int | None]:
    """The ideal by which each attempt is judged.

    Args:
        samples: for each attempt of a generation, the step times of its first steps (ns).
        before: the ideals that those of the first attempts make; these attempts are judged already.

    Returns:
        For each of the others its own ideal; with fewer than 20 steps that of the run so far, else of the
        first later attempt that has enough, else of all steps; None where there are fewer than 3.
    """
    own = [*before, *(ideal_of(s) if len(s) >= ENOUGH else None for s in samples[len(before) :])]
    return [_judging(samples, own, at) for at in range(len(before), len(samples))]


def _judging(samples: Sequence[Sequence[int]], own: Sequence[int | None], at: int) -> int | None:
    """The ideal by which one attempt is judged."""
    ideal = own[at]
    if ideal is None and sum(map(len, samples[: at + 1])) >= ENOUGH:
        ideal = ideal_of([t for s in samples[: at + 1] for t in s])
    if ideal is None:
        ideal = next((later for later in own[at + 1 :] if later is not None), None)
    if ideal is None and sum(map(len, samples)) >= FEWEST:
        ideal = ideal_of([t for s in samples for t in s])
    return ideal


class Histogram:
    """Step times of any number of steps, each kept to a quarter percent of the usual one."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: Counter[int] = Counter(counts or {})
        self._bins: list[tuple[int, int]] | None = None

    def add(self, values: Sequence[int], width: int | None = None) -> None:
        """Add the step times of an attempt, ns; with the width of its first ones, if these are not."""
        if not values:
            return
        width = width or width_of(values)
        self._bins = None
        for bin, count in Counter([value // width for value in values]).items():
            self.counts[bin * width + width // 2] += count

    def quantile(self, q: float) -> int | None:
        """The value below which a share ``q`` of all lies; None if there are none."""
        return _weighted_quantile(self._in_order(), q)

    def ideal(self) -> int | None:
        """:func:`ideal_of` of everything that was added, within one percent; None below 3 steps."""
        middle = self.quantile(0.5)
        if middle is None or self.counts.total() < FEWEST:
            return None
        bins = self._in_order()
        spread = _weighted_quantile(sorted((abs(value - middle), count) for value, count in bins), 0.5) or 0
        limit = middle + max(3 * spread, middle // 200)
        usual = [(value, count) for value, count in bins if value <= limit]
        return round(sum(value * count for value, count in usual) / sum(count for _, count in usual))

    def _in_order(self) -> list[tuple[int, int]]:
        if self._bins is None:
            self._bins = sorted(self.counts.items())
        return self._bins


def width_of(values: Sequence[int]) -> int:
    """How finely the step times of an attempt are kept, ns: a power of 2, so that attempts share bins."""
    return 1 << max(0, (round(_middle(sorted(values[:JUDGED]))) // 200).bit_length() - 1)


def _weighted_quantile(bins: Sequence[tuple[int, int]], q: float) -> int | None:
    total = sum(count for _, count in bins)
    passed = 0
    for value, count in bins:
        passed += count
        if passed >= q * total:
            return value
    return None


def deviation(step_times: Sequence[int], ideal: int | None) -> int | None:
    """``step_time_deviation`` (ns) from the last steps of a run, oldest first.

    |step - ideal|: the 90th percentile of the last 100 minus the median of the 1,000 before them;
    with fewer than 1,100 steps the percentile alone, with fewer than 100 the mean.
    """
    if ideal is None or not step_times:
        return None
    off = [t - ideal if t > ideal else ideal - t for t in step_times[-1_100:]]
    if len(off) < 100:
        return round(sum(off) / len(off))
    recent = sorted(off[-100:])[89]
    return recent if len(off) < 1_100 else round(recent - _middle(sorted(off[:1_000])))
