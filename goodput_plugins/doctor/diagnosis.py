"""What one check found: what is, what it means, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How it stands."""

    OK = "ok"
    WARNING = "warning"
    """Works, but not as well, or not for long."""
    WRONG = "wrong"
    """Something that was asked for is not had; the command ends with 1."""
    UNKNOWN = "unknown"
    """It could not be found out."""


@dataclass(frozen=True)
class Diagnosis:
    """One line of the doctor's.

    Attributes:
        id: a slug; ``docs/troubleshooting.md`` has a row for it.
        level: how it stands.
        text: what is.
        meaning: what it means; "" where the text says it all.
        cure: what to do; "" where nothing is to be done.
    """

    id: str
    level: Level
    text: str
    meaning: str = ""
    cure: str = ""


def ok(id: str, text: str, meaning: str = "") -> Diagnosis:
    """All is well."""
    return Diagnosis(id, Level.OK, text, meaning)


def warning(id: str, text: str, meaning: str, cure: str) -> Diagnosis:
    """It works, but."""
    return Diagnosis(id, Level.WARNING, text, meaning, cure)


def wrong(id: str, text: str, meaning: str, cure: str) -> Diagnosis:
    """It does not work."""
    return Diagnosis(id, Level.WRONG, text, meaning, cure)


def unknown(id: str, text: str, meaning: str = "", cure: str = "") -> Diagnosis:
    """Nobody can tell from here."""
    return Diagnosis(id, Level.UNKNOWN, text, meaning, cure)


def ago(seconds: float) -> str:
    """How long it is since something was, in words."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(0, seconds):.0f} s ago"
