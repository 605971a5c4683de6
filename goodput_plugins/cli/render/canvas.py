"""What the report is drawn on: how wide, and whether colours alone can tell buckets apart.

A terminal of 256 colours or more gets solid bars. Anything less (16 colours, ``NO_COLOR``, a dumb
terminal, a pipe, a file) gets bars of letters, with the letters beside the buckets as their legend.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

WIDEST = 110
"""Lines longer than this are hard to follow from end to end."""

MARGIN = 2
"""Cells left free on either side."""


@dataclass(frozen=True)
class Canvas:
    """How to draw.

    Attributes:
        width: cells that may be used, margins taken off.
        solid: colours tell the buckets apart; else letters must.
        big: the headline may be drawn in large figures.
    """

    width: int
    solid: bool = False
    big: bool = False

    @classmethod
    def of(cls, console: Console) -> Canvas:
        """The canvas that a console offers."""
        return cls(
            width=min(console.width, WIDEST) - 2 * MARGIN,
            solid=console.color_system in ("256", "truecolor") and not console.no_color,
            big=console.is_terminal and not console.is_dumb_terminal and not console.options.ascii_only,
        )

    @property
    def narrow(self) -> bool:
        """Too narrow for everything beside each other."""
        return self.width < 70
