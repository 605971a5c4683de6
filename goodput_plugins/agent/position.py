"""What was sent already, on disk: a kill of the agent, or of the machine, costs no entry and repeats none.

One small file beside the journals, replaced in whole. It holds, for each destination, a place in each
attempt's journal. Where it is lost, or older than what was sent, stretches are sent again; their places
in the journal tell readers that they are the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

NAME = "agent.position.json"
SCHEMA = "goodput-agent-position/1"


class Position(NamedTuple):
    """A place in an attempt's journal: everything before it was sent.

    Attributes:
        segment: which of its files, from 0.
        offset: the first byte in it that was not.
    """

    segment: int
    offset: int


NOTHING = Position(0, 0)


class Positions:
    """The places that one destination has got to.

    Args:
        folder: the run's directory.
        destination: where things are sent to.

    Attributes:
        received: attempts that came from the destination itself, and are never sent to it.
        has_history: what other machines recorded has been fetched.
    """

    def __init__(self, folder: Path, destination: str) -> None:
        self._path = folder / NAME
        self._destination = destination
        held = self._all().get(destination)
        places = places_of(held)
        mine = held if isinstance(held, dict) and places is not None else {}
        self.has_history = bool(mine.get("has_history"))
        self.received: set[str] = set(map(str, mine.get("received", ())))
        self._sent = places or {}

    def __getitem__(self, attempt: str) -> Position:
        return self._sent.get(attempt, NOTHING)

    def __setitem__(self, attempt: str, position: Position) -> None:
        self._sent[attempt] = position

    def save(self) -> None:
        """Write them down.

        Raises:
            OSError: the disk is full, or gone.
        """
        whole = self._all()
        whole[self._destination] = {
            "has_history": self.has_history,
            "received": sorted(self.received),
            "sent": self._sent,
        }
        replace(self._path, json.dumps({"schema": SCHEMA, "destinations": whole}).encode())

    def _all(self) -> dict[str, Any]:
        """What is written down of all destinations; nothing, where that cannot be read."""
        try:
            held = json.loads(self._path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        destinations = held.get("destinations") if isinstance(held, dict) and held.get("schema") == SCHEMA else None
        return destinations if isinstance(destinations, dict) else {}


def places_of(held: object) -> dict[str, Position] | None:
    """The places in what is kept of one destination; None where that is damaged."""
    try:
        return {str(attempt): Position(*map(int, place)) for attempt, place in dict(held)["sent"].items()}  # type: ignore[call-overload]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def replace(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of a file, in whole or not at all.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
