"""Text made safe and made to fit."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size


def plain(text: str) -> str:
    """``text`` without what could command a terminal: control and format characters, lone surrogates."""
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") else c for c in text).strip()


def shorten(text: str, width: int) -> str:
    """``text``, made plain, in at most ``width`` cells; the middle is what goes."""
    text = plain(text)
    if cell_len(text) <= width:
        return text
    head = (width - 1) * 2 // 3
    tail = text[-width:]
    while cell_len(tail) > width - 1 - head:
        tail = tail[1:]
    return set_cell_size(text[:head], head).rstrip() + "…" + tail.lstrip()


def pack(items: Iterable[str], width: int) -> str:
    """``items`` with commas between, broken into lines of ``width`` cells only between items."""
    lines = [""]
    for item in items:
        if lines[-1] and cell_len(lines[-1]) + cell_len(item) + 3 > width:
            lines[-1] += ","
            lines.append(item)
        else:
            lines[-1] += f", {item}" if lines[-1] else item
    return "\n".join(lines)


def listing(items: list[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]])) if items else ""
