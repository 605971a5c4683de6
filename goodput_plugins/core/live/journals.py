"""The journals of a run directory, taken in as they grow: new files, new segments, a line that gets longer."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from goodput_plugins.core.attribution.past import CONTEXT, Past, Unsettled
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import Event, Kind
from goodput_plugins.core.journal_reading import (
    Run,
    by_segment,
    check_order,
    contents,
    header_of,
    journal_of,
    mended,
    parse,
)
from goodput_plugins.core.live.state import life_of, of_life
from goodput_plugins.core.rundir import SUFFIX
from goodput_plugins.core.runlog import Life, RunLog, Steps

AT_ONCE = (Kind.STEP, Kind.RUN, Kind.STEPS, Kind.NUMBER)
"""Told as they happen, on the training thread."""
ACTIVITIES = (Kind.BEGIN, Kind.FINISH, Kind.SPAN)


@dataclass
class _File:
    """One journal.

    Attributes:
        offset: up to where its lines were taken in, bytes.
        header: its first line; empty as long as there is none.
        newest: the last time of each kind and thread.
        seen: its size and time of change, once its attempt was put aside.
        growing: the events of the lines that may still get longer.
        torn: and how many of them are none.
        length: of these lines, bytes.
    """

    offset: int = 0
    header: Mapping[str, Any] = field(default_factory=dict)
    newest: dict[tuple[Kind, int], int] = field(default_factory=dict)
    seen: tuple[int, int] | None = None
    growing: list[Event] = field(default_factory=list)
    torn: int = 0
    length: int = 0

    @property
    def key(self) -> str:
        """Of its attempt."""
        return str(self.header.get("attempt"))


class Journals:
    """A run directory as a source of :class:`~goodput_plugins.core.live.Live`.

    Args:
        folder: the directory; it may be made later.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bad: dict[str, str] = {}
        self._known: set[str] = set()
        self._ordered: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Forget what was read; the next poll reads all."""
        self._files: dict[str, _File] = {}
        self._runs: dict[str, Run] = {}
        self._aside: set[str] = set()
        self._faults: list[str] = []

    def poll(self, past: Past | None) -> None:
        """Read what was written since the last time."""
        names = self._names()
        if not self._files.keys() <= set(names):
            raise Unsettled  # one was deleted
        self._faults = list(self._bad.values())
        for name in names:
            if name not in self._bad:
                self._take_in(name, past)
        if not self._runs:
            raise UnusableData(
                self._faults[0]
                if self._faults
                else f"{self._folder}: holds no journals (*.jsonl); is this the directory of a run?"
            )
        if past is not None:
            self._check_starts(past)

    def log(self) -> RunLog:
        """What was told, also in lines that may still get longer."""
        return self._log(but=())

    def settled(self, life: str) -> RunLog | None:
        """The same without those of that attempt and later ones: those of earlier ones are taken for whole."""
        lives = {key: (one.start, key) for key, one in self._run().lives.items()}
        return self._log(but=[key for key, began in lives.items() if began >= lives[life]])

    def _log(self, but: Collection[str]) -> RunLog:
        run = self._run()
        lives, torn, lost = run.lives, run.torn, run.lost
        run.lives = dict(lives)
        copied: set[str] = set()
        try:
            for file in self._files.values():
                if (file.growing or file.torn) and file.header["run"] == run.name and file.key not in but:
                    if file.key not in copied and file.key in run.lives:
                        run.lives[file.key] = _copy(run.lives[file.key])
                        copied.add(file.key)
                    run.add(journal_of(file.header, file.growing, file.torn))
            return self._noted(run.log())
        finally:
            run.lives, run.torn, run.lost = lives, torn, lost

    def shorten(self, life: Life, at: int) -> None:
        """Nothing: a journal's steps are never events."""

    def keep(self, rest: RunLog, past: Past) -> None:
        """Forget all but the rest; of attempts that have ended only look whether their journals grow."""
        run = self._run()
        kept = {life.id: life for life in rest.lives}
        self._aside |= run.lives.keys() - kept.keys() - run.others
        run.lives = {key: run.lives[key] for key in run.others & run.lives.keys()} | kept
        for name, file in self._files.items():
            if file.key in self._aside and file.seen is None:
                for event in file.growing:
                    run.lost += event.step or 0 if event.kind is Kind.LOST else 0
                run.torn += file.torn
                file.offset += file.length
                file.growing, file.torn, file.length = [], 0, 0
                file.seen = _stat(f"{self._folder}/{name}")

    def state(self) -> Any:
        """What a later process needs to go on, as JSON."""
        run = self._run()
        return {
            "run": run.name,
            "lives": [of_life(life) for key, life in run.lives.items() if key not in run.others],
            "others": sorted(run.others),
            "segments": {key: sorted(found) for key, found in run.segments.items()},
            "torn": run.torn,
            "lost": run.lost,
            "aside": sorted(self._aside),
            "files": {
                name: [file.offset, dict(file.header), [[*key, at] for key, at in file.newest.items()], file.seen]
                for name, file in self._files.items()
            },
        }

    def restore(self, state: Any) -> None:
        """Go on from there."""
        run = self._runs[state["run"]] = Run(state["run"])
        run.lives = {told["id"]: life_of(told) for told in state["lives"]}
        run.others = set(state["others"])
        run.segments.update({key: set(found) for key, found in state["segments"].items()})
        run.torn, run.lost = state["torn"], state["lost"]
        self._aside = set(state["aside"])
        for name, (offset, header, newest, seen) in state["files"].items():
            known = {(Kind(kind), thread): at for kind, thread, at in newest}
            self._files[name] = _File(offset, header, known, None if seen is None else (seen[0], seen[1]))

    def _run(self) -> Run:
        return self._runs[min(self._runs)]

    def _noted(self, log: RunLog) -> RunLog:
        for fault in self._faults:
            log.note("unusable-journal", f"Left out: {fault}")
        return log

    def _names(self) -> list[str]:
        try:
            found = {name for name in os.listdir(self._folder) if name.endswith(SUFFIX)}
        except FileNotFoundError:
            found = set()
        if found != self._known:
            self._known = found
            self._ordered = [path.name for path in sorted(map(Path, found), key=by_segment)]
        return self._ordered

    def _take_in(self, name: str, past: Past | None) -> None:
        """Take in what is new in one file."""
        file = self._files.get(name, _File())
        if file.seen is not None and file.seen == _stat(f"{self._folder}/{name}"):
            return
        path = self._folder / name
        try:
            if file.seen is None:
                data, gone = contents(path, file.offset, file.header)
                if file.offset or data.strip(b"\0"):  # else it was made just now
                    self._grow(path, file, data, past)
                    self._runs[file.header["run"]].lives[file.key].gone |= gone
            elif _read(path, file.offset).strip(b"\0"):
                raise Unsettled
        except OSError as error:
            if file.offset:
                raise Unsettled from None
            self._faults.append(f"{path}: cannot be read ({error.strerror}).")
        except UnusableData as fault:
            if file.offset:
                self._bad[name] = str(fault)  # what was taken in of it has to go
                raise Unsettled from None
            self._faults.append(str(fault))

    def _grow(self, path: Path, file: _File, data: bytes, past: Past | None) -> None:
        """Take in what was written after ``file.offset``."""
        first = not file.offset
        if first:
            file.header = header_of(path, data)
        hole = data.find(b"\0")  # behind one more may still come
        end = data.rfind(b"\n", 0, hole if hole >= 0 else None) + 1
        if first and not end:
            raise UnusableData(f"{path}: is no goodput journal (its first line is no header of one).")
        lines = [line for line in data[:end].split(b"\n")[first:] if line]
        growing = [line for line in data[end:].replace(b"\0", b"").split(b"\n") if line]
        file.length = len(data[end:].rstrip(b"\0"))
        if growing:
            growing[-1] = mended(growing[-1])
        events, torn = parse(b"\n".join(lines))
        file.growing, file.torn = parse(b"\n".join(growing))
        newest = dict(file.newest)
        check_order(path, events, newest)
        check_order(path, file.growing, dict(newest))
        self._add(file, events, torn, past)
        file.offset, file.newest = file.offset + end, newest
        self._files[path.name] = file

    def _add(self, file: _File, events: list[Event], torn: int, past: Past | None) -> None:
        name, key = file.header["run"], file.key
        run = self._runs.setdefault(name, Run(name))
        if past is not None and name == self._run().name:
            self._check(run, key, [*events, *file.growing], past)
        run.add(journal_of(file.header, events, torn))
        if key in run.others:
            run.lives[key] = Life(key, file.header["start"], [])
        if past is not None and past.life in run.others:
            raise Unsettled

    def _check(self, run: Run, key: str, events: Collection[Event], past: Past) -> None:
        """What is new leaves the past as it is."""
        if key in self._aside and events:
            raise Unsettled
        if key != past.life:
            return
        if any(event.kind is Kind.START and event.time < run.lives[key].start for event in events):
            raise Unsettled
        if not past.steps:
            return
        steps = run.lives[key].steps
        own, first = (0, steps.thread), steps.ordinals[CONTEXT]
        for event in events:
            early = event.time < past.called
            if early and (event.kind in AT_ONCE or (event.kind in ACTIVITIES and event.thread in own)):
                raise Unsettled
            if event.kind is Kind.IDLE and early:
                raise Unsettled
            if any(ordinal < first for ordinal in _done(event)):
                raise Unsettled

    def _check_starts(self, past: Past) -> None:
        run = self._run()
        for key, life in run.lives.items():
            if key != past.life and key not in run.others and life.start <= past.called:
                raise Unsettled


def _done(event: Event) -> list[int]:
    """The ordinals of the steps that the device has done, as an event tells."""
    if event.kind is Kind.DEVICE:
        return [] if event.step is None else [event.step]
    told = [~n for n in event.data[1:] if n < 0] if event.kind is Kind.RUN else []
    return told[: len(told) // 2 * 2 : 2]


def _copy(life: Life) -> Life:
    """A life to which more can be added."""
    steps = Steps(**{name: copy.copy(value) for name, value in vars(life.steps).items()})
    return replace(life, events=list(life.events), steps=steps)


def _read(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read()


def _stat(path: str) -> tuple[int, int] | None:
    try:
        told = os.stat(path)
    except OSError:
        return None
    return told.st_size, told.st_mtime_ns
