"""Loops in PyTorch/XLA, in each style: exact counts of steps and compilations, and where each wait and save lies."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_xla", reason="PyTorch/XLA is in an environment of its own")
os.environ.setdefault("PJRT_DEVICE", "CPU")

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.experimental.distributed_checkpoint as xc
import torch_xla.utils.serialization as serialization
from observing import Observation, observed
from trainees import Samples, loader
from training import process_group

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.torch.install import install_data, install_sharded, install_torch
from goodput_plugins.torch_xla.install import (
    install_distributed_checkpoint,
    install_loader,
    install_serialization,
    install_torch_xla,
)
from goodput_plugins.torch_xla.programs import OUTSIDE, TRAINING

ARMED = (
    (torch, install_torch),
    (torch.utils.data, install_data),
    (torch.distributed.checkpoint.logger, install_sharded),
    (torch_xla, install_torch_xla),
    (pl, install_loader),
    (serialization, install_serialization),
    (xc, install_distributed_checkpoint),
)
SLEEP = 0.2


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(*ARMED) as observation:
        yield observation


class Job:
    """A model on the first device and what trains it."""

    def __init__(self, width: int = 4) -> None:
        self.device = torch_xla.device()
        self.model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, 1)).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        torch_xla.sync()

    def loader(self, count: int, seconds: float = 0.0, **options: Any) -> Any:
        return pl.MpDeviceLoader(loader(count, seconds), self.device, **options)

    def backward(self, batch: Any) -> Any:
        loss = ((self.model(batch[0].to(self.device)) - batch[1].to(self.device)) ** 2).mean()
        loss.backward()
        return loss

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def optimizer_step(job: Job) -> None:
    """The loader's next batch is the marker."""
    for batch in job.loader(6):
        job.backward(batch)
        xm.optimizer_step(job.optimizer)
        job.optimizer.zero_grad()


def optimizer_step_with_barrier(job: Job) -> None:
    for batch in job.loader(6):
        job.backward(batch)
        xm.optimizer_step(job.optimizer, barrier=True)
        job.optimizer.zero_grad()


def sync(job: Job) -> None:
    for batch in job.loader(6):
        job.backward(batch)
        job.update()
        torch_xla.sync()


def mark_step_with_a_plain_loader(job: Job) -> None:
    for batch in loader(6):
        job.backward(batch)
        job.update()
        xm.mark_step()


def step_context(job: Job) -> None:
    for batch in job.loader(6):
        with torch_xla.step():
            job.backward(batch)
            job.update()


def compiled_function(job: Job) -> None:
    def train_step(batch: Any) -> Any:
        loss = job.backward(batch)
        job.update()
        return loss

    compiled = torch_xla.compile(train_step)
    for batch in job.loader(6):
        compiled(batch)


def no_loader(job: Job) -> None:
    batch = torch.ones(1, 4), torch.ones(1)
    for _ in range(6):
        job.backward(batch)
        job.update()
        torch_xla.sync()


def accumulated(job: Job) -> None:
    """Three micro-batches, each with a marker, make a step."""
    for number, batch in enumerate(job.loader(18)):
        job.backward(batch)
        torch_xla.sync()
        if number % 3 == 2:
            job.update()
            torch_xla.sync()


def several_steps_a_marker(job: Job) -> None:
    for batch in job.loader(6, batches_per_execution=3):
        job.backward(batch)
        job.update()


def two_epochs_and_evaluations(job: Job) -> None:
    for _ in range(2):
        for batch in job.loader(3):
            job.backward(batch)
            job.update()
        job.model.eval()
        for batch in job.loader(4):
            job.model(batch[0])
            torch_xla.sync()
        job.model.train()


def values_read_in_each_step(job: Job) -> None:
    for batch in job.loader(6):
        loss = job.backward(batch)
        job.update()
        loss.item()


def two_optimizers(job: Job) -> None:
    other = Job()
    for batch in job.loader(6):
        for each in (job, other):
            each.backward(batch)
            each.update()


def primed_optimizer(job: Job) -> None:
    xc.prime_optimizer(job.optimizer)
    sync(job)


