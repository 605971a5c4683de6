"""Can be read what the agent and the trainer note beside the journals? What cannot is taken as if it were not there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goodput_plugins.agent import making, position
from goodput_plugins.agent.settings import is_readable
from goodput_plugins.core.shipper import MONITOR, STATUS
from goodput_plugins.doctor.case import Case, is_status
from goodput_plugins.doctor.diagnosis import Diagnosis, Level


@dataclass(frozen=True)
class Note:
    """A file of JSON in a run's folder.

    Attributes:
        name: the file's.
        is_whole: whether what was read from it is what was written.
        level: how bad it is if it is not.
        meaning: what it means then.
        cure: and what to do.
    """

    name: str
    is_whole: Callable[[dict[str, Any]], bool]
    level: Level
    meaning: str
    cure: str


def _has_places(told: dict[str, Any]) -> bool:
    destinations = told.get("destinations")
    if told.get("schema") != position.SCHEMA or not isinstance(destinations, dict):
        return False
    return all(position.places_of(one) is not None for one in destinations.values())


NOTES = (
    Note(
        STATUS,
        is_status,
        Level.UNKNOWN,
        "What the agent sent last, what failed and whether anything was refused is not known.",
        "An agent writes it anew, and the count of what was refused before is lost: goodput agent RUN",
    ),
    Note(
        MONITOR,
        is_readable,
        Level.WRONG,
        "What the script asks for (monitors, a log) is not sent; what GOODPUT_EXPORTERS names is.",
        "The next start of the training writes it anew.",
    ),
    Note(
        making.LAST,
        lambda told: all(isinstance(at, int) for at in told.values()),
        Level.WARNING,
        "When Cloud Monitoring got its last point is not known: the next one may come too soon, and be refused.",
        "Nothing: the next point writes it anew.",
    ),
    Note(
        position.NAME,
        _has_places,
        Level.WARNING,
        "How far the journals were sent is not known: the next agent sends them again. Readers take each entry once.",
        "Nothing: what is sent next writes it anew.",
    ),
)


def notes(case: Case) -> Iterator[Diagnosis]:
    """Whether each file that is there is whole."""
    for note in NOTES if case.folder is not None else ():
        path = Path(case.folder or "", note.name)
        why = _damage(path, note)
        if why is not None:
            yield Diagnosis("notes", note.level, f"{path} {why}", note.meaning, note.cure)


def _damage(path: Path, note: Note) -> str | None:
    """What is wrong with a file; None if nothing is, or there is none."""
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return "is damaged: it is no JSON"
    return None if isinstance(told, dict) and note.is_whole(told) else "is damaged: it does not hold what is kept there"


CHECKS = (notes,)
