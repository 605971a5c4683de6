"""From the word on the command line to the path to read."""

from __future__ import annotations

import os
from pathlib import Path

from goodput_plugins.core import rundir
from goodput_plugins.core.errors import UnusableData


def path_of(target: str | None) -> Path:
    """The path that ``target`` means: itself, or a run of that name; without one the newest run.

    A script's name is enough where one run is called so: ``digits`` for ``digits-3f2a``.

    Raises:
        UnusableData: there is nothing of that name.
    """
    if target is not None and rundir.is_remote(target):
        return _mirror(target, None)
    if url := rundir.remote():
        return Path(target) if target is not None and os.path.lexists(target) else _mirror(url, target)
    below = rundir.root()
    if target is None:
        return _newest(below)
    if os.path.lexists(target):
        return Path(target)
    named = rundir.run_dir(target, below)
    if named.is_dir():
        return named
    if os.sep in target:
        raise UnusableData(f"{target} does not exist.")
    begun = [path for path in _folders(below) if rundir.decode(path.name).startswith(f"{target}-")]
    if len(begun) == 1:
        return begun[0]
    raise UnusableData(f"there is no file {target} here, and no run {target} below {below}{_hint(target, below)}.")


def _mirror(url: str, run: str | None) -> Path:
    """A folder here with what lies in a bucket."""
    from goodput_plugins.exporters.bucket import mirror

    return mirror(url, run)


def _newest(below: Path) -> Path:
    newest = rundir.newest_run(below)
    if newest is not None:
        return newest
    missing = "does not exist" if not below.exists() else "holds no run"
    raise UnusableData(
        f"{below} {missing}; start training with GOODPUT_PLUGINS=auto, set GOODPUT_DIR to where its runs lie, "
        "or name a path."
    )


def _folders(below: Path) -> list[Path]:
    return sorted(path for path in below.iterdir() if path.is_dir()) if below.is_dir() else []


def _hint(target: str, below: Path) -> str:
    """The runs whose names are like it: those that begin with it, else those that are spelled alike."""
    from difflib import get_close_matches

    names = [rundir.decode(path.name) for path in _folders(below)]
    close = [name for name in names if name.startswith(target)][:5] or get_close_matches(target, names, n=3)
    return f" (there is {', '.join(close)})" if close else ""
