"""Parsing entries with msgspec: only what is needed is made, the rest is skipped.

Most entries tell of steps and waits, by one number each: those become columns at once. The others
become entries as the standard library would make them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import compress, repeat
from operator import attrgetter, is_not
from typing import Annotated, Any

import msgspec

from goodput_plugins.core.exports import COLUMNS, Column, Entry, Piece, entry_of


class Wrapped(msgspec.Struct, gc=False):
    """An entry as Cloud Logging wraps it."""

    jsonPayload: msgspec.Raw
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class Usual(msgspec.Struct, gc=False):
    """A payload that tells of a step or a wait, if it does."""

    job_name: Any = None
    step_count: Any = None
    step_start_time: Any = None
    data_loading_start_time: Any = None
    data_loading_end_time: Any = None


_wrapped = msgspec.json.Decoder(list[Wrapped])
_usual = msgspec.json.Decoder(list[Usual])
_anything = msgspec.json.Decoder(list[Any])


def read(data: bytes) -> Piece | None:
    """The entries in a JSON list; None if this is none."""
    try:
        return _read_wrapped(data)
    except (msgspec.DecodeError, TypeError, RecursionError):  # torn, or some are bare payloads, or no objects
        return _read_all(data)


def _read_wrapped(data: bytes) -> Piece:
    """The entries, where all are wrapped."""
    entries = _wrapped.decode(data)
    payloads = _usual.decode(b"".join((b"[", b",".join([entry.jsonPayload for entry in entries]), b"]")))
    if len({payload.job_name for payload in payloads}) == 1:
        return _in_columns(entries, payloads)
    return Piece([Entry(msgspec.json.decode(entry.jsonPayload), entry.timestamp) for entry in entries])


def _in_columns(entries: Sequence[Wrapped], payloads: Sequence[Usual]) -> Piece:
    """Entries of one job. What is done for each of them is done by ``map`` and its like, since they are millions."""
    piece, name = Piece(), payloads[0].job_name
    written = [entry.timestamp for entry in entries]
    numbers = [payload.step_count for payload in payloads]
    others = set(range(len(entries)))
    for key in COLUMNS:
        times = list(map(attrgetter(key), payloads))
        told = bytes(map(is_not, times, repeat(None)))
        if any(told):
            counts = list(compress(numbers, told)) if key == COLUMNS[0] else ()
            piece.columns.append(Column(key, name, list(compress(times, told)), counts, list(compress(written, told))))
            others.difference_update(compress(range(len(told)), told))
    for at in sorted(others):
        piece.entries.append(Entry(msgspec.json.decode(entries[at].jsonPayload), written[at]))
    return piece


def _read_all(data: bytes) -> Piece | None:
    """The same, where some are bare payloads or no objects."""
    try:
        return Piece([entry_of(parsed) for parsed in _anything.decode(data)])
    except (msgspec.DecodeError, RecursionError):
        return None
