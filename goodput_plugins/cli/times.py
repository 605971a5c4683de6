"""A time T on the command line: ISO 8601, seconds since the epoch, or so long ago.

>>> at("1970-01-01T00:01:00", now=0), at("60.5", now=0), at("-1h30m", now=5400 * 10**9)
(60000000000, 60500000000, 0)
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

RELATIVE = re.compile(r"-(?:[0-9]+(?:\.[0-9]+)?(?:w|d|h|min|m|s))+")
"""A time before now, such as ``-90s``, ``-1h30m`` or ``-2d``."""

_PART = re.compile(r"([0-9.]+)(w|d|h|min|m|s)")
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "min": 60, "m": 60, "s": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = 253_402_300_800 * 1_000_000_000
"""The end of the year 9999, the last that has a date."""


def at(text: str, *, now: int) -> int:
    """The moment that ``text`` means, in ns since the epoch.

    Args:
        text: what the user gave.
        now: ns since the epoch.

    Raises:
        ValueError: it means none; the text is a sentence.
    """
    if text == "now":
        return now
    if RELATIVE.fullmatch(text):
        return now - sum(int(Decimal(n) * _SECONDS[unit] * 1_000_000_000) for n, unit in _PART.findall(text))
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", text):
        return _in_range(int(Decimal(text) * 1_000_000_000), text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; give ISO 8601 (2026-11-29T08:00, taken as UTC unless it says otherwise), "
            "seconds since the epoch, or so long ago (-90s, -1h30m, -2d)"
        ) from None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1_000


def _in_range(ns: int, text: str) -> int:
    if ns >= _LAST:
        raise ValueError(f"{text} seconds since the epoch is beyond the year 9999; were these milliseconds?")
    return ns
