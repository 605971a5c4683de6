"""A time on the command line is ISO 8601, seconds since the epoch, or so long ago."""

from __future__ import annotations

import pytest

from goodput_plugins.cli.times import at

SECOND = 1_000_000_000
NOW = 1_795_946_400 * SECOND
"""29 November 2026, 10:00 UTC."""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", 0),
        ("-90s", -90),
        ("-1h", -3_600),
        ("-1h30m", -5_400),
        ("-1h30min", -5_400),
        ("-2d", -172_800),
        ("-1w", -604_800),
        ("-0.5s", -0.5),
        ("2026-11-29T10:00:00Z", 0),
        ("2026-11-29T10:00", 0),
        ("2026-11-29 09:00:00.25", -3_599.75),
        ("2026-11-29T11:00+01:00", 0),
        ("2026-11-29", -36_000),
        ("1795946400", 0),
        ("1795946400.125", 0.125),
    ],
)
def test_a_time_in_any_form_is_the_same_moment(text: str, seconds: float) -> None:
    assert at(text, now=NOW) == NOW + round(seconds * SECOND)


def test_seconds_since_the_epoch_keep_their_nanoseconds() -> None:
    assert at("1795946400.123456789", now=NOW) == 1_795_946_400_123_456_789


@pytest.mark.parametrize("text", ["yesterday", "", "-1", "-h", "1h", "-1h 30m", "2026-13-01", "1e9", "٣"])
def test_what_is_no_time_is_told_with_what_would_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time; give ISO 8601"):
        at(text, now=NOW)


def test_milliseconds_are_suspected_where_the_year_has_no_date() -> None:
    with pytest.raises(ValueError, match="were these milliseconds"):
        at("1795946400000", now=NOW)
