"""A job whose reports an agent sends, and what there is of it then."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from followed import Followed
from prometheus_client.parser import text_string_to_metric_families
from running import Runner

TRAIN = """
import os, sys, time
from goodput_plugins.core.session import current
recorder = current().recorder
def train(steps, first=0, each=0.05):
    for number in range(first, first + steps):
        recorder.step(number)
        time.sleep(each)
"""


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to be so"
        time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@dataclass
class Job(Followed):
    """A job whose reports are sent.

    Attributes:
        run: runs its scripts.
        variables: of its environment.
    """

    run: Runner
    variables: dict[str, str] = field(default_factory=dict)
    name: str = "r"

    def environ(self) -> dict[str, str]:
        known = {"GCE_METADATA_HOST": "127.0.0.1:9", "GOODPUT_RUN_NAME": self.name, "GOODPUT_FLUSH_TIMEOUT": "60"}
        return self.run.environ(**known | self.variables)

    def start(self, source: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.run.command(TRAIN + source),
            env=self.environ(),
            cwd=self.run.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def agent_by_hand(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "goodput_plugins", "agent", self.name, *options]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "agent.log").open("ab") as log:
            return subprocess.Popen(command, env=self.environ(), cwd=self.run.folder, stdout=log, stderr=log)

    @property
    def folder(self) -> Path:
        return self.run.runs / self.name

    @property
    def exporters(self) -> dict[str, Any]:
        return dict(self.status.get("exporters") or {})

    def kill_agent(self) -> None:
        with suppress(KeyError, ProcessLookupError):
            os.kill(self.status["pid"], signal.SIGKILL)


def scrape(port: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def answers(port: int) -> bool:
    """Whether an agent's page can be had there."""
    try:
        return bool(scrape(port))
    except OSError:
        return False


def board(folder: Path) -> dict[str, list[tuple[float, int, float]]]:
    """Each tag's points in TensorBoard's files: wall time, step, value."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {
        tag: [(point.wall_time, point.step, point.value) for point in read.Scalars(tag)]
        for tag in read.Tags()["scalars"]
    }
