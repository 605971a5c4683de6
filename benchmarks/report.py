"""How long ``goodput report`` takes on a big run, and how that grows.

    python benchmarks/report.py [--steps 1000000 10000000]

Writes, through the real recorder and on a clock of its own, the journals that the JAX adapter would
write for a run of so many steps of about 0.1 s (each with its wait for data and the device's
answer), 100 attempts, 10,000 evaluations and 1,000 saves; then runs the command on them.
Target: 3 s and 300 MB for a million steps, and in proportion for ten.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from goodput_plugins.core.events import SCHEMA, Activity, Event, Kind, encode
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.testing import FakeClock

ATTEMPTS, EVALUATIONS, SAVES = 100, 10_000, 1_000
HEARTBEAT_NS = 5_000_000_000


class Job:
    """A job that never ran: its journals, on a clock that jumps."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder = folder
        self.steps = steps
        self.clock = FakeClock()
        self.step = 0
        self.jitter = random.Random(steps)

    def play(self) -> None:
        """Write the journals of all attempts."""
        for attempt in range(ATTEMPTS):
            journal = Journal(self.folder / f"{attempt:04}.jsonl")
            header = {"schema": SCHEMA, "run": "big", "attempt": f"{attempt:04}", "start": self.clock()}
            journal.write(json.dumps(header).encode() + b"\n")
            journal.write(encode(Event(Kind.START, self.clock())))
            recorder = Recorder(journal.write, self.clock)
            recorder.write_to(journal)
            self._attempt(recorder)
            journal.close()
            self.clock.advance(60)

    def _attempt(self, recorder: Recorder) -> None:
        recorder.plugin("jax", "0", ("TPU_INITIALIZATION", "PROGRAM_STARTUP"))
        self._during(recorder, Activity.IMPORT, 5)
        self._during(recorder, Activity.DEVICE_INIT, 2)
        if self.step:
            recorder.begin(Activity.RESTORE)
            self.clock.advance(3)
            recorder.finish(Activity.RESTORE, step=self.step - 1)
        beat = self.clock()
        for at in range(self.steps // ATTEMPTS):
            self._one_step(recorder, first=at == 0)
            if self.clock() - beat > HEARTBEAT_NS:
                recorder.heartbeat()
                beat = self.clock()

    def _one_step(self, recorder: Recorder, *, first: bool) -> None:
        self._during(recorder, Activity.DATA, 0.002)
        called = self.clock()
        if first:
            self._during(recorder, Activity.COMPILE, 5, "jit(train_step)")
        ordinal = recorder.step(self.step, at=called)
        self.clock.advance(self.jitter.uniform(0.09, 0.11))
        recorder.device_done(ordinal, self.clock())
        if self.step % (self.steps // EVALUATIONS) == 0:
            self._during(recorder, Activity.CUSTOM, 1, "EVAL")
        if self.step % (self.steps // SAVES) == 0:
            recorder.begin(Activity.SAVE, step=self.step)
            self.clock.advance(0.5)
            recorder.finish(Activity.SAVE, step=self.step)
            recorder.committed(self.step)
        self.step += 1

    def _during(self, recorder: Recorder, activity: Activity, seconds: float, name: str | None = None) -> None:
        recorder.begin(activity, name=name)
        self.clock.advance(seconds)
        recorder.finish(activity, name=name)


class Measured(NamedTuple):
    """What ``goodput report`` took: seconds by the clock and of processors, MB at its peak."""

    seconds: float
    processors: float
    memory: float


def measure(folder: Path, compiled: str) -> Measured:
    """Report on a run directory; ``compiled`` is where the bytecode lies, which an installation has from the start."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "goodput_plugins", "report", str(folder), "--json"]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env | {"PYTHONPYCACHEPREFIX": compiled})
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"goodput report failed ({status})")
    return Measured(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time `goodput report` on big runs.")
    parser.add_argument("--steps", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--runs", type=int, default=4, help="the fastest of so many counts")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; target: 3 s and 300 MB for 1,000,000 steps")
    print(f"{'steps':>12}  {'journals':>9}  {'seconds':>8}  {'us a step':>9}  {'processors':>10}  {'memory':>8}")
    for steps in options.steps:
        with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as compiled:
            Job(Path(place), steps).play()
            size = sum(path.stat().st_size for path in Path(place).iterdir()) / 1e6
            seconds, processors, memory = min(measure(Path(place), compiled) for _ in range(options.runs))
        us = seconds / steps * 1e6
        print(
            f"{steps:>12,}  {size:6.1f} MB  {seconds:8.2f}  {us:9.2f}  {processors:8.2f} s  {memory:5.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
