"""Columns: many integers of 64 bits, one after the other.

Steps come by the million. As a column they take eight bytes each, and C functions go through them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import pack
from typing import TypeAlias

UNKNOWN = -(2**63)
"""Stands in a column for what was not told."""

Column: TypeAlias = "array[int] | range"
"""A range as long as its values count up by one."""


def column() -> array[int]:
    """An empty column."""
    return array("q")


def packed(values: Sequence[int]) -> array[int]:
    """A column of these values; ``array("q", values)`` takes twice as long."""
    if isinstance(values, array):
        return values
    made = column()
    made.frombytes(pack(f"{len(values)}q", *values))
    return made


def extended(values: Column, more: Sequence[int]) -> array[int]:
    """A column with more in it; the one that is given may be changed."""
    made = array("q", values) if isinstance(values, range) else values
    made.extend(packed(more))
    return made


def counted_on(values: Column, first: int, count: int) -> Column:
    """A column with ``count`` values more, from ``first`` on; the one that is given may be changed."""
    if not values and first != UNKNOWN:
        return range(first, first + count)
    if isinstance(values, range) and values.stop == first:
        return range(values.start, first + count)
    return extended(values, [first] if count == 1 else range(first, first + count))


def ascends(values: Sequence[int]) -> bool:
    """Whether no value is smaller than the one before; nothing tells that faster than sorting what is in order."""
    listed = list(values)
    return sorted(listed) == listed
