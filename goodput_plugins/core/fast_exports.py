"""Parsing entries with msgspec: only what is needed is made, the rest is skipped.

Most entries tell of steps and waits, by one number each: those become columns at once. The others
become entries as the standard library would make them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from goodput_plugins.core.events import LARGEST_STEP
from goodput_plugins.core.exports import COLUMNS, Column, Entry, Piece, entry_of
from goodput_plugins.core.payloads import LATEST

Time = Annotated[float, Meta(ge=0, lt=LATEST)] | UnsetType


class Wrapped(msgspec.Struct, gc=False):
    """An entry as Cloud Logging wraps it."""

    jsonPayload: msgspec.Raw
    timestamp: Annotated[datetime, Meta(tz=True)] | None = None


class Usual(msgspec.Struct, gc=False):
    """A payload that tells of a step or a wait, if it does."""

    job_name: Any = None
    step_count: Annotated[int, Meta(ge=-1, le=LARGEST_STEP)] | None = None
    step_start_time: Time = UNSET
    data_loading_start_time: Time = UNSET
    data_loading_end_time: Time = UNSET


_wrapped = msgspec.json.Decoder(list[Wrapped])
_usual = msgspec.json.Decoder(list[Usual])
_anything = msgspec.json.Decoder(list[Any])


def read(data: bytes) -> Piece | None:
    """The entries in a JSON list; None if this is none."""
    try:
        return _read_wrapped(data)
    except (msgspec.DecodeError, TypeError, RecursionError):  # torn, or some are bare payloads, or odd
        return _read_all(data)


def _read_wrapped(data: bytes) -> Piece:
    """The entries, where all are wrapped. They are millions: each is gone through once, and without a call."""
    entries = _wrapped.decode(data)
    payloads = _usual.decode(b"".join((b"[", b",".join([entry.jsonPayload for entry in entries]), b"]")))
    others: list[Entry] = []
    of_jobs: dict[Any, list[Column]] = {}
    name: Any = UNSET
    for entry, payload in zip(entries, payloads, strict=True):
        if payload.job_name != name:
            name = payload.job_name
            columns = of_jobs[name] = of_jobs.get(name) or [Column(key, name, [], [], []) for key in COLUMNS]
            steps, begins, ends = (column.times for column in columns)
            step_written, begin_written, end_written = (column.written for column in columns)
            numbers = columns[0].numbers
        if (time := payload.step_start_time) is not UNSET:
            steps.append(time)
            numbers.append(payload.step_count)
            step_written.append(entry.timestamp)
        elif (time := payload.data_loading_start_time) is not UNSET:
            begins.append(time)
            begin_written.append(entry.timestamp)
        elif (time := payload.data_loading_end_time) is not UNSET:
            ends.append(time)
            end_written.append(entry.timestamp)
        else:
            others.append(Entry(msgspec.json.decode(entry.jsonPayload), entry.timestamp))
    return Piece(others, columns=[column for columns in of_jobs.values() for column in columns if column.times])


def _read_all(data: bytes) -> Piece | None:
    """The same, whatever they are."""
    try:
        return Piece([entry_of(parsed) for parsed in _anything.decode(data)])
    except (msgspec.DecodeError, RecursionError):
        return None
