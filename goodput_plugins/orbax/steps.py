"""Which step a checkpoint belongs to, found without waiting for a device."""

from __future__ import annotations

import operator
import os
import re
from typing import Any

_MANAGED = re.compile(r"(\d+)$")
_DIRECT = re.compile(r"(?:(?:step|ckpt|checkpoint)[_-]?)?(\d+)$", re.IGNORECASE)


def read(step: Any) -> int | None:
    """A step as the user gave it; None if it is no integer, or one that a device has yet to compute."""
    try:
        return operator.index(step) if getattr(step, "is_ready", _always)() else None
    except Exception:  # an array that this process cannot read, a tracer: whatever it is, not ours to judge
        return None


def _always() -> bool:
    return True


def key_of(path: Any) -> str:
    """One spelling for a checkpoint's path, however it was given."""
    return os.path.normpath(str(path))


def step_of_managed(path: str) -> int | None:
    """The step of a path that a manager made: the digits at the end of ``step_0040``."""
    return _first(_MANAGED.search(os.path.basename(path)))


def step_of_direct(path: str) -> int | None:
    """The step of a path that the user chose: ``40``, ``step_40``, ``checkpoint-40``; never of ``model_v2``."""
    return _first(_DIRECT.fullmatch(os.path.basename(path)))


def _first(match: re.Match[str] | None) -> int | None:
    return int(match[1]) if match else None
