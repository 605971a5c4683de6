"""Runs that the doctor looks at, and what it finds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from goodput_plugins.agent.status import Status
from goodput_plugins.core import rundir
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import SCHEMA, Event, Kind, encode
from goodput_plugins.doctor import case as case_module
from goodput_plugins.doctor import examine
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, Level

S = 1_000_000_000
PACKAGE = Path(case_module.__file__).parent.parent
ARMED = Event(Kind.PLUGIN, 0, name="orbax", data={"version": "0.12", "sees": [Bucket.SAVE.value]})


def write(
    folder: Path,
    *events: Event,
    name: str = "digits",
    ago: int = 100,
    steps: int = 30,
    end: str | None = "completed",
    script: str = "/a/train.py",
) -> Path:
    """A run: a process that began so many seconds ago and took steps of a second."""
    start = time.time_ns() - ago * S
    times = [start + (5 + n) * S for n in range(steps)]
    told = [Event(Kind.START, start), *(event._replace(time=start) for event in events)]
    told += [Event(Kind.STEP, at, 0, n) for n, at in enumerate(times)]
    last = times[-1] + S if times else start + 10 * S
    told += [Event(Kind.END, last, name=end)] if end else []
    run = rundir.run_dir(name, folder)
    run.mkdir(parents=True, exist_ok=True)
    header = {"schema": SCHEMA, "run": name, "attempt": f"a{ago}", "start": start, "script": script}
    (run / rundir.journal_name(start)).write_bytes(json.dumps(header).encode() + b"\n" + b"".join(map(encode, told)))
    return run


def diagnoses(path: Path | None = None, *, now: int | None = None, **environ: str) -> dict[str, Diagnosis]:
    """What the doctor finds, by id; of several of one id the worst."""
    environ = {"PATH": os.environ["PATH"], "GOODPUT_DIR": "/nowhere", **environ}
    case = Case(path, environ, now=time.time_ns() if now is None else now)
    order = [Level.OK, Level.UNKNOWN, Level.WARNING, Level.WRONG]
    found = [diagnosis for _, group in examine(case) for diagnosis in group]
    return {one.id: one for one in sorted(found, key=lambda one: order.index(one.level))}


def is_wrong(diagnosis: Diagnosis, *words: str, level: Level = Level.WRONG) -> None:
    """A diagnosis that says what is, what it means and what to do, in these words among others."""
    assert diagnosis.level is level, diagnosis
    assert diagnosis.meaning and diagnosis.cure
    assert all(word in f"{diagnosis.text} {diagnosis.meaning} {diagnosis.cure}" for word in words), diagnosis


def told_by_agent(run: Path, *, age: float = 0, exporters: Any = None, **status: Any) -> Path:
    """What an agent writes beside the journals."""
    Status(**{"state": "shipping", **status}).save(run)
    told = json.loads((run / "agent.json").read_text())
    told |= {"moment": told["moment"] - age} | ({"exporters": exporters} if exporters else {})
    (run / "agent.json").write_text(json.dumps(told))
    return run
