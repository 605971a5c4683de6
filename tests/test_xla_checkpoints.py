"""Checkpoints in PyTorch/XLA: what a save blocks, from the wait for values on, and when it is durable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.experimental.distributed_checkpoint as xc
import torch_xla.utils.serialization as serialization
from observing import Observation, observed
from training import process_group
from xla_loop import ARMED, Job, sync

from goodput_plugins.core.events import Activity, Kind

SLEEP = 0.2


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(*ARMED) as observation:
        yield observation


class SlowToSave:
    """State that takes its time to be written."""

    def __reduce__(self) -> Any:
        time.sleep(SLEEP)
        return SlowToSave, ()


def held(seen: Observation) -> list[int]:
    return [event.data["steps"] for event in seen.of(Kind.COMMIT)]


def test_a_save_is_one_with_bringing_the_values_to_the_host(seen: Observation, tmp_path: Path) -> None:
    job, took = Job(), 0.0
    for number, batch in enumerate(job.loader(4)):
        job.backward(batch)
        xm.optimizer_step(job.optimizer, barrier=True)
        if number % 2:
            began = time.perf_counter()
            xm.save({"model": job.model.state_dict(), "slow": SlowToSave()}, tmp_path / f"{number}.pt")
            took += time.perf_counter() - began
    assert len(seen.stretches(Activity.SAVE)) == 2 and held(seen) == [2, 4]
    assert seen.seconds(Activity.SAVE) == pytest.approx(took, abs=0.1)
    assert [len(event.data["files"]) for event in seen.of(Kind.COMMIT)] == [1, 1]
    xm.save({"losses": torch.ones(3).to(job.device)}, tmp_path / "no-state.pt")
    assert len(seen.stretches(Activity.SAVE)) == 2


def test_serialization_saves_and_loads_one_checkpoint_with_all_its_files(seen: Observation, tmp_path: Path) -> None:
    job = Job()
    sync(job)
    serialization.save(job.model.state_dict(), str(tmp_path / "whole"))
    job.model.load_state_dict(serialization.load(str(tmp_path / "whole")))
    assert len(seen.stretches(Activity.SAVE)) == len(seen.stretches(Activity.RESTORE)) == 1
    assert held(seen) == [6]
    (saved,), (loaded,) = (
        [event.data["files"][0] for event in seen.of(kind) if event.data and "files" in event.data]
        for kind in (Kind.COMMIT, Kind.FINISH)
    )
    assert saved == loaded


def test_a_checkpoint_manager_is_watched_from_the_wait_for_values_to_the_commit(
    seen: Observation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job()
    with process_group():
        manager = xc.CheckpointManager(str(tmp_path), 2, chkpt_on_preemption=False)
        write = manager._delete_chkpt_at_step

        def slowly(step: int) -> None:
            time.sleep(SLEEP)
            write(step)

        monkeypatch.setattr(manager, "_delete_chkpt_at_step", slowly)
        for step, batch in enumerate(job.loader(5)):
            job.backward(batch)
            job.update()
            torch_xla.sync()
            save = manager.save if step < 3 else manager.save_async
            assert save(step, {"model": job.model.state_dict()}) == (step % 2 == 0)
        manager.join()
        manager.restore(2, {"model": job.model.state_dict()})
    saves = seen.stretches(Activity.SAVE)
    assert [begin.step for begin, _ in saves] == [0, 2, 4]
    assert all(begin.thread == 0 for begin, _ in saves)
    assert [end.time - begin.time > SLEEP * 1e9 for begin, end in saves] == [True, True, False]
    commits = seen.of(Kind.COMMIT)
    assert [event.step for event in commits] == [0, 2, 4] and held(seen) == [1, 3, 5]
    assert (commits[2].duration or 0) > 0.5 * SLEEP * 1e9
    assert all(event.data["files"][0][0].endswith(".metadata") for event in commits)
    (restored,) = [end for _, end in seen.stretches(Activity.RESTORE)]
    assert restored.step == 2 and restored.data["files"] == commits[1].data["files"]


def test_an_asynchronous_save_that_fails_is_lost_and_a_preemption_is_noticed(
    seen: Observation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job()
    with process_group():
        manager = xc.CheckpointManager(str(tmp_path), 2, chkpt_on_preemption=False)
        monkeypatch.setattr(manager, "_delete_chkpt_at_step", lambda step: (tmp_path / "no" / "such").stat())
        manager.save_async(0, {"model": job.model.state_dict()})
        manager.join()
        manager.chkpt_on_preemption = True
        monkeypatch.setattr(torch_xla._XLAC, "_sync_point_reached", lambda step: step == 7)
        assert not manager.should_save(5) and manager.should_save(7)
    (failed,) = seen.of(Kind.COMMIT_FAILED)
    assert failed.step == 0 and "FileNotFoundError" in (failed.name or "")
    assert [event.name for event in seen.of(Kind.NOTICE)] == ["preemption"]
