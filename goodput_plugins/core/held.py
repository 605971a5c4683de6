"""Lines that wait for a journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

HELD = 100_000
"""How many lines are kept in memory."""


class Held:
    """Lines in the order in which they came; a full one takes only the ends of what it holds open."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._open = 0

    def keep(self, line: bytes) -> None:
        """Take in a line, if there is room."""
        kind = line[:4]
        if len(self._lines) >= HELD and not (kind == b'["f"' and self._open > 0) and kind != b'["pl':
            return
        self._open += (kind == b'["b"') - (kind == b'["f"')
        self._lines.append(line)

    def release(self, write: Callable[[bytes], None]) -> None:
        """Hand everything on."""
        try:
            while True:
                write(self._lines.popleft())
        except IndexError:
            pass

    def clear(self) -> None:
        """Forget everything."""
        self._lines.clear()
