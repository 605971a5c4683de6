"""What ``goodput report`` takes on a big export of Google's payloads, and how that grows.

    python benchmarks/scale.py [--steps 1000000 10000000] [--hosts 2]

Writes, as ``gcloud logging read --format=json`` prints them, the entries of a job of so many steps: three
a step, 100 restarts, 10,000 custom events, 1,000 saves; with ``--hosts 2`` each is told twice, some
milliseconds later. Runs the command on them; then polls a live report of them, each time with 10 new events.
Where Google's library is installed, its calculator is run on the same entries. Targets for a million steps:
10 s and 300 MB, and 5 ms a poll.
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
from itertools import islice
from pathlib import Path
from typing import Any

from goodput_plugins.core.live import Live
from goodput_plugins.core.live.entries import Entries

RESTARTS, EVENTS, SAVES = 100, 10_000, 1_000
BEGAN = 1_780_000_000.0
STEP = 0.1
"""Seconds."""
LAG = 0.004
"""Seconds by which the next host tells the same later."""

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
            blocking = {
                "checkpoint_manager_blocking_start_time": at,
                "checkpoint_manager_blocking_duration_secs": 0.5,
            }
            at += 0.5
            yield at, {"event_type": "save", "step": step, "synchronous": False, **blocking}
    yield at, {"job_end_time": at}


def entry(number: int, at: float, payload: dict[str, Any]) -> str:
    moment = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
    told = json.dumps({"job_name": "big", **payload}, indent=4).replace("\n}", "\n  }")
    return ENTRY % (f"{number:012x}", told, moment, moment)


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


def polled(steps: int) -> list[float]:
    """Milliseconds of polls of a live report, each with 10 new events, after so many steps."""
    told = ({"job_name": "big", **payload} for _, payload in payloads(steps + 1_000))
    source = Entries("big", lambda: islice(told, 3 * steps))
    live, took = Live(source), []
    live.report()
    while new := list(islice(told, 10)):
        source.add(new)
        began = time.perf_counter()
        live.report()
        took.append((time.perf_counter() - began) * 1e3)
    return sorted(took)


def measure(path: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory (MB) of ``goodput report`` on an export."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "goodput_plugins", "report", str(path), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"goodput report failed ({status})")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def theirs(steps: int) -> float | None:
    """Seconds that the library takes for one answer on the same entries; None where it is not installed."""
    if importlib.util.find_spec("ml_goodput_measurement") is None:
        return None
    from ml_goodput_measurement import goodput

    class Log:
        def read_cloud_logging_entries(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
            return [{"job_name": "big", **payload} for _, payload in payloads(steps)]

    began = time.perf_counter()
    goodput.GoodputCalculator("big", "goodput_big", Log()).get_job_goodput(include_badput_breakdown=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description="Time `goodput report` on big exports.")
    parser.add_argument("--steps", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3, help="the fastest of so many counts")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; targets for 1,000,000 steps: 10 s, 300 MB, 5 ms")
    heads = f"{'steps':>12}  {'export':>9}  {'seconds':>8}  {'CPU':>8}  {'memory':>8}"
    print(f"{heads}  {'a poll (99 %)':>17}  {'library':>8}")
    for steps in options.steps:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "entries.json"
            write(path, steps, options.hosts)
            size = path.stat().st_size / 1e6
            seconds, cpu, memory = min(measure(path) for _ in range(options.runs))
        polls, library = polled(steps), theirs(steps)
        poll = f"{polls[len(polls) // 2]:.1f} ({polls[len(polls) * 99 // 100]:.1f}) ms"
        beside = "-" if library is None else f"{library:8.1f}"
        print(f"{steps:>12,}  {size:6.0f} MB  {seconds:8.2f}  {cpu:8.2f}  {memory:5.0f} MB  {poll:>17}  {beside:>8}")


if __name__ == "__main__":
    main()
