"""Parsing and checking the lines of a journal with msgspec, both at once."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from goodput_plugins.core.events import LARGEST, LATEST, Event, Kind, is_sum

_Times = list[Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]]


class _Checked(Event):
    """An event as a line may tell it; see :func:`~goodput_plugins.core.events.event_of`."""

    __slots__ = ()

    time: Annotated[int, msgspec.Meta(ge=0, le=LATEST)]
    duration: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None
    data: None | bool | int | float | str | dict[str, Any] | _Times


_lines = msgspec.json.Decoder(_Checked)


def read(data: bytes, start: int = 0) -> list[Event]:
    """The events of the lines from ``start`` on.

    Raises:
        ValueError: one of them is none, or one that only the standard library takes.
    """
    events = _lines.decode_lines(memoryview(data)[start:])
    if len(events) != data.count(b"\n", start) + (not data.endswith(b"\n")):
        raise ValueError("a line that holds none, or several")
    for event in events:
        if event.kind is Kind.RUN and not (isinstance(event.data, list) and event.data and event.data[0] >= 0):
            raise ValueError("a run that is none")
        if event.kind is Kind.STEPS and not is_sum(event.data):
            raise ValueError("a sum of steps that is none")
    return events  # type: ignore[return-value]
