"""What the benchmarks share: samples, their percentiles, and how busy the machine was."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence


def percentile(samples: Sequence[float], share: float) -> float:
    """The value below which a share of the samples lies, e.g. 0.5 or 0.999."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def upper_bound(differences: Sequence[float]) -> float:
    """Of the mean, with 95 % confidence (one-sided, normal)."""
    return statistics.mean(differences) + 1.645 * statistics.stdev(differences) / math.sqrt(len(differences))


def machine() -> str:
    """How many processors there are, and how many processes want one: figures of a busy machine are too high."""
    return f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}"


def verdict(figure: float, target: float) -> str:
    """A mark beside a figure."""
    return "ok" if figure <= target else "MISSED"
