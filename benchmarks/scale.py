"""What a report takes on a big export of Google's payloads, what a poll takes after it, and how that grows.

    python benchmarks/scale.py [--steps 100000 1000000 10000000] [--hosts 2]

Writes, as ``gcloud logging read --format=json`` prints them, the entries of a job of so many steps: three
a step, 100 restarts, 10,000 custom events, 1,000 saves; with ``--hosts 2`` each is told twice, some
milliseconds later. Runs ``goodput report`` on them; then polls a live report of them, each time with 10 new events.
Where Google's library is installed, its calculator is run on the same entries. Beside each figure stands its
target: for a million steps 10 s, 300 MB and 5 ms a poll; for more steps as many times the time and memory, and the same
poll.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from goodput_plugins.core.live import Live
from goodput_plugins.core.live.entries import Entries
from goodput_plugins.core.orbax_payloads import checkpoint

RESTARTS, EVENTS, SAVES = 100, 10_000, 1_000
BEGAN = 1_780_000_000.0
STEP = 0.1
"""Seconds."""
LAG = 0.004
"""Seconds by which the next host tells the same later."""
MILLION = 1_000_000
SECONDS, MEGABYTES, POLL_MS = 10.0, 300.0, 5.0
"""Targets for a million steps."""

ENTRY = """{
  "insertId": "%s",
  "jsonPayload": %s,
  "labels": {
    "python_logger": "goodput_big"
  },
  "logName": "projects/example/logs/goodput_big",
  "receiveTimestamp": "%s",
  "resource": {
    "labels": {
      "project_id": "example"
    },
    "type": "global"
  },
  "severity": "INFO",
  "timestamp": "%s"
}"""


def payloads(steps: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """What the job tells, and when."""
    at, each = BEGAN, steps // RESTARTS
    for step in range(steps):
        if step % each == 0:
            at += 60
            yield at, {"job_start_time": at}
            yield at + 1, {"tpu_init_start_time": at + 1}
            yield at + 5, {"tpu_init_end_time": at + 5}
            at += 10
        yield at, {"data_loading_start_time": at}
        yield at + 0.002, {"data_loading_end_time": at + 0.002}
        at += 0.003
        yield at, {"step_count": step, "step_start_time": at}
        at += STEP + (step * 7919 % 101) * 1e-5
        if step % max(1, steps // EVENTS) == 0:
            yield at, {"custom_badput_event_type": "eval", "custom_badput_event_start_time": at}
            at += 1
            yield at, {"custom_badput_event_type": "eval", "custom_badput_event_end_time": at}
        if step % max(1, steps // SAVES) == 0:
            yield at + 0.5, checkpoint("save", step, int(at * 1e9), int((at + 0.5) * 1e9))
            at += 0.5
    yield at, {"job_end_time": at}


def entry(number: int, at: float, payload: dict[str, Any]) -> str:
    moment = f"{_second(int(at))}.{int(at % 1 * 1e6):06}Z"
    told = json.dumps({"job_name": "big", **payload}, separators=(",\n    ", ": "))
    return ENTRY % (f"{number:012x}", f"{{\n    {told[1:-1]}\n  }}", moment, moment)


@lru_cache(maxsize=8)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def later(payload: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The same as another host tells it."""
    return {key: value + seconds if key.endswith("_time") else value for key, value in payload.items()}


def write(path: Path, steps: int, hosts: int) -> None:
    with path.open("w") as file:
        file.write("[\n")
        for number, (at, payload) in enumerate(payloads(steps)):
            for host in range(hosts):
                told = entry(number * hosts + host, at + host * LAG, later(payload, host * LAG))
                file.write(("" if number == 0 and host == 0 else ",\n") + told)
        file.write("\n]\n")


class Polls(NamedTuple):
    """Milliseconds of polls of a live report (of the processor: their median), and how many steps it still looks at."""

    median: float
    nearly_all: float
    cpu: float
    kept: int


