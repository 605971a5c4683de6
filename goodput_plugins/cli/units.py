"""Numbers as people say them: durations, moments, shares, counts.

>>> duration(12_400_000_000), duration(7_384_000_000_000), duration(350_000_000)
('12.4 s', '2 h 03 min', '350 ms')
>>> share(793, 1), share(0, 1), share(0, 0)
('79.3 %', '< 0.1 %', '0.0 %')
"""

from __future__ import annotations

from datetime import UTC, datetime

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

_SMALL = (("µs", 1_000), ("ms", 1_000_000), ("s", SECOND))


def duration(ns: int) -> str:
    """A duration: three digits below a minute, two units from there on.

    Args:
        ns: nanoseconds, not negative.
    """
    if ns == 0:
        return "0 s"
    if ns < 1_000:
        return f"{ns} ns"
    if ns < 59_950_000_000:
        return _three_digits(ns)
    seconds, minutes, hours = (_rounded(ns, unit) for unit in (SECOND, MINUTE, HOUR))
    if seconds < 3_600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    if minutes < 1_440:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


def _rounded(ns: int, unit: int) -> int:
    return (ns + unit // 2) // unit


def _three_digits(ns: int) -> str:
    unit, size = next((unit, size) for unit, size in _SMALL if ns < 999.5 * size)
    value = ns / size
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def share(tenths: int, ns: int) -> str:
    """A share of ``tenths`` of a percent; ``ns`` tells a very small share from none."""
    return "< 0.1 %" if tenths == 0 and ns else f"{tenths / 10:.1f} %"


def count(number: int, noun: str) -> str:
    """``1 attempt``, ``2 attempts``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def clock(ns: int, *, exact: bool) -> str:
    """The time of day in UTC, to the minute or to the second."""
    return f"{_moment(ns):%H:%M:%S}" if exact else f"{_moment(ns):%H:%M}"


def day(ns: int, *, year: bool = False) -> str:
    """The day in UTC."""
    moment = _moment(ns)
    return f"{moment.day} {moment:%b %Y}" if year else f"{moment.day} {moment:%b}"


def span(start: int, end: int) -> str:
    """From one moment to another, in UTC; to the second where they are close."""
    exact = end - start < 10 * MINUTE
    first, last = (_moment(ns) for ns in (start, end))
    until = clock(end, exact=exact)
    if first.date() != last.date():
        until = f"{day(end, year=first.year != last.year)} {until}"
    return f"{day(start, year=True)} {clock(start, exact=exact)} to {until} UTC"


def _moment(ns: int) -> datetime:
    return datetime.fromtimestamp(ns // SECOND, UTC)
