"""Journal lines that are told often, made with no more work than they need."""

from __future__ import annotations

import json
from operator import index
from typing import Any

from goodput_plugins.core.events import LARGEST_STEP, Activity, is_number

LONGEST_NAME = 200
"""Names are cut to this many characters."""


def activity_line(
    kind: str,
    time: int,
    thread: int,
    step: int | None,
    activity: Activity,
    name: str | None,
    duration: int | None = None,
    data: Any = None,
) -> bytes:
    """The line of a BEGIN, FINISH or SPAN: what :func:`events.encode` makes of the same event."""
    if type(step) is not int or not -1 <= step <= LARGEST_STEP:
        step = whole(step)
    shown_step = "null" if step is None else step
    line = f'["{kind}",{time},{thread},{shown_step},"{activity._value_}"'  # value is a slow property
    if name is None and duration is None and data is None:
        return line.encode() + b"]\n"
    if duration is not None:
        line += f",{_quoted(name)},{duration}"
    elif name is not None:
        line += "," + _quoted(name)
    if data is not None:
        line += ",null" * (2 - (name is not None or duration is not None) - (duration is not None))
        line += "," + json.dumps(data)
    return line.encode() + b"]\n"


def whole(step: Any) -> int | None:
    """A step's number; None where it is none, or where reading it could wait for a device."""
    if type(step) is not int:
        if step is None or hasattr(step, "__dlpack__"):
            return None
        try:
            step = index(step)
        except Exception:  # whatever the host hands over
            return None
    return step if is_number(step) else None


_quotes: dict[str, str] = {}


def _quoted(name: Any) -> str:
    """The JSON of a name; the few that a run uses are remembered."""
    if name is None:
        return "null"
    cut = short(name)
    quoted = _quotes.get(cut)
    if quoted is None:
        quoted = json.dumps(cut)
        if len(_quotes) < 1_000:
            _quotes[cut] = quoted
    return quoted


def short(name: Any) -> str:
    """A name, cut to what a journal holds of it."""
    return str(name)[:LONGEST_NAME]


def is_progress(line: bytes) -> bool:
    """Whether a line tells a step or a save: what only a process that trains does."""
    kind = line[:4]
    return kind in (b'["s"', b'["r"', b'["co') or (kind in (b'["b"', b'["x"') and b',"save"' in line)
