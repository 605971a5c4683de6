"""Whole PyTorch/XLA jobs under the switch, compared with what they timed themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")

from running import Runner, reported

from goodput_plugins.core.events import Kind

pytestmark = pytest.mark.timeout(300)
SCRIPTS = Path(__file__).parent / "scripts"


def trained(folder: Path, *command: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the interpreter under the switch."""
    names = {"GOODPUT_PLUGINS": "auto", "GOODPUT_RUN_NAME": "job", "PJRT_DEVICE": "CPU"}
    done = subprocess.run(
        [sys.executable, *command],
        env=Runner(folder).environ(**names | variables),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == code, done.stderr
    assert "goodput: " not in done.stderr
    return done


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


# --- ordinals and processes ------------------------------------------------------------------------------------------


def test_two_ordinals_in_the_child_of_launch_are_one_journal_and_each_step_counts_once(run: Runner) -> None:
    done = trained(run.folder, str(SCRIPTS / "xla_ordinals.py"), CPU_NUM_DEVICES="2")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(ordinal for *_, ordinal in lines) == ["0", "1"]
    head, events = run.recorded()
    assert [head["pid"]] * 2 == [int(pid) for _, pid, *_ in lines]
    assert len([event for event in events if event.kind is Kind.STEP]) == 6
    report = reported(run.runs / "job")
    assert report["steps"]["source"] == "host"
    assert {"host-step-times", "data-overlap-unknown"} <= {finding["id"] for finding in report["findings"]}


def test_workers_of_torchrun_are_processes_of_one_job_and_the_first_is_counted(run: Runner) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = trained(run.folder, *launcher, str(SCRIPTS / "xla_ordinals.py"))
    assert len(done.stdout.splitlines()) == 2
    _, events = run.recorded()
    assert len([event for event in events if event.kind is Kind.STEP]) == 6
    assert [event.step for event in events if event.kind is Kind.RANK] == [0] * len(
        [event for event in events if event.kind is Kind.RANK]
    )


def test_spmd_is_one_process_whose_steps_are_timed_on_the_device(run: Runner) -> None:
    trained(run.folder, str(SCRIPTS / "xla_ordinals.py"), "spmd", CPU_NUM_DEVICES="2")
    _, events = run.recorded()
    assert len([event for event in events if event.kind is Kind.STEP]) == 6
    assert {event.step for event in events if event.kind is Kind.DEVICE} | {0, 1, 2, 3, 4, 5} == {0, 1, 2, 3, 4, 5}
    report = reported(run.runs / "job")
    assert report["steps"]["source"] == "device" and report["steps"]["count"] == 6


def test_lightning_on_an_xla_device_counts_once(run: Runner) -> None:
    done = trained(run.folder, str(SCRIPTS / "xla_lightning.py"), str(run.folder / "work"))
    assert done.stdout.split()[-1] == "10"
    report = reported(run.runs / "job")
    assert report["steps"]["count"] == 10 and report["steps"]["source"] == "device"
    assert report["badput_detail"]["PROGRAM_STARTUP"]["COMPILE"] > 0
    assert report["badput_seconds"]["UNPRODUCTIVE_CHECKPOINT_SAVE_TIME"] > 0
    assert os.path.exists(run.folder / "work")


# --- the example -----------------------------------------------------------------------------------------------------


def test_the_example_trains_and_goes_on_from_its_checkpoint(run: Runner) -> None:
    pytest.importorskip("sklearn")
    example = str(Path(__file__).parent.parent / "examples" / "digits_torch_xla.py")
    arguments = ("--workdir", str(run.folder / "work"), "--save-every", "20", "--log-every", "20")
    trained(run.folder, example, *arguments, "--steps", "40")
    done = trained(run.folder, example, *arguments, "--steps", "60")
    assert "resumed from the checkpoint after step 40" in done.stdout
    report = reported(run.runs / "job")
    assert [(a["first_step"], a["last_step"]) for a in report["attempts"]] == [(0, 39), (40, 59)]
    assert report["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"] == 0
    assert report["badput_seconds"]["CUSTOM_BADPUT_EVENTS"]["EVAL"] > 0
