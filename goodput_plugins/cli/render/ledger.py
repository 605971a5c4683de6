"""Where the time went, row by row: what the headline, the bar and the table all draw from.

Shares are whole tenths of a percent that sum to 100.0 %: the productive one is rounded as usual
(never up to 100 % while anything was lost, so that headline and table say the same as the JSON),
the others share what is left by largest remainders.
"""

from __future__ import annotations

from dataclasses import dataclass

from goodput_plugins.cli.render.bars import apportion
from goodput_plugins.core.buckets import BADPUT, Bucket
from goodput_plugins.core.report import Report


@dataclass(frozen=True)
class Row:
    """One bucket: its time in ns, and its share in tenths of a percent."""

    bucket: Bucket
    spent: int
    tenths: int


def rows(report: Report) -> list[Row]:
    """The productive row, then what was lost, most first; buckets without time have no row."""
    spent = report.breakdown
    lost = sorted(((b, spent[b]) for b in BADPUT if spent[b]), key=lambda row: -row[1])
    productive = _tenths(spent.goodput, spent.elapsed)
    shares = apportion([ns for _, ns in lost], (1_000 if spent.elapsed else 0) - productive)
    return [
        Row(Bucket.PRODUCTIVE, spent.goodput, productive),
        *(Row(bucket, ns, tenths) for (bucket, ns), tenths in zip(lost, shares, strict=True)),
    ]


def _tenths(part: int, whole: int) -> int:
    if not whole:
        return 0
    rounded = (part * 2_000 + whole) // (2 * whole)
    return min(rounded, 999) if part < whole else rounded
