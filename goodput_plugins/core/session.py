"""The recording of this process: from the first hook to the last exit function.

A process has one :class:`Session`, made by whoever needs it first::

    recorder = current().recorder
    recorder.step(0)

It goes through four states. *Armed*: what hooks tell is kept in memory, nothing is opened, so a
process that never trains leaves no trace. *Starting*, from the first sign of training: a journal
holds what was kept, then each line as it comes, and a heartbeat every 5 s; only where another process
holds the run's name it is all kept in memory still, since this may be a helper of that one.
*Recording*, from the first step: now this is surely a primary process, so it holds the run's name,
and where another one does it records under a name of its own. *Over*: the process has ended, or turned
out to be one that keeps no journal (a forked child, a process other than the primary one, a disk that
cannot be written); whatever hooks tell then is dropped.

Nothing here raises into the training job or holds up its exit for more than 2 s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum

from goodput_plugins import environ as env
from goodput_plugins.core import ending, rundir
from goodput_plugins.core.clock import Clock, process_start, system_clock
from goodput_plugins.core.events import Event, Fact, Kind, encode
from goodput_plugins.core.guard import Guard, say
from goodput_plugins.core.heart import Heart
from goodput_plugins.core.held import Held
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.leaving import Leaving
from goodput_plugins.core.lines import is_progress
from goodput_plugins.core.place import Place
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.core.shipper import Shipper


class State(Enum):
    """What becomes of a line that a hook tells."""

    ARMED = "kept in memory"
    STARTING = "written, and kept in case the journal moves"
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
        self.recorder = Recorder(self._hold, self.clock, on_training=self._on_training, on_rank=self._on_rank)
        self._environ = environ
        self._place = Place(environ, rundir.here(), self.started)
        self._leaving = Leaving(environ, lambda: self.recorder.steps)
        self._guard, self._agent_guard = Guard("session"), Guard("agent")
        self._held, self._copies = Held(), Held()
        self._rank: int | None = None
        self._shipper = Shipper(environ)
        self._heart = Heart(self._tend, self._guard)
        self.at_close = self._heart.at_stop

    def call_run(self, name: str) -> None:
        """The script itself names the run; $GOODPUT_RUN_NAME, where it is set, still wins."""
        if self.state is State.OVER or not name or env.RUN_NAME.read(self._environ) or self._place.is_called(name):
            return
        if self.state is State.RECORDING:
            say(f"this process records the run '{self._place.run}' already; what is recorded for '{name}' joins it.")
            return
        self._place.call(name)
        if self.state is State.STARTING and self.journal is not None:
            self._guard(self._move)

    def export(self, exporter: str, logger: str = "") -> None:
        """The script itself asks for an exporter; $GOODPUT_EXPORTERS, where it is set, still wins."""
        if self._shipper.ask(exporter, logger) and self.state is State.RECORDING:
            self._agent_guard(self._ship)

    def monitor(self, wanted: Mapping[str, object]) -> None:
        """What the script's own monitors want by now: told to the agent, which is started for them."""
        if self.state is not State.OVER and self._shipper.monitor(wanted) and self.state is State.RECORDING:
            self._agent_guard(self._ship)

    def last_values(self, seconds: float | None) -> None:
        """Wait at most so long until the agent has uploaded what is so now; None: ``$GOODPUT_FLUSH_TIMEOUT``."""
        if self.state is State.RECORDING:
            self._agent_guard(self._shipper.wait_for_values, seconds)

    def close(self) -> None:
        """The process ends now: stop what plugins run, write how it ended, close the journal."""
        end = Guard("session")(self._end)
        try:
            self._guard.anyway(self._heart.stop)
        finally:
            if end is not None:
                self._guard.anyway(lambda: self._finish(end))

    def ends_by(self, how: str) -> None:
        """A trainer is leaving the process for this reason, as END names it; see :meth:`Exits.expect`."""
        self._leaving.exits.expect(how)

    def killed(self) -> None:
        """The process ends by a SIGTERM, in the middle of everything; any thread may tell."""
        now, journal = self.clock(), self.journal
        self._drop_all()
        if journal is not None:
            journal.write(encode(Event(Kind.END, now, name="signal:SIGTERM")))

    def abandon(self) -> None:
        """This is a forked child: leave everything to the parent."""
        self._drop_all()
        self._heart.abandon()
        journal, self.journal = self.journal, None
        for leave in (
            None if journal is None else journal.abandon,
            self._leaving.give_back,
            self._place.release,
            self._leaving.exits.uninstall,
            self._shipper.abandon,
        ):
            if leave is not None:
                self._guard.anyway(leave)

    # --- from armed to recording -------------------------------------------------------------------

    def _on_training(self) -> None:
        if self.state is State.ARMED:
            self._guard(self._open)
            if self.state is State.ARMED:
                self._drop_all()

    def _open(self) -> None:
        told = env.rank(self._environ)
        self._rank = told and told[0]
        waits = not self._rank and self._place.is_taken()  # by the process that this one may be a helper of
        if self._keeps() and not waits:
            self.journal = self._place.journal(self._rank)
        if self.journal is None and not waits:
            self._drop_all()
            return
        self.state = State.STARTING
        self.recorder.write = self._start
        self._held.release(self._start)
        if told is not None:
            self.recorder.rank(*told)
        self._heart.start()
        self._guard(self._leaving.watch, lambda: self.recorder.notice("SIGTERM"), self.killed)

    def _hold(self, line: bytes) -> None:
        """Keep a line for the journal to come."""
        self._held.keep(line)
        if self.state is not State.ARMED:  # another thread began to record between the caller's look and this line
            self._held.release(self._start)

    def _start(self, line: bytes) -> None:
        """Write a line, and keep it until it is sure where the journal lies."""
        if self.state is State.STARTING:
            if is_progress(line):
                self._guard(self._settle)
            else:
                self._copies.keep(line)
        if self.journal is not None:
            self.journal.write(line)

    def _settle(self) -> None:
        """This is a primary process, or one that is asked for anyway: hold the run's name."""
        if self.state is not State.STARTING:
            return
        self.state = State.RECORDING
        try:
            kept = bool(self._rank) or self._place.take_name()
            if self.journal is None or not kept:
                self._move()
        finally:
            self._copies.clear()
            if self.journal is not None:
                self.recorder.write_to(self.journal)
        self._agent_guard(self._ship)

    def _ship(self) -> None:
        """Start the agent, if anything is to be sent, in the one process that speaks for the run."""
        if self.journal is not None and not self._rank:
            self._shipper.start(self._place.run, self.journal.path.parent)

    def _move(self) -> None:
        """Begin the journal again under the run's new name."""
        old, self.journal = self.journal, self._place.journal(self._rank)
        copies, self._copies = self._copies, Held()
        if self.journal is None:
            self._drop_all()
        else:
            copies.release(self._start)
        if old is not None:
            old.remove()
        self._place.tidy()

    # --- while recording ----------------------------------------------------------------------------

    def _tend(self) -> None:
        self.recorder.heartbeat()
        if self.journal is not None:
            self.journal.tend()

    def _on_rank(self, index: int, count: int | None) -> None:
        self._rank = index
        if not self._keeps():
            self._guard(self._discard)

    def _keeps(self) -> bool:
        return not self._rank or env.PROCESSES.read(self._environ) == "all"

    # --- the end ------------------------------------------------------------------------------------

    def _end(self) -> Event:
        now, (how, data) = self.clock(), self._leaving.exits.how()
        return Event(Kind.END, now, name=how, data=data)

    def _finish(self, end: Event) -> None:
        """Write the end, or leave no trace of a process that did not train."""
        if self.state is State.STARTING:
            if end.name == "completed":
                self._discard()
                return
            self._settle()
        if self.journal is not None:
            self.recorder.flush()
            self.journal.write(encode(end))
            self.journal.close()
        self._drop_all()
        self._place.release()
        self._leaving.unwatch()
        self._agent_guard(self._shipper.wait)

    def _discard(self) -> None:
        """Keep no journal after all, and no empty folder either."""
        self._drop_all()
        self._heart.still()
        journal, self.journal = self.journal, None
        if journal is not None:
            journal.remove()
        self._place.leave()
        self._leaving.unwatch()

    def _drop_all(self) -> None:
        self.state = State.OVER
        self.recorder.stop()
        self._held.clear()
        self._copies.clear()


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
            note(**_noted)
    return session


_noted: dict[str, bool] = {}
"""What was noted before there was a session."""


def note(**arguments: bool) -> None:
    """Tell what a script passed to Google's API, once this process has a session."""
    session = _of_process.get("session")
    if session is None:
        _noted.update(arguments)
    else:
        for name, value in arguments.items():
            session.recorder.fact(Fact.ARGUMENT, of=name, count=int(value))


def note_fault(plugin: str) -> None:
    """Tell that a plugin of ours failed and is off, if this process has a session."""
    session = _of_process.get("session")
    if session is not None:
        session.recorder.fact(Fact.FAULT, of=plugin)
