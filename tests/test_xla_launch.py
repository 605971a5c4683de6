"""PyTorch/XLA in each way to launch it: ordinals, processes, SPMD, Lightning, the example."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")

from running import Runner, reported
from xla_jobs import SCRIPTS, trained

from goodput_plugins.core.events import Kind
from goodput_plugins.core.reading import read_journal

pytestmark = pytest.mark.timeout(600)


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


def test_workers_of_torchrun_have_a_journal_each_their_helpers_none_and_the_first_is_counted(run: Runner) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = trained(run.folder, *launcher, str(SCRIPTS / "xla_ordinals.py"), GOODPUT_PROCESSES="all")
    pids = {int(line.split()[1]) for line in done.stdout.splitlines()}
    journals = [path for path in run.journals if path.suffix == ".jsonl"]
    told = {path.stem.rpartition("-")[2]: read_journal(path, path.read_bytes()) for path in journals}
    assert set(told) == {"p0", "p1"}
    assert {read.header["pid"] for read in told.values()} == pids
    assert reported(run.runs / "job")["steps"]["count"] == 6


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
    variables = {"XLA_PERSISTENT_CACHE_PATH": str(run.folder / "programs")}
    trained(run.folder, example, *arguments, "--steps", "40", **variables)
    done = trained(run.folder, example, *arguments, "--steps", "60", **variables)
    assert "resumed from the checkpoint after step 40" in done.stdout
    report = reported(run.runs / "job")
    assert [(a["first_step"], a["last_step"]) for a in report["attempts"]] == [(0, 39), (40, 59)]
    assert report["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"] == 0
    assert report["badput_seconds"]["CUSTOM_BADPUT_EVENTS"]["EVAL"] > 0
    startup = report["badput_detail"]["PROGRAM_STARTUP"]
    assert startup["COMPILE"] > startup["CACHE_LOAD"] > 0  # on a CPU the runtime finds programs and cannot load them
    (cache,) = [finding["text"] for finding in report["findings"] if finding["id"] == "program-cache"]
    assert cache.startswith("The persistent cache had 0 programs; it lacked ") and "training graph" in cache