STYLES: list[Callable[[Job], None]] = [
    optimizer_step,
    optimizer_step_with_barrier,
    sync,
    mark_step_with_a_plain_loader,
    step_context,
    compiled_function,
    no_loader,
    accumulated,
    several_steps_a_marker,
    two_epochs_and_evaluations,
    values_read_in_each_step,
    two_optimizers,
    primed_optimizer,
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_each_style_makes_six_steps(seen: Observation, style: Callable[[Job], None]) -> None:
    style(Job())
    xm.wait_device_ops()
    seen.hooks.close()
    assert len(seen.of(Kind.STEP)) == 6
    assert [event.step for event in seen.of(Kind.DEVICE)] == list(range(6))


# --- programs --------------------------------------------------------------------------------------------------------


def compiled(seen: Observation, name: str | None = None) -> list[int]:
    """In which step, counted from 0, each compilation lies."""
    return [seen.step_of(event) for event in seen.of(Kind.SPAN, Activity.COMPILE, name)]


def test_a_change_of_shape_compiles_at_its_step_and_lowering_is_told_apart(seen: Observation) -> None:
    job = Job(width=7)
    for number in range(8):
        size = 3 if number < 5 else 2
        job.backward((torch.ones(size, 4), torch.ones(size, 1)))
        job.update()
        torch_xla.sync()
    assert compiled(seen, TRAINING) == [0, 5]
    compiling, lowering = seen.of(Kind.SPAN, Activity.COMPILE), seen.of(Kind.SPAN, Activity.LOWER)
    assert len(lowering) == 2
    for before, after in zip(lowering, compiling, strict=True):
        assert before.time + (before.duration or 0) == after.time
        assert 0 < (after.duration or 0) < 60e9


def test_what_is_compiled_where_a_value_is_read_is_no_training_graph(seen: Observation) -> None:
    job = Job(width=5)
    sync(job)
    before = len(compiled(seen))
    print(job.model(torch.ones(3, 4).to(job.device)).sum().item())
    torch_xla.sync()
    assert len(compiled(seen)) == before + 1
    assert len(compiled(seen, OUTSIDE)) == 1


def test_compilations_of_before_are_not_told(seen: Observation) -> None:
    sync(Job(width=6))
    with observed((torch, install_torch), (torch_xla, install_torch_xla)) as later:
        job = Job(width=6)
        sync(job)
    assert len(later.of(Kind.STEP)) == 6 and not compiled(later)


# --- waits -----------------------------------------------------------------------------------------------------------


def test_a_wait_ends_where_the_batch_is_there_and_leaves_the_marker_out(seen: Observation) -> None:
    job, waited = Job(), 0.0
    batches = iter(job.loader(5, SLEEP))
    for number in range(5):
        if number:
            torch_xla.sync()
            xm.wait_device_ops()
        began = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - began
        job.backward(batch)
        job.update()
    with pytest.raises(StopIteration):
        next(batches)
    told = sum(end.time - begin.time for begin, end in seen.stretches(Activity.DATA, "ParallelLoader")) / 1e9
    assert told == pytest.approx(waited, abs=max(0.1, 0.02 * waited))
    threads = {event.thread for event in seen.of(Kind.BEGIN, Activity.DATA, "ParallelLoader")}
    assert threads == {0}
    assert {event.thread for event in seen.of(Kind.BEGIN, Activity.DATA, "DataLoader")} == {1}


def test_the_marker_in_a_loader_is_no_wait(seen: Observation) -> None:
    job = Job(width=512)
    for batch in job.loader(4):
        job.backward(batch)
        for _ in range(40):  # a graph that takes long to compile
            job.backward(batch)
        job.update()
    compiling = sum(event.duration or 0 for event in seen.of(Kind.SPAN, Activity.COMPILE)) / 1e9
    assert compiling > 0.2
    assert seen.seconds(Activity.DATA, "ParallelLoader") < compiling / 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loader_that_fails_ends_as_it_does_without_us(seen: Observation) -> None:
    class Failing(Samples):
        def __getitem__(self, index: int) -> Any:
            raise KeyError("the host's own")

    job = Job()
    assert list(pl.MpDeviceLoader(torch.utils.data.DataLoader(Failing(3)), job.device)) == []
    sync(job)
    assert len(seen.of(Kind.STEP)) == 6


def test_batches_that_a_loader_reads_ahead_after_a_restore_are_no_replay(seen: Observation, tmp_path: Path) -> None:
    job = Job()
    xm.save(job.model.state_dict(), tmp_path / "c.pt")
    torch.load(tmp_path / "c.pt")
    for number, batch in enumerate(job.loader(12, 0.02)):
        if number < 8:
            continue
        job.backward(batch)
        job.update()
    (replay,) = seen.of(Kind.SPAN, Activity.DATA_REPLAY)
    assert replay.thread == 0
    assert (replay.duration or 0) / 1e9 == pytest.approx(8 * 0.02, abs=0.1)
    assert len(seen.of(Kind.STEP)) == 4


# --- checkpoints -----------------------------------------------------------------------------------------------------


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


# --- the host --------------------------------------------------------------------------------------------------------


def test_results_are_the_same_to_the_bit_and_hooks_leave_no_trace() -> None:
    def weights() -> Any:
        torch.manual_seed(0)
        job = Job()
        sync(job)
        return [parameter.detach().cpu() for parameter in job.model.parameters()]

    names = [name for name in vars(torch_xla._XLAC) if name.startswith("_xla")]
    before = [getattr(torch_xla._XLAC, name) for name in names], xm.save, pl.ParallelLoader.next_item
    plain = weights()
    with observed(*ARMED):
        watched = weights()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert ([getattr(torch_xla._XLAC, name) for name in names], xm.save, pl.ParallelLoader.next_item) == before


def test_what_a_step_raises_is_its_own_and_counting_goes_on(seen: Observation) -> None:
    job = Job()
    for number, batch in enumerate(job.loader(6)):
        with pytest.raises(ArithmeticError) if number == 2 else contextlib.nullcontext(), torch_xla.step():
            job.backward(batch)
            if number == 2:
                job.optimizer.zero_grad()
                raise ArithmeticError("the host's own")
            job.update()
    assert len(seen.of(Kind.STEP)) == 5


def test_device_time_can_be_switched_off_and_counters_may_be_cleared(
    seen: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch_xla.debug.metrics as met

    job = Job()
    sync(job)
    xm.wait_device_ops()
    met.clear_all()
    sync(job)
    xm.wait_device_ops()
    seen.hooks.close()
    done = [event.step or 0 for event in seen.of(Kind.DEVICE)]
    assert set(done) >= set(range(7, 12))
    starts = [event.time for event in seen.of(Kind.STEP)]
    assert all(event.time > starts[event.step or 0] for event in seen.of(Kind.DEVICE))
    monkeypatch.setenv("GOODPUT_DEVICE_TIME", "off")
    with observed(*ARMED) as later:
        sync(Job())
    assert len(later.of(Kind.STEP)) == 6 and not later.of(Kind.DEVICE)
    assert [event.data.get("device") for event in later.of(Kind.PLUGIN, name="torch_xla")] == ["unseen"]
