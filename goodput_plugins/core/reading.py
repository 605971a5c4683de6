"""Reading a run from disk: its journals, or entries exported from Cloud Logging.

A journal that was cut short by a crash, or whose last line is torn, is normal: what can be read is
read, and what cannot is told in the log's notes. What is no journal at all is
:class:`~goodput_plugins.core.errors.UnusableData`, in one sentence.
"""

from __future__ import annotations

import glob
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from io import BufferedReader
from itertools import groupby
from pathlib import Path
from typing import Any

from goodput_plugins.core.attribution import Each
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.journal_reading import (
    JournalFile,
    Run,
    by_segment,
    contents,
    first_line,
    read_journal,
    runs_of,
)
from goodput_plugins.core.runlog import Life, RunLog

__all__ = ["read", "read_journal"]

LONGEST_HEADER = 1 << 20
"""A journal's first line is not longer, bytes; all that a run may be called fits."""

GZIP = b"\x1f\x8b"
"""What a file begins with that gzip packed."""

Part = tuple[dict[str, Run], list[UnusableData]]
"""The runs that some files hold, by name, and what is wrong with other files."""


def read(path: Path, each: Each = map, then: Callable[[Life], object] | None = None) -> list[RunLog]:
    """The runs in a run directory, a journal, or a file of exported entries, which gzip may have packed.

    Args:
        path: where they are.
        each: by what the attempts in a directory, or the halves of an export, are read; another one than
            ``map`` may do several at once.
        then: what is to be done with a life of a directory as soon as it is read; it is called where that is.

    Raises:
        UnusableData: there is nothing there that can be used; the text says what was found.
    """
    if path.is_dir():
        return _read_directory(path, each, then)
    try:
        with BufferedReader(path.open("rb", 0), LONGEST_HEADER) as opened:
            file = _unpacked(opened)
            is_export = first_line(file.peek()) is None
            logs = _export(file, path, each if file is opened else map) if is_export else None
            data, gone = (b"", False) if is_export else contents(path) if file is opened else (file.read(), False)
    except FileNotFoundError:
        raise UnusableData(f"{path}: there is no such file or directory.") from None
    except (EOFError, zlib.error):
        raise UnusableData(f"{path}: is packed with gzip, and damaged or cut off.") from None
    except OSError as error:
        raise UnusableData(f"{path}: cannot be read ({error.strerror or error}).") from None
    if logs is None:
        journal = read_journal(path, data, gone=gone)
        segments = _segments_of(path)
        return _logs(runs_of([journal]) if len(segments) < 2 else _read_part(segments)[0])
    if not logs:
        raise UnusableData(f"{path}: holds no goodput events, neither ours nor of ml-goodput-measurement.")
    return logs


def _export(file: BufferedReader[Any], path: Path, each: Each) -> list[RunLog]:
    """The runs that exported entries tell of; what reads those is loaded where there are some."""
    from goodput_plugins.core.foreign import read_export

    return read_export(file, path, each)


def _unpacked(file: BufferedReader[Any]) -> BufferedReader[Any]:
    """The file, or what is packed in it."""
    if not file.peek().startswith(GZIP):
        return file
    from gzip import GzipFile

    return BufferedReader(GzipFile(fileobj=file), LONGEST_HEADER)


def _read_directory(path: Path, each: Each, then: Callable[[Life], object] | None) -> list[RunLog]:
    files = sorted((file for file in path.glob("*.jsonl") if not file.is_fifo()), key=by_segment)
    if not files:
        raise UnusableData(f"{path}: holds no journals (*.jsonl); is this the directory of a run?")
    files = [file for file in files if _is_begun(file)] or files
    attempts = [list(segments) for _, segments in groupby(files, lambda file: by_segment(file)[0])]
    runs, faults = _joined(each(partial(_read_part, then=then), attempts)) or _read_part(files)
    logs = _logs(runs)
    if not logs:
        raise faults[0]
    for log in logs:
        for left_out in faults:
            log.note("unusable-journal", f"Left out: {left_out}")
    _note_dropped(path, logs[0])
    return logs


def _note_dropped(folder: Path, log: RunLog) -> None:
    """Tell of entries that a service refused, or that it is not known whether it did."""
    dropped = dropped_by_agent(folder)
    if dropped is None:
        text = "The agent's agent.json cannot be read, so whether log entries of this run were refused is not known."
        log.note("damaged-note", text)
    elif dropped:
        log.note("dropped-entries", f"{dropped} log entries of this run were refused, so they are here only.")


def _logs(runs: Mapping[str, Run]) -> list[RunLog]:
    return [run.log() for _, run in sorted(runs.items())]


def _read_part(files: list[Path], then: Callable[[Life], object] | None = None) -> Part:
    """What these files hold, one after the other."""
    faults: list[UnusableData] = []
    runs = runs_of(_usable(files, faults))
    if then is not None:
        for run in runs.values():
            for life in run.log().lives:
                then(life)
    return runs, faults


def _joined(parts: Iterable[Part]) -> Part | None:
    """All parts as one; None if an attempt lies in several of them."""
    runs: dict[str, Run] = {}
    faults: list[UnusableData] = []
    for found, wrong in parts:
        faults += wrong
        for name, run in found.items():
            if runs.setdefault(name, run) is not run and not runs[name].join(run):
                return None
    return runs, faults


def dropped_by_agent(folder: Path) -> int | None:
    """How many of a run's log entries were refused for ever; None where what its agent noted cannot be read."""
    from goodput_plugins.core.shipper import STATUS

    try:
        dropped = json.loads((folder / STATUS).read_bytes())["dropped"]
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return dropped if type(dropped) is int and dropped >= 0 else None


def _is_begun(file: Path) -> bool:
    """Whether a journal holds anything: a process may be killed between making the file and its first line."""
    try:
        with file.open("rb") as opened:
            return bool(opened.read(4096).strip(b"\0"))
    except OSError:
        return True  # what is wrong is told when it is read


def _segments_of(path: Path) -> list[Path]:
    """The files of an attempt, of which ``path`` is one, in order."""
    attempt = by_segment(path)[0]
    beside = path.parent.glob(f"{glob.escape(attempt)}*.jsonl")
    return sorted((file for file in beside if by_segment(file)[0] == attempt), key=by_segment)


def _usable(files: Iterable[Path], faults: list[UnusableData]) -> Iterator[JournalFile]:
    """The journals among these files, one at a time; what is wrong with the others joins ``faults``."""
    for file in files:
        try:
            data, gone = contents(file)
            journal = read_journal(file, data, gone=gone)
        except UnusableData as fault:
            faults.append(fault)
        except OSError as error:
            faults.append(UnusableData(f"{file}: cannot be read ({error.strerror})."))
        else:
            yield journal
