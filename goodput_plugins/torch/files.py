"""The identity of a checkpoint's file: by it a restarted process is known to go on from that save.

A file that is renamed keeps all but its path; one that is written again under its name gets another time.
"""

from __future__ import annotations

import os
from typing import Any

Identity = list[Any]
"""``[path, inode, size in bytes, mtime in ns]``, as it goes into the journal."""


def identity(path: str) -> Identity | None:
    """The identity of the file at ``path``; None if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return [os.path.abspath(path), found.st_ino, found.st_size, found.st_mtime_ns]


def path_of(file: Any) -> str | None:
    """The path of what ``torch.save`` or ``torch.load`` was given; None if it is not a file with a name."""
    name: Any = getattr(file, "name", None) if hasattr(file, "read") or hasattr(file, "write") else file
    try:
        path = os.fspath(name)
    except TypeError:
        return None
    return path.decode(errors="surrogateescape") if isinstance(path, bytes) else str(path)
