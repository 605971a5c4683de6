"""What TensorBoard shows, read back through its own server, is the report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboardX", reason="tensorboardX is not installed here")
pytest.importorskip("tensorboard", reason="tensorboard is not installed here")

from exported import T0, S, report
from tensorboardX.record_writer import RecordWriter

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.tensorboard import TensorBoard, scalars

UNTILS = (20, 60, 100)
WINDOW = report(window=(T0 + 50 * S, T0 + 110 * S))


def snapshot(until: int) -> Snapshot:
    return Snapshot(T0 + (10 + until) * S, report(until), {60: WINDOW})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real TensorBoard over what two writers wrote, one after the other."""
    folder = tmp_path_factory.mktemp("tensorboard")
    for untils in (UNTILS[:1], UNTILS[1:]):
        exporter = TensorBoard(str(folder))
        for until in untils:
            exporter.export(snapshot(until))
        exporter.close()
    port_file = folder.parent / "port"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0", "--load_fast", "false"]
    with (
        port_file.open("w") as told,
        subprocess.Popen([*command, "--host", "127.0.0.1"], stderr=told, stdout=told, env=os.environ) as server,
    ):
        try:
            yield _address(port_file, server)
        finally:
            server.kill()


def _address(told: Path, server: subprocess.Popen[bytes]) -> str:
    for _ in range(600):
        text = told.read_text()
        if "http://" in text:
            return "http://" + text.split("http://")[1].split()[0].rstrip("/")
        assert server.poll() is None, text
        time.sleep(0.1)
    raise AssertionError(told.read_text())


def ask(address: str, path: str, plugin: str = "scalars") -> Any:
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"{address}/data/plugin/{plugin}/{path}", timeout=10) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError:
            found = None
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(path)


@pytest.mark.timeout(180)
def test_tensorboard_shows_the_report_over_restarts_of_its_writer(served: str) -> None:
    tags = ask(served, "tags")["."]
    last = dict(scalars(snapshot(UNTILS[-1])))
    assert set(tags) == set(last)
    assert {"goodput/goodput", "badput/custom_badput_events/eval_0", "step_deviation"} <= set(tags)
    assert f"badput/{Bucket.RESTORE.value.lower()}" not in tags  # unknown is no zero
    for tag in ("goodput/goodput", "rolling_60s/goodput/goodput", "steps/p50_seconds"):
        points = ask(served, f"scalars?run=.&tag={tag}")
        assert [(wall, step) for wall, step, _ in points] == [(T0 / S + 10 + u, u // 2 - 1) for u in UNTILS]
        assert points[-1][2] == pytest.approx(last[tag], rel=1e-6)
    assert "percent of the last 60 s" in tags["rolling_60s/badput/training_prep"]["description"]
    assert all("percent" in told["description"] for tag, told in tags.items() if "badput/" in tag)
    shares = [value for tag, value in last.items() if tag.startswith(("goodput/goodput", "badput/"))]
    assert sum(shares) == pytest.approx(100)


def test_tags_that_belong_together_are_one_chart(served: str) -> None:
    (category,) = ask(served, "layout", "custom_scalars")["category"]
    tags = ask(served, "tags")["."]
    for chart in category["chart"]:
        for wanted in chart["multiline"]["tag"]:
            assert any(re.search(wanted, tag) for tag in tags), chart["title"]


def test_a_restart_is_a_stair_and_a_new_job_begins_anew(tmp_path: Path) -> None:
    """The highest step of all attempts, which the newest has not reached again yet; of this generation."""
    exporter = TensorBoard(str(tmp_path))
    first = report(100)
    back = replace(first, steps=replace(first.steps, last=30))
    anew = replace(back, generation=1, attempts=())
    assert [exporter._step(one) for one in (first, back, anew, first)] == [49, 49, 30, 49]
    exporter.close()


def test_a_disk_that_was_full_costs_what_was_written_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    exporter = TensorBoard(str(tmp_path))
    exporter.export(snapshot(UNTILS[0]))
    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, "write", full)
        for _ in range(3):
            with pytest.raises(OSError):
                exporter.export(snapshot(UNTILS[1]))
    exporter.export(snapshot(UNTILS[2]))
    exporter.close()
    assert len(list(tmp_path.iterdir())) == 2  # what took nothing is gone
    read = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload()
    assert [point.step for point in read.Scalars("goodput/goodput")] == [UNTILS[0] // 2 - 1, UNTILS[2] // 2 - 1]


def test_a_folder_that_was_emptied_meanwhile_gets_the_next_values(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    exporter = TensorBoard(str(tmp_path / "tb"))
    exporter.export(snapshot(UNTILS[0]))
    shutil.rmtree(tmp_path / "tb")
    for until in UNTILS[1:]:
        exporter.export(snapshot(until))
    exporter.close()
    assert len(list((tmp_path / "tb").iterdir())) == 1
    read = EventAccumulator(str(tmp_path / "tb"), size_guidance={"scalars": 0}).Reload()
    assert [point.step for point in read.Scalars("goodput/goodput")] == [until // 2 - 1 for until in UNTILS[1:]]
