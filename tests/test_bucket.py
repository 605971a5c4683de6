"""Runs that lie in a bucket: recorded into a folder here, uploaded as they grow, read back anywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gcsfs")

from bucket import URL, Storage
from running import Runner, reported

from goodput_plugins.core import rundir
from goodput_plugins.exporters.bucket import Bucket
from goodput_plugins.exporters.errors import Unavailable

TRAIN = """
import os, time
from goodput_plugins.core.session import current
recorder = current().recorder
def train(first, last):
    for number in range(first, last):
        recorder.step(number)
        time.sleep(0.02)
"""


@pytest.fixture
def storage() -> Iterator[Storage]:
    with Storage() as server:
        yield server


class Machine:
    """A machine whose runs lie in the bucket."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        folder.mkdir()
        self.run = Runner(folder)
        self.variables = {
            **storage.environ,
            "GOODPUT_DIR": URL,
            "GOODPUT_RUN_NAME": "r",
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        self.folder = rundir.run_dir("r", rundir.root(self.variables))

    def __call__(self, source: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.run(TRAIN + source, **self.variables, **more)

    def report(self, *words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "goodput_plugins", "report", "--json", *words]
        done = subprocess.run(
            command, env=self.run.environ(**self.variables), capture_output=True, check=False, cwd=self.run.folder
        )
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def end(self) -> None:
        """Kill the agent, which may not have begun yet."""
        deadline = time.monotonic() + 20
        while not (self.folder / "agent.json").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        with suppress(OSError, ValueError):
            os.kill(json.loads((self.folder / "agent.json").read_text())["pid"], 9)


def test_a_run_in_a_bucket_goes_on_on_another_machine(tmp_path: Path, storage: Storage) -> None:
    machines = [Machine(tmp_path / name, storage) for name in ("one", "other")]
    try:
        machines[0]("train(0, 100); raise ValueError", code=1)
        assert set(storage.uploads) == {name for name in storage.objects if name.startswith("goodput/r/")}
        machines[0].end()
        shutil.rmtree(machines[0].folder.parent)  # the machine goes, and its disk
        done = machines[1]("train(50, 150)")
        assert done.stderr == ""
        assert len(storage.objects) == 2
        assert not any(b"\0" in data for data in storage.objects.values())
        told = machines[0].report("r")
        assert [attempt["exit"] for attempt in told["attempts"]] == ["exception:ValueError", "completed"]
        assert told["steps"]["last"] == 149 and told["disruptions"] == 1
        assert machines[0].report() == machines[0].report(f"{URL}/r") == told
        deadline = time.monotonic() + 30
        while len(list(machines[1].folder.glob("*.jsonl"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert {**reported(machines[1].folder), "findings": ()} == {**told, "findings": ()}
    finally:
        machines[1].end()


def test_what_is_uploaded_grows_in_small_files(tmp_path: Path, storage: Storage) -> None:
    machine = Machine(tmp_path / "one", storage)
    try:
        machine("for number in range(400_000): recorder.step(number)")
        sizes = [len(data) for data in storage.objects.values()]
        assert len(sizes) > 2 and max(sizes) < 2_000_000
        assert machine.report("r")["steps"]["last"] == 399_999
    finally:
        machine.end()


def test_a_bucket_that_cannot_be_reached_leaves_everything_here(tmp_path: Path, storage: Storage) -> None:
    machine = Machine(tmp_path / "one", storage)
    machine.variables["GOODPUT_FLUSH_TIMEOUT"] = "1"
    storage.broken = True
    try:
        assert machine("train(0, 20)").stderr == ""
        assert reported(machine.folder)["steps"]["count"] == 20
        assert storage.objects == {}
    finally:
        machine.end()


def test_other_protocols_and_missing_libraries(tmp_path: Path) -> None:
    here = Bucket(f"file://{tmp_path}")
    here.put("a.jsonl", b"x")
    assert here.sizes() == {"a.jsonl": 1} and here.get("a.jsonl") == b"x" and here.sizes("nothing") == {}
    with pytest.raises(Unavailable, match="pip install"):
        Bucket("nowhere://a/b")
    assert rundir.remote({"GOODPUT_DIR": "/a/b"}) == "" and rundir.remote({"GOODPUT_DIR": "gs://a/b/"}) == "gs://a/b"
