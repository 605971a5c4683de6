"""Where a run's journals lie: ``$GOODPUT_DIR/<run name>/<start>-<random>.jsonl``.

A run's name is one path component, so it is encoded: letters, digits, ``-``, ``_`` and inner dots
stand for themselves, any other byte is ``%XX``. A journal's name begins with the time its process
began, so names sort by time.

>>> encode("llama/7b run"), decode("llama%2F7b%20run")
('llama%2F7b%20run', 'llama/7b run')
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from goodput_plugins import environ as env

SUFFIX = ".jsonl"
LONGEST_COMPONENT = 200
"""Bytes of an encoded name; a longer one is cut and ends in ``~`` and a hash. Its journals know it in full."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")

JOB_NAMES = ("SLURM_JOB_NAME", "JOBSET_NAME", "PBS_JOBNAME", "LSB_JOBNAME", "TRAINING_JOB_NAME", "CLOUD_ML_JOB_ID")
"""Where schedulers put a job's name: Slurm, JobSet, PBS, LSF, SageMaker, Vertex AI."""
NO_JOB_NAMES = frozenset({"bash", "sh", "zsh", "interactive", "wrap", "STDIN"})
"""Names that schedulers give when the user gave none; many jobs share them."""


def run_name(
    environ: Mapping[str, str] = os.environ,
    *,
    argv: Sequence[str] | None = None,
    original: Sequence[str] | None = None,
    folder: str = "",
) -> str:
    """The run's name: the user's, else the scheduler's, else the script's with a short hash.

    The hash is of the script's path and its arguments, so the same command after a crash joins its run.

    Args:
        environ: the environment.
        argv: ``sys.argv``; with ``-m`` its first word is the module's path, once that runs.
        original: ``sys.orig_argv``.
        folder: what a relative script path is relative to.
    """
    given = env.RUN_NAME.read(environ)
    if given:
        return given
    for name in JOB_NAMES:
        job = environ.get(name, "").strip()
        if job and job not in NO_JOB_NAMES:
            return job
    script, *arguments = (sys.argv if argv is None else argv) or [""]
    title, identity = _program(script, sys.orig_argv if original is None else original, folder)
    whole = "\0".join([identity, *arguments]).encode("utf-8", "surrogatepass")
    import hashlib

    return f"{title}-{hashlib.sha256(whole).hexdigest()[:6]}"


def _program(script: str, original: Sequence[str], folder: str) -> tuple[str, str]:
    """What the program is called, and what tells it from others of that name."""
    if script == "-c":
        return "command", "\0".join(original)
    if script in ("", "-"):
        return "stdin", folder
    path = Path(os.path.normpath(os.path.join(folder, script)))
    return (path.parent.name if path.stem == "__main__" else path.stem), str(path)


def here() -> str:
    """The working directory; empty where it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def encode(name: str) -> str:
    """The path component that stands for a run's name."""
    raw = name.encode("utf-8", "surrogatepass")
    safe = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw) or "%"
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    if len(safe) <= LONGEST_COMPONENT:
        return safe
    import hashlib

    return f"{safe[: LONGEST_COMPONENT - 13]}~{hashlib.sha256(raw).hexdigest()[:12]}"


def decode(component: str) -> str:
    """The run's name that a path component stands for (of one that was cut, what is left of it)."""
    raw = re.sub(rb"%([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode()), component.encode())
    return "" if component == "%" else raw.decode("utf-8", "surrogatepass")


def root(environ: Mapping[str, str] = os.environ, *, folder: str | None = None) -> Path:
    """The folder of all runs; a relative one is relative to ``folder``, else to the working directory.

    Where the runs lie in a bucket, it is a folder on this machine, from which the agent uploads them.
    """
    url = remote(environ)
    if url:
        return cache(environ) / "spool" / encode(url)
    return Path(here() if folder is None else folder, os.path.expanduser(env.DIR.read(environ)))


def remote(environ: Mapping[str, str] = os.environ) -> str:
    """The URL below which the runs lie; empty where they lie in a folder."""
    place = env.DIR.read(environ)
    return place.rstrip("/") if is_remote(place) else ""


def is_remote(place: str) -> bool:
    """Whether this is a URL, such as ``gs://bucket/path``."""
    return re.match(r"[a-z][a-z0-9+.-]*://.", place) is not None


def cache(environ: Mapping[str, str] = os.environ) -> Path:
    """A folder of ours for this user, outside of any run; it may not exist yet."""
    home = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "goodput-plugins"


def run_dir(name: str, below: Path) -> Path:
    """The folder of a run."""
    return below / encode(name)


def journal_name(start: int, rank: int | None = None) -> str:
    """A new name for the journal of a process that began at ``start`` (ns since the epoch)."""
    whole, fraction = divmod(start, 1_000_000_000)
    began = time.strftime("%Y%m%dT%H%M%S", time.gmtime(whole))
    place = "" if rank is None else f"-p{rank}"
    return f"{began}.{fraction:09d}Z-{os.urandom(4).hex()}{place}{SUFFIX}"


def journals(directory: Path) -> list[Path]:
    """The journals of a run, oldest first."""
    return sorted(path for path in directory.glob(f"*{SUFFIX}") if path.is_file())


def newest_run(below: Path) -> Path | None:
    """The folder of the run whose process began last; None if there is no run."""
    latest = [(found[-1].name, folder) for folder in _folders(below) if (found := journals(folder))]
    return max(latest)[1] if latest else None


def _folders(below: Path) -> list[Path]:
    return [path for path in below.iterdir() if path.is_dir()] if below.is_dir() else []