def polled(steps: int) -> Polls:
    """Polls, each with 10 new events, after so many steps."""
    told = ({"job_name": "big", **payload} for _, payload in payloads(steps + 1_000))
    source = Entries("big", lambda: islice(told, 3 * steps))
    live, took, cpu = Live(source), [], []
    live.report()
    while new := list(islice(told, 10)):
        source.add(new)
        began, worked = time.perf_counter(), time.process_time()
        live.report()
        took.append((time.perf_counter() - began) * 1e3)
        cpu.append((time.process_time() - worked) * 1e3)
    took.sort()
    kept = sum(len(life.steps.times) for life in source.log().lives)
    return Polls(took[len(took) // 2], took[len(took) * 99 // 100], sorted(cpu)[len(cpu) // 2], kept)


class Measured(NamedTuple):
    """Wall seconds, CPU seconds and peak memory (MB), that of a second process included."""

    seconds: float
    cpu: float
    memory: float


def measure(path: Path) -> Measured:
    """What ``goodput report`` takes on an export."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "goodput_plugins", "report", str(path), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0.0
    while True:
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        peak = max(peak, memory(process.pid))
        time.sleep(0.05)
    if status:
        raise SystemExit(f"goodput report failed ({status})")
    return Measured(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, max(peak, usage.ru_maxrss / 1024))


def memory(process: int) -> float:
    """What a process and its children hold, MB; what they share is counted once."""
    try:
        told = Path(f"/proc/{process}/smaps_rollup").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended meanwhile
        return 0.0
    held = next((int(line.split()[1]) / 1024 for line in told.splitlines() if line.startswith("Pss:")), 0.0)
    return held + sum(memory(int(child)) for child in children)


def theirs(steps: int) -> float | None:
    """Seconds that the library takes for one answer on the same entries; None where it is not installed."""
    if importlib.util.find_spec("ml_goodput_measurement") is None:
        return None
    from ml_goodput_measurement import goodput

    class Log:
        def read_cloud_logging_entries(self, *_: Any, **__: Any) -> Any:
            entries = [{"job_name": "big", **payload} for _, payload in payloads(steps)]
            return entries, (datetime.now(UTC), "last")  # as 0.2.3 of the library has it

    with tempfile.TemporaryDirectory() as cache:
        began = time.perf_counter()
        calculator = goodput.GoodputCalculator("big", "goodput_big", Log(), cache_dir=cache)
        calculator.get_job_goodput(include_badput_breakdown=True)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description="Time `goodput report` on big exports.")
    parser.add_argument("--steps", type=int, nargs="+", default=[MILLION // 10, MILLION])
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="the fastest of so many counts")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for steps in options.steps:
        told = exported(steps, options.hosts, options.runs)
        share = steps * options.hosts / MILLION
        polls, library = polled(steps), theirs(steps)
        print(f"{steps:,} steps, an export of {told.size:,.0f} MB")
        show("report", told.report.seconds, "s", SECONDS * share)
        show("  processor time", told.report.cpu, "s")
        show("  peak memory", told.report.memory, "MB", max(MEGABYTES, MEGABYTES * share))
        show("poll with 10 new events, median", polls.median, "ms", POLL_MS)
        show("  99 %", polls.nearly_all, "ms")
        show("  processor time, median", polls.cpu, "ms")
        show("  steps that are still looked at", polls.kept, "")
        if library is not None:
            show("Google's library, one answer", library, "s")


class Told(NamedTuple):
    """An export's size (MB), and what a report of it took."""

    size: float
    report: Measured


def exported(steps: int, hosts: int, runs: int) -> Told:
    """Write an export and have its report made."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "entries.json"
        write(path, steps, hosts)
        return Told(path.stat().st_size / 1e6, min(measure(path) for _ in range(runs)))


def show(what: str, figure: float, unit: str, target: float | None = None) -> None:
    """Print a figure beside its target."""
    beside = "" if target is None else f"target {target:,.0f} {unit}{'' if figure <= target else ', missed'}"
    print(f"  {what:<34} {figure:>10,.1f} {unit:<3} {beside}", flush=True)


if __name__ == "__main__":
    main()
