"""Durations, shares and spans read as a person would say them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_plugins.cli.units import count, duration, share, span

SECOND = 1_000_000_000
EIGHT = 1_795_939_200 * SECOND
SIZES = {"d": 86_400e9, "h": 3_600e9, "min": 60e9, "s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1.0}


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0, "0 s"),
        (7, "7 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (48_200, "48.2 µs"),
        (999_499, "999 µs"),
        (999_500, "1.00 ms"),
        (350_000_000, "350 ms"),
        (999_600_000, "1.00 s"),
        (9_994_000_000, "9.99 s"),
        (9_995_000_000, "10.0 s"),
        (12_400_000_000, "12.4 s"),
        (59_949_999_999, "59.9 s"),
        (59_950_000_000, "1 min 00 s"),
        (302 * SECOND, "5 min 02 s"),
        (3_599_500_000_000, "1 h 00 min"),
        (7_384 * SECOND, "2 h 03 min"),
        (86_399 * SECOND, "1 d 00 h"),
        (40 * 86_400 * SECOND + 3_600 * SECOND, "40 d 01 h"),
    ],
)
def test_a_duration_is_said_in_the_units_that_fit(ns: int, said: str) -> None:
    assert duration(ns) == said


@given(st.integers(0, 10**17))
def test_a_duration_is_never_off_by_more_than_its_last_digit(ns: int) -> None:
    said = re.findall(r"(\d+(?:\.\d+)?) (\w+)", duration(ns))
    last = 10.0 ** -len(said[-1][0].partition(".")[2]) * SIZES[said[-1][1]]
    assert abs(sum(float(n) * SIZES[unit] for n, unit in said) - ns) <= 0.501 * last


def test_a_small_share_is_told_from_none() -> None:
    assert share(793, 5) == "79.3 %"
    assert share(0, 5) == "< 0.1 %"
    assert share(0, 0) == "0.0 %"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (41, "29 Nov 2026 08:00:00 to 08:00:41 UTC"),
        (7_384, "29 Nov 2026 08:00 to 10:03 UTC"),
        (86_400, "29 Nov 2026 08:00 to 30 Nov 08:00 UTC"),
        (40 * 86_400, "29 Nov 2026 08:00 to 8 Jan 2027 08:00 UTC"),
    ],
)
def test_a_span_repeats_nothing_that_both_ends_share(seconds: int, said: str) -> None:
    assert span(EIGHT, EIGHT + seconds * SECOND) == said


def test_one_is_singular() -> None:
    assert [count(n, "attempt") for n in (0, 1, 2)] == ["0 attempts", "1 attempt", "2 attempts"]
