"""Bars: the stacked one of all buckets, and the small one of each.

Lengths are shared out by largest remainders, in integers, so a bar is exactly as long as it should
be and no part is longer than its share by more than the smallest unit there is: half a cell where
colours tell the parts apart, a cell where letters do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from goodput_plugins.cli.render.canvas import Canvas
from goodput_plugins.cli.render.palette import COLORS, LETTERS, style
from goodput_plugins.core.buckets import Bucket

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def apportion(parts: Sequence[int], total: int) -> list[int]:
    """``total`` units in proportion to ``parts``, whole ones, that sum to ``total`` (0 where all parts are 0).

    The method of largest remainders; earlier parts win ties.
    """
    whole = sum(parts)
    if not whole:
        return [0] * len(parts)
    shares = [part * total // whole for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda i: -(parts[i] * total % whole))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares


def stacked(parts: Sequence[tuple[Bucket, int]], canvas: Canvas) -> Text:
    """All parts in one bar of the canvas's width, in the given order."""
    units = apportion([ns for _, ns in parts], canvas.width * (2 if canvas.solid else 1))
    buckets = [bucket for (bucket, _), n in zip(parts, units, strict=True) for _ in range(n)]
    cells = list(zip(buckets[::2], buckets[1::2], strict=True)) if canvas.solid else [(b, b) for b in buckets]
    bar = Text(no_wrap=True)
    for (left, right), run in groupby(cells):
        length = len(list(run))
        if not canvas.solid:
            bar.append(LETTERS[left] * length, style(left, solid=False))
        elif left is right:
            bar.append("█" * length, COLORS[left])
        else:
            bar.append("▌", f"{COLORS[left]} on {COLORS[right]}")
    return bar


def small(part: int, whole: int, width: int) -> str:
    """A bar of ``part`` where ``whole`` is ``width`` cells, to an eighth of a cell; at least a sliver of something."""
    if not part or not whole:
        return ""
    full, rest = divmod(max(1, (part * width * 8 + whole // 2) // whole), 8)
    return "█" * full + _EIGHTHS[rest]


def swatch(bucket: Bucket, canvas: Canvas) -> Text:
    """The legend of a bucket: its colour, or its letter."""
    return Text("██" if canvas.solid else LETTERS[bucket], style(bucket, solid=canvas.solid))
