"""What goes wrong on the way to a destination, by what is to be done about it."""

from __future__ import annotations

from goodput_plugins.core.errors import GoodputError


class Unreached(GoodputError):
    """Nothing came of it, or it is not known whether something did; try the same again later.

    Attributes:
        slow: it will hardly be better soon (a missing permission).
        quota: there were too many requests.
    """

    def __init__(self, text: str, *, slow: bool = False, quota: bool = False) -> None:
        super().__init__(text)
        self.slow = slow
        self.quota = quota


class Unavailable(GoodputError):
    """This destination cannot work here; the text says why, and what to do."""
