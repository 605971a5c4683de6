"""Whole PyTorch/XLA jobs under the switch, compared with what they timed themselves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")

from running import reported
from xla_jobs import SCRIPTS, trained

pytestmark = pytest.mark.timeout(300)


# --- a job that is killed and goes on --------------------------------------------------------------------------------


@dataclass
class Timed:
    """What the two lives of ``timed_xla.py`` timed, and the report."""

    truth: list[dict[str, float]]
    report: dict[str, Any]

    def timed(self, what: str) -> float:
        return sum(life.get(what, 0.0) for life in self.truth)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Timed:
    """Fourteen steps: killed after the tenth, resumed behind the eighth, which was saved."""
    folder = tmp_path_factory.mktemp("job")
    script = str(SCRIPTS / "timed_xla.py")
    trained(folder, script, "first.json", "14", "10", code=-9)
    trained(folder, script, "second.json", "14", "0")
    truth = [json.loads((folder / name).read_text()) for name in ("first.json", "second.json")]
    return Timed(truth, reported(folder / "runs" / "job"))


BUCKETS = {
    "wait": "DATA_LOADING_SYNC",
    "save": "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
    "restore": "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",
}


@pytest.mark.parametrize("what", BUCKETS)
def test_waits_saves_and_restores_are_what_the_script_timed(job: Timed, what: str) -> None:
    truth = job.timed(what)
    assert job.report["badput_seconds"][BUCKETS[what]] == pytest.approx(truth, abs=max(0.1, 0.02 * truth))


def test_what_is_left_is_the_work_that_the_script_timed(job: Timed) -> None:
    badput, detail = job.report["badput_seconds"], job.report["badput_detail"]
    work = job.report["goodput_seconds"] + badput["PROGRAM_STARTUP"] + badput["WASTED_PROGRESS_FROM_DISRUPTION"]
    work += badput["OTHER"] - detail["OTHER"].get("TEARDOWN", 0.0)
    assert work == pytest.approx(job.timed("work"), abs=max(0.15, 0.05 * job.timed("work")))


def test_steps_are_counted_exactly_over_the_restart_and_timed_on_the_device(job: Timed) -> None:
    first, second = job.report["attempts"]
    assert (first["first_step"], first["last_step"]) == (0, 9)
    assert (second["first_step"], second["last_step"]) == (8, 13)
    steps = job.report["steps"]
    assert (steps["count"], steps["max_productive"], steps["source"]) == (14, 13, "device")
    assert job.report["disruptions"] == 1 and first["exit"] == "lost" and second["exit"] == "completed"
    wasted = next(finding for finding in job.report["findings"] if finding["id"] == "wasted-progress")
    assert wasted["text"].startswith("2 steps were rolled back")


def test_the_change_of_shape_is_a_finding_with_its_step(job: Timed) -> None:
    (found,) = [finding for finding in job.report["findings"] if finding["id"] == "recompiles"]
    assert found["text"].startswith("1 compilation of what had been compiled: training graph (1 x,")
    assert found["text"].endswith("at step 7).")
    startup = job.report["badput_detail"]["PROGRAM_STARTUP"]
    assert startup["COMPILE"] >= found["seconds"] > 0
    assert startup["COMPILE"] + startup["LOWER"] <= job.timed("work")


def test_the_runtime_is_seen_to_start(job: Timed) -> None:
    assert 0 < job.report["badput_seconds"]["TPU_INITIALIZATION"] < 30
    assert set(job.report["plugins"]) >= {"torch", "torch_xla"}


def test_a_save_between_an_optimizers_step_and_its_marker_is_a_save(tmp_path: Path) -> None:
    planted = float(trained(tmp_path, str(SCRIPTS / "saves_before_marker_xla.py")).stdout.split()[-1])
    report = reported(tmp_path / "runs" / "job")
    saved = report["badput_seconds"]["UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"]
    assert planted <= saved + 0.001 <= planted + 0.4
    assert report["badput_detail"]["PROGRAM_STARTUP"].get("LOWER", 0.0) < 0.3
    assert report["badput_detail"]["OTHER"].get("SLOW_STEP", 0.0) < 0.3
