"""What sending a run costs: bytes and entries a step, ours against an entry for each event; the agent's CPU.

    python benchmarks/shipping.py [SECONDS]

Trains at 10 steps a second, each with a wait for data, and sends it to a server of Cloud Logging's
protocol in this process. Against it stands what Google's library writes: an entry for the start of each
step, and for the start and the end of each wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from cloud import Cloud
from google.cloud.logging_v2.types import LogEntry

SETTLED = 12.0
"""After so long the agent has loaded its libraries and goes round, s."""
TRAIN = """
import sys, time
from goodput_plugins.core.events import Activity
from goodput_plugins.core.session import current
recorder = current().recorder
began = time.monotonic()
number = 0
while (passed := time.monotonic() - began) < {seconds}:
    with recorder.activity(Activity.DATA):
        time.sleep(0.001)
    recorder.step(number)
    number += 1
    time.sleep(max(0.0, number / 10 - (time.monotonic() - began)))
print(number)
"""


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as place, Cloud() as cloud:
        folder = Path(place) / "goodput" / "run"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GOODPUT_")}
        environ |= cloud.environ | {"GOODPUT_DIR": str(folder.parent), "GOODPUT_RUN_NAME": "run"}
        script = TRAIN.format(seconds=seconds + SETTLED)
        training = subprocess.Popen([sys.executable, "-c", script], env=environ, stdout=subprocess.PIPE, text=True)
        time.sleep(SETTLED)
        pid = json.loads((folder / "agent.json").read_text())["pid"]
        before, begun = cpu_of(pid), time.monotonic()
        time.sleep(seconds - 1)
        cpu = (cpu_of(pid) - before) / (time.monotonic() - begun)
        memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        steps = int(training.communicate()[0])
        sizes = [entry.ByteSize() for entry in cloud.written]
        like = cloud.written[0]
        theirs = sum(entry_by_entry(step, like) for step in range(steps))
        print(f"{steps} steps, 10 a second")
        for what, ours, each in (("bytes", sum(sizes), theirs), ("entries", len(sizes), 3 * steps)):
            print(f"{what} a step: {ours / steps:.3f}, entry by entry {each / steps:.1f}: 1/{each / ours:.0f}")
        print(f"the agent: {100 * cpu:.2f} % of a core, {memory / 1e6:.0f} MB")


def entry_by_entry(step: int, like: Any) -> int:
    """How many bytes the entries of one step and its wait take, as protobuf, of the log and resource of another."""
    now = time.time() + step / 10
    payloads: list[dict[str, Any]] = [
        {"job_name": "run", "step_count": step, "step_start_time": now},
        {"job_name": "run", "data_loading_start_time": now},
        {"job_name": "run", "data_loading_end_time": now},
    ]
    return sum(_entry(payload, now, like) for payload in payloads)


def _entry(payload: dict[str, Any], now: float, like: Any) -> int:
    entry = LogEntry.pb(LogEntry())
    entry.severity = like.severity
    entry.log_name = like.log_name
    entry.resource.CopyFrom(like.resource)
    entry.insert_id = "1x2y3z4a5b6c7d"  # the server gives one of this length
    entry.timestamp.FromNanoseconds(int(now * 1e9))
    entry.receive_timestamp.FromNanoseconds(int(now * 1e9))
    entry.json_payload.update(payload)
    return int(entry.ByteSize())


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
