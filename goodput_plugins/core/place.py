"""Where this process's journal lies: in the folder of its run, which one living primary holds.

A process may find that another one of this machine is recording under its run's name. Then the run
that it records is ``<name>-2``, or the next that is free. It asks only when it is sure to be a primary,
with its first step: of the processes of one job that start together all but one learn before that
that they are others, and none of them may take the name from the one.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from goodput_plugins import environ as env
from goodput_plugins.core import rundir
from goodput_plugins.core.events import SCHEMA, Event, Kind, encode
from goodput_plugins.core.guard import say
from goodput_plugins.core.journal import SEGMENT, Journal
from goodput_plugins.core.name_lock import NameLock
from goodput_plugins.core.processes import identity

SEGMENT_IN_BUCKET = 1024 * 1024
"""How large a segment grows that is uploaded in whole each time it has grown, bytes."""
MOST = 100
"""How many living primaries of one name are told apart."""


class Place:
    """The run's name and folder, as this process finds them.

    Args:
        environ: the environment.
        folder: the working directory in which the process began.
        started: when it began, ns since the epoch.

    Attributes:
        run: the run's name, once a journal was asked for.
    """

    def __init__(self, environ: Mapping[str, str], folder: str, started: int) -> None:
        self.run = ""
        self._environ = environ
        self._begun_in = folder
        self._started = started
        self._lock = NameLock()
        self._new: list[Path] = []
        self._old: list[Path] = []
        self._called = ""
        self._wanted = ""

    def journal(self, rank: int | None) -> Journal | None:
        """A journal with its header and start; None, said once, where there can be none."""
        self._name()
        path = self._folder(self.run) / rundir.journal_name(self._started, rank)
        try:
            self._new = [new for new in (path.parent, path.parent.parent) if not new.exists()]
            journal = self._make(path)
        except OSError as error:
            say(
                f"no journal can be kept at {path.parent} ({error.strerror or error}).",
                "Training goes on and is not recorded. Set GOODPUT_DIR to a folder that can be written.",
            )
            return None
        journal.write(encode(Event(Kind.START, self._started)))
        return journal

    def is_taken(self) -> bool:
        """Whether another living process holds the run's name."""
        return self._lock.is_taken(self._folder(self._name()))

    def take_name(self) -> bool:
        """Hold the run's name, or the next that is free; False if it is another than it was."""
        wanted = self.run
        for number in range(1, MOST + 1):
            name = wanted if number == 1 else f"{wanted}-{number}"
            folder = self._folder(name)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError:  # the folder of all runs went away, or its disk is full
                break
            if self._lock.take(folder):
                self.run = name
                break
        if self.run == wanted:
            return True
        self._wanted = wanted
        say(
            f"another living process of this machine records the run '{wanted}',",
            f"so this one is recorded as '{self.run}'. Set GOODPUT_RUN_NAME to tell runs apart.",
        )
        return False

    def is_called(self, name: str) -> bool:
        """Whether the run has this name, or had it until another process turned out to hold it."""
        return name in (self.run, self._called)

    def call(self, name: str) -> None:
        """The run has this name from here on."""
        self.run = self._called = name
        self._old = self._new

    def tidy(self) -> None:
        """Remove the folders that were made for the name before, unless others use them."""
        _remove(self._old)

    def release(self) -> None:
        """Let others have the name."""
        self._lock.release()

    def leave(self) -> None:
        """Let others have the name, and remove the folders that were made for it unless others use them."""
        self.release()
        _remove(self._new)
        _remove(self._old)

    def _name(self) -> str:
        if not self.run:
            self.run = rundir.run_name(self._environ, folder=self._begun_in)
        return self.run

    def _folder(self, run: str) -> Path:
        return rundir.run_dir(run, rundir.root(self._environ, folder=self._begun_in))

    def _header(self, path: Path) -> dict[str, object]:
        wanted = {"wanted": self._wanted} if self._wanted else {}  # the name that another process held
        remote = rundir.remote(self._environ)  # then readers read a copy, which may lag behind the process
        process = {} if remote else {"process": identity()}
        return {
            "schema": SCHEMA,
            "run": self.run,
            **wanted,
            "attempt": path.name.removesuffix(rundir.SUFFIX),
            "start": self._started,
            "pid": os.getpid(),
            **process,
            "host": platform.node(),
            "python": platform.python_version(),
            "script": str(sys.argv[0]) if sys.argv else "",  # not its arguments: they may hold secrets
        }

    def _make(self, path: Path) -> Journal:
        header, most = self._header(path), float(env.MAX_BYTES.read(self._environ))
        segment = SEGMENT_IN_BUCKET if rundir.remote(self._environ) else SEGMENT
        try:
            return Journal(path, header, segment=segment, most=most)
        except FileNotFoundError:  # another process of the job removed the empty folder meanwhile
            return Journal(path, header, segment=segment, most=most)


def _remove(folders: list[Path]) -> None:
    """Remove these folders, innermost first, up to the first that is not empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return
