"""The recording of this process: from the first hook to the last exit function.

A process has one :class:`Session`, made by whoever needs it first::

    recorder = current().recorder
    recorder.step(0)

It goes through three states. *Armed*: what hooks tell is kept in memory, nothing is opened, so a
process that never trains leaves no trace. *Recording*, from the first sign of training: a journal
holds what was kept, then each line as it comes, and a heartbeat every 5 s. *Over*: the process has
ended, or turned out to be one that keeps no journal (a forked child, a process other than the
primary one, a disk that cannot be written); whatever hooks tell then is dropped.

Nothing here raises into the training job or holds up its exit for more than 2 s.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

from goodput_plugins import environ as env
from goodput_plugins.core import ending, rundir
from goodput_plugins.core.clock import Clock, process_start, system_clock
from goodput_plugins.core.events import SCHEMA, Event, Kind, encode
from goodput_plugins.core.guard import Guard, say
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.recorder import Recorder

HEARTBEAT = 5.0
"""Seconds between two heartbeats."""
PATIENCE = 2.0
"""How long the exit waits for the threads of plugins, seconds."""
HELD = 100_000
"""How many lines are kept in memory before training begins."""


class State(Enum):
    """What becomes of a line that a hook tells."""

    ARMED = "kept in memory"
    RECORDING = "written"
    OVER = "dropped"


class Session:
    """What this process records, and where.

    Attributes:
        recorder: what hooks talk to; the same one from the first to the last.
        state: see the module's text.
        journal: where lines go while recording.
        at_close: functions to call before the process ends, e.g. to stop a thread of an adapter.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ, clock: Clock | None = None) -> None:
        self.clock = clock or system_clock()
        self.started = process_start(self.clock())
        self.state = State.ARMED
        self.journal: Journal | None = None
        self.at_close: list[Callable[[], None]] = []
        self.recorder = Recorder(self._hold, self.clock, on_training=self._on_training, on_rank=self._on_rank)
        self._environ = environ
        self._folder = rundir.here()
        self._new_folders: list[Path] = []
        self._guard = Guard("session")
        self._held = _Held()
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    def close(self) -> None:
        """The process ends now: stop what plugins run, write how it ended, close the journal."""
        now, how = self.clock(), _how_it_ended()
        try:
            self._stop_plugins()
        finally:
            self._guard(self._finish, now, how)

    def abandon(self) -> None:
        """This is a forked child: leave everything to the parent."""
        self.at_close.clear()
        self._heart = None
        self._drop_all()
        if self.journal is not None:
            self.journal.abandon()
            self.journal = None

    # --- from armed to recording -------------------------------------------------------------------

    def _on_training(self) -> None:
        if self.state is State.ARMED:
            self._guard(self._open)
            if self.state is State.ARMED:
                self._drop_all()

    def _open(self) -> None:
        place = env.rank(self._environ)
        if place is not None and not self._keeps(place[0]):
            self._drop_all()
            return
        self.journal = self._new_journal(place and place[0])
        if self.journal is None:
            self._drop_all()
            return
        self._held.release(self.journal.write)
        self.recorder.write_to(self.journal)
        self._held.release(self.journal.write)
        self.state = State.RECORDING
        if place is not None:
            self.recorder.rank(*place)
        self._heart = self._start_heart()

    def _start_heart(self) -> threading.Thread | None:
        heart = threading.Thread(target=self._beat, name="goodput-heartbeat", daemon=True)
        try:
            heart.start()
        except RuntimeError as error:
            say(f"no heartbeat is recorded ({error}); a watcher may take the run for lost. Training goes on.")
            return None
        return heart

    def _new_journal(self, rank: int | None) -> Journal | None:
        """A journal with its header and start; None, said once, where there can be none."""
        run = rundir.run_name(self._environ, folder=self._folder)
        folder = rundir.run_dir(run, rundir.root(self._environ, folder=self._folder))
        path = folder / rundir.journal_name(self.started, rank)
        try:
            self._new_folders = [new for new in (folder, folder.parent) if not new.exists()]
            journal = _make(path)
        except OSError as error:
            say(
                f"no journal can be kept at {path.parent} ({error.strerror or error}).",
                "Training goes on and is not recorded. Set GOODPUT_DIR to a folder that can be written.",
            )
            return None
        journal.write(json.dumps(self._header(run, path)).encode() + b"\n")
        journal.write(encode(Event(Kind.START, self.started)))
        return journal

    def _header(self, run: str, path: Path) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "run": run,
            "attempt": path.name.removesuffix(rundir.SUFFIX),
            "start": self.started,
            "pid": os.getpid(),
            "host": platform.node(),
            "python": platform.python_version(),
            "script": str(sys.argv[0]) if sys.argv else "",  # not its arguments: they may hold secrets
        }

    def _hold(self, line: bytes) -> None:
        """Keep a line for the journal to come."""
        self._held.keep(line)
        if self.journal is not None:  # another thread opened it between the caller's look and this line
            self._held.release(self.journal.write)

    # --- while recording ----------------------------------------------------------------------------

    def _beat(self) -> None:
        """The heartbeat's thread; at the end it stops the plugins, so that the exit can stop waiting."""
        while not self._ended.wait(HEARTBEAT):
            self.recorder.heartbeat()
        self._call_closers()

    def _on_rank(self, index: int, count: int | None) -> None:
        if not self._keeps(index):
            self._guard(self._discard)

    def _keeps(self, rank: int) -> bool:
        return rank == 0 or env.PROCESSES.read(self._environ) == "all"

    # --- the end ------------------------------------------------------------------------------------

    def _stop_plugins(self) -> None:
        self._ended.set()
        if self._heart is None:
            self._call_closers()
            return
        self._heart.join(PATIENCE)
        if self._heart.is_alive():
            say(f"a plugin did not stop within {PATIENCE:.0f} s; the process ends without it.")

    def _call_closers(self) -> None:
        while self.at_close:
            Guard("closing")(self.at_close.pop())

    def _finish(self, now: int, how: str) -> None:
        """Write the end, or leave no trace of a process that did not train."""
        if self.journal is not None:
            if how == "completed" and self.recorder.steps == 0 and not _saved(self.journal):
                self._discard()
                return
            self.journal.write(encode(Event(Kind.END, now, name=how)))
            self.journal.close()
        self._drop_all()

    def _discard(self) -> None:
        """Keep no journal after all, and no empty folder either."""
        self._drop_all()
        self._ended.set()
        journal, self.journal = self.journal, None
        if journal is not None:
            journal.remove()
            _remove_empty(self._new_folders)

    def _drop_all(self) -> None:
        self.state = State.OVER
        self.recorder.stop()
        self._held.clear()


