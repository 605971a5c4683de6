"""The numbers of a RUN (see ``Kind.RUN``), told apart: those of steps are not negative, those of the device are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import compress
from struct import pack
from typing import NamedTuple

_SIGN = slice(7 if sys.byteorder == "little" else 0, None, 8)
"""Of integers of 64 bits, the byte that tells whether each is negative."""
_NEGATIVE = b"\xff"
_IS_POSITIVE = bytes([1, *[0] * 255])
_LONG = 10_000
_HOST_ALONE = bytes(1 + 3 * _LONG)
"""The signs of a run of which the device tells nothing."""
_EACH_ONCE = b"\0" + (2 * _NEGATIVE + bytes(3)) * _LONG
"""The signs of a run of which the device tells once a step, before the next begins."""


class Parted(NamedTuple):
    """What a run tells, ns.

    Attributes:
        waits: of steps, when each waited for data, after it began.
        took: how long; the last step's may lack.
        intervals: when the next one began, after it began.
        ordinals: of steps that the device has done, -1 - the ordinal of each.
        whens: -1 - when, after the run began; the last one's may lack.
    """

    waits: Sequence[int]
    took: Sequence[int]
    intervals: Sequence[int]
    ordinals: Sequence[int]
    whens: Sequence[int]


def parted(told: list[int]) -> Parted:
    """The numbers of a run; if they come in one of the two usual orders, without looking at each."""
    signs = pack(f"{len(told)}q", *told)[_SIGN]
    if _HOST_ALONE.startswith(signs):
        return Parted(told[1::3], told[2::3], told[3::3], (), ())
    stop = len(told)
    if signs.endswith(_NEGATIVE) and signs.count(_NEGATIVE) % 2:  # it closes the line
        stop -= 1
    if _EACH_ONCE.startswith(signs[:stop]):
        return Parted(told[3:stop:5], told[4:stop:5], told[5:stop:5], told[1:stop:5], told[2:stop:5])
    device, steps = list(compress(told, signs)), list(compress(told, signs.translate(_IS_POSITIVE)))
    return Parted(steps[1::3], steps[2::3], steps[3::3], device[::2], device[1::2])
