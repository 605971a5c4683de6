"""Parsing entries with msgspec: only what is needed is made, the rest is skipped."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from goodput_plugins.core.exports import entry_of


class Wrapped(msgspec.Struct, gc=False):
    """An entry as Cloud Logging wraps it."""

    jsonPayload: dict[str, Any]
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


_wrapped = msgspec.json.Decoder(list[Wrapped])
_anything = msgspec.json.Decoder(list[Any])


def read(data: bytes) -> list[Any] | None:
    """The entries in a JSON list; None if this is none."""
    try:
        return _wrapped.decode(data)
    except msgspec.DecodeError:  # torn, or some of them are bare payloads or no objects
        pass
    try:
        return [entry_of(parsed) for parsed in _anything.decode(data)]
    except (msgspec.DecodeError, RecursionError):
        return None
