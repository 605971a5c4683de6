"""Large figures for the headline, three lines high, drawn with half blocks."""

from __future__ import annotations

_PIXELS = {
    "0": ("###", "# #", "# #", "# #", "###"),
    "1": ("## ", " # ", " # ", " # ", "###"),
    "2": ("###", "  #", "###", "#  ", "###"),
    "3": ("###", "  #", "###", "  #", "###"),
    "4": ("# #", "# #", "###", "  #", "  #"),
    "5": ("###", "#  ", "###", "  #", "###"),
    "6": ("###", "#  ", "###", "# #", "###"),
    "7": ("###", "  #", "  #", "  #", "  #"),
    "8": ("###", "# #", "###", "# #", "###"),
    "9": ("###", "# #", "###", "  #", "###"),
    ".": (" ", " ", " ", " ", "#"),
    "<": ("  #", " # ", "#  ", " # ", "  #"),
    "%": ("# #", "  #", " # ", "#  ", "# #"),
}
_BLOCKS = {"  ": " ", "# ": "▀", " #": "▄", "##": "█"}


def large(figures: str) -> str:
    """``figures`` (digits, point, ``<`` and ``%``) as three lines.

    Each character is two pixels, the upper and the lower; five rows of pixels are three lines.
    """
    rows = [" ".join(_PIXELS[figure][y] for figure in figures) for y in range(5)]
    rows.append(" " * len(rows[0]))
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return "\n".join("".join(_BLOCKS[u + low] for u, low in zip(upper, lower, strict=True)) for upper, lower in pairs)