class _Held:
    """Lines that wait for a journal; a full one takes only the ends of what it holds open."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._open = 0

    def keep(self, line: bytes) -> None:
        kind = line[:4]
        if len(self._lines) >= HELD and not (kind == b'["f"' and self._open > 0) and kind != b'["pl':
            return
        self._open += (kind == b'["b"') - (kind == b'["f"')
        self._lines.append(line)

    def release(self, write: Callable[[bytes], None]) -> None:
        try:
            while True:
                write(self._lines.popleft())
        except IndexError:
            pass

    def clear(self) -> None:
        self._lines.clear()


def _make(path: Path) -> Journal:
    try:
        return Journal(path)
    except FileNotFoundError:  # another process of the job removed the empty folder meanwhile
        return Journal(path)


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders that we made, innermost first, unless others use them by now."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _saved(journal: Journal) -> bool:
    journal.write(b"")
    text = journal.path.read_bytes()
    return b'"save"' in text or b'["commit"' in text


def _how_it_ended() -> str:
    """What the interpreter remembers of the exception that it has just printed, if any."""
    error = getattr(sys, "last_type", None)
    if error is None or hasattr(sys, "ps1"):  # at a prompt, an error ends nothing
        return "completed"
    return "user" if issubclass(error, KeyboardInterrupt) else f"exception:{error.__name__}"


_of_process: dict[str, Session] = {}


def current() -> Session:
    """The session of this process, made at the first call."""
    session = _of_process.get("session")
    if session is None:
        new = Session()
        session = _of_process.setdefault("session", new)  # no lock, which a fork could copy while it is held
        if session is new:
            ending.at_end(session.close)
            os.register_at_fork(after_in_child=session.abandon)
            env.warn_once()
    return session
