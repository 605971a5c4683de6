"""Bars are as long as what they stand for, and can be told apart by anyone."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color, ColorSystem

from goodput_plugins.cli.render.bars import apportion, small, stacked
from goodput_plugins.cli.render.canvas import Canvas
from goodput_plugins.cli.render.palette import COLORS, LETTERS
from goodput_plugins.core.buckets import BADPUT, Bucket

OWNERS = (Bucket.PRODUCTIVE, *BADPUT)


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=14), st.integers(0, 2_000))
def test_units_are_shared_out_exactly_and_fairly(parts: list[int], total: int) -> None:
    shares = apportion(parts, total)
    whole = sum(parts)
    assert sum(shares) == (total if whole else 0)
    assert all(abs(got * whole - part * total) < whole for got, part in zip(shares, parts, strict=True) if whole)


@given(st.lists(st.integers(0, 10**15), min_size=14, max_size=14), st.integers(20, 110), st.booleans())
def test_the_stacked_bar_fills_its_width(times: list[int], width: int, solid: bool) -> None:
    bar = stacked(list(zip(OWNERS, times, strict=True)), Canvas(width, solid=solid))
    assert len(bar) == (width if sum(times) else 0)


def test_letters_in_the_bar_are_as_many_as_the_shares() -> None:
    bar = stacked([(Bucket.PRODUCTIVE, 60), (Bucket.SAVE, 30), (Bucket.INFRASTRUCTURE_RECOVERY, 10)], Canvas(50))
    assert Counter(bar.plain) == {"█": 30, "S": 15, ".": 5}


def test_colours_change_in_the_middle_of_a_cell() -> None:
    bar = stacked([(Bucket.PRODUCTIVE, 5), (Bucket.SAVE, 3)], Canvas(4, solid=True))
    assert bar.plain == "██▌█"
    assert [str(span.style) for span in bar.spans] == [
        COLORS[Bucket.PRODUCTIVE],
        f"{COLORS[Bucket.PRODUCTIVE]} on {COLORS[Bucket.SAVE]}",
        COLORS[Bucket.SAVE],
    ]


@pytest.mark.parametrize(("part", "bar"), [(0, ""), (1, "▏"), (500, "████"), (562, "████▌"), (1000, "████████")])
def test_a_small_bar_is_exact_to_an_eighth_and_never_hides_something(part: int, bar: str) -> None:
    assert small(part, 1000, 8) == bar


def test_every_bucket_has_a_look_of_its_own() -> None:
    assert set(COLORS) == set(LETTERS) == set(OWNERS)
    assert len(set(COLORS.values())) == len(set(LETTERS.values())) == len(OWNERS)
    assert all(len(letter) == 1 for letter in LETTERS.values())


def test_every_colour_is_still_its_own_in_a_terminal_of_256() -> None:
    coarse = {bucket: Color.parse(color).downgrade(ColorSystem.EIGHT_BIT).number for bucket, color in COLORS.items()}
    same = [(a.value, b.value) for a, b in combinations(coarse, 2) if coarse[a] == coarse[b]]
    assert same == []


@pytest.mark.parametrize("bucket", OWNERS)
def test_every_colour_shows_on_black_and_on_white(bucket: Bucket) -> None:
    luminance = _luminance(COLORS[bucket])
    assert (luminance + 0.05) / 0.05 >= 3, "on black"
    assert 1.05 / (luminance + 0.05) >= 3, "on white"


def _luminance(color: str) -> float:
    """Relative luminance, WCAG 2.2."""
    triplet = Color.parse(color).triplet
    assert triplet is not None
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in triplet]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
