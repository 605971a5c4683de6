"""Checkpoints of loops in plain PyTorch: which files are some, what they hold, and where a restarted loop goes on."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from observing import Observation, observed  # noqa: E402
from trainees import loader, network  # noqa: E402

from goodput_plugins.core.calculator import calculate  # noqa: E402
from goodput_plugins.core.events import Activity, Event, Kind  # noqa: E402
from goodput_plugins.core.report import Report  # noqa: E402
from goodput_plugins.core.runlog import Life, RunLog  # noqa: E402
from goodput_plugins.torch.install import install_data, install_sharded, install_torch  # noqa: E402
from goodput_plugins.torch.states import holds_state  # noqa: E402

ARMED = ((torch, install_torch), (torch.utils.data, install_data))
WORK = 0.05
LATE = 0.5
"""So much longer than planted something may take on a busy machine."""


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed(*ARMED) as observation:
        yield observation


def held(seen: Observation) -> list[int]:
    return [event.data["steps"] for event in seen.of(Kind.COMMIT)]


class Job:
    """A loop that saves a checkpoint now and then."""

    def __init__(self, optimizer: Any = torch.optim.SGD) -> None:
        self.model = network()
        self.optimizer = optimizer(self.model.parameters(), lr=1e-3)

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def resume(self, path: Path) -> None:
        loaded = torch.load(path)
        self.model.load_state_dict(loaded["model"])
        self.optimizer.load_state_dict(loaded["optimizer"])

    def train(self, count: int, after: Callable[[int], None] = lambda number: None, *, work: float = 0.0) -> None:
        for number, batch in enumerate(loader(count)):
            time.sleep(work)
            (1e-6 * ((self.model(batch[0]) - batch[1]) ** 2).mean()).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            after(number)


# --- what is a checkpoint --------------------------------------------------------------------------------------------

MODEL = network()
STATES = {
    "a module": MODEL,
    "a module's state": MODEL.state_dict(),
    "an optimizer's state": torch.optim.SGD(MODEL.parameters()).state_dict(),
    "both, nested": {"epoch": 3, "states": [{"net": MODEL.state_dict()}]},
    "a state cut out of a checkpoint": {"0.weight": torch.ones(2, 2), "0.bias": torch.ones(2)},
}
NO_STATES = {
    "a tensor": torch.ones(3),
    "a data set": {"images": torch.ones(3, 2), "labels": torch.ones(3)},
    "a list of tensors": [torch.ones(2)] * 3,
    "a random state": {"rng": torch.get_rng_state(), "epoch": 3},
    "a dictionary with dots": {"train.loss": 0.5, "val.loss": 0.7},
    "nothing": None,
    "a state too deep to be looked for": [[[[[MODEL.state_dict()]]]]],
    "an empty dictionary": OrderedDict(),
}


@pytest.mark.parametrize("name", STATES)
def test_a_file_with_the_state_of_a_module_or_optimizer_is_a_checkpoint(
    seen: Observation, name: str, tmp_path: Path
) -> None:
    assert holds_state(STATES[name])
    torch.save(STATES[name], tmp_path / "file.pt")
    torch.load(tmp_path / "file.pt", weights_only=False)
    assert len(seen.stretches(Activity.SAVE)) == len(seen.of(Kind.COMMIT)) == 1
    assert len(seen.of(Kind.SPAN, Activity.RESTORE)) == 1


@pytest.mark.parametrize("name", NO_STATES)
def test_other_files_are_none(seen: Observation, name: str, tmp_path: Path) -> None:
    assert not holds_state(NO_STATES[name])
    torch.save(NO_STATES[name], tmp_path / "file.pt")
    torch.load(tmp_path / "file.pt", weights_only=False)
    assert not seen.events


def test_a_copy_in_memory_is_none(seen: Observation) -> None:
    buffer = io.BytesIO()
    torch.save(MODEL.state_dict(), buffer)
    buffer.seek(0)
    torch.load(buffer)
    assert not seen.events


def test_what_a_data_set_reads_is_data(seen: Observation, tmp_path: Path) -> None:
    torch.save(MODEL, tmp_path / "sample.pt")

    class Files(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            torch.load(tmp_path / "sample.pt", weights_only=False)
            return index

    list(torch.utils.data.DataLoader(Files()))
    assert not seen.of(Kind.SPAN, Activity.RESTORE)


# --- what it holds ---------------------------------------------------------------------------------------------------


def test_a_save_after_the_optimizers_step_holds_that_step(seen: Observation, tmp_path: Path) -> None:
    job = Job()
    job.train(6, lambda number: torch.save(job.state(), tmp_path / "c.pt") if number % 2 else None)
    assert held(seen) == [2, 4, 6]


def test_a_save_at_the_beginning_of_a_step_does_not_hold_it(seen: Observation, tmp_path: Path) -> None:
    job = Job()
    torch.save(job.state(), tmp_path / "before.pt")
    for number, batch in enumerate(loader(4)):
        if number == 2:
            torch.save(job.state(), tmp_path / "c.pt")
        job.model(batch[0]).mean().backward()
        job.optimizer.step()
    assert held(seen) == [0, 2]


def test_the_identity_of_the_file_is_told_and_outlives_a_rename(seen: Observation, tmp_path: Path) -> None:
    torch.save(MODEL.state_dict(), tmp_path / "new.pt")
    os.replace(tmp_path / "new.pt", tmp_path / "last.pt")
    torch.load(tmp_path / "last.pt")
    ((path, *saved),) = seen.of(Kind.COMMIT)[0].data["files"]
    ((other_path, *loaded),) = seen.of(Kind.SPAN, Activity.RESTORE)[0].data["files"]
    assert saved == loaded and path == str(tmp_path / "new.pt") and other_path == str(tmp_path / "last.pt")
    found = os.stat(tmp_path / "last.pt")
    assert saved == [found.st_ino, found.st_size, found.st_mtime_ns]


def test_a_file_that_the_host_opened_is_committed_when_it_is_complete(seen: Observation, tmp_path: Path) -> None:
    job = Job()

    def save(number: int) -> None:
        if number == 1:
            with open(tmp_path / "c.pt", "wb") as file:
                torch.save(job.state(), file)
                assert not seen.of(Kind.COMMIT)

    job.train(4, save)
    assert held(seen) == [2]
    assert seen.of(Kind.COMMIT)[0].data["files"][0][2] == os.stat(tmp_path / "c.pt").st_size


def test_a_save_that_fails_is_not_committed_and_raises_its_own_error(seen: Observation, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.save(MODEL, tmp_path / "nowhere" / "c.pt")
    assert len(seen.stretches(Activity.SAVE)) == 1 and not seen.of(Kind.COMMIT)
    with pytest.raises(FileNotFoundError):
        torch.load(tmp_path / "c.pt")
    assert not seen.of(Kind.SPAN)


def test_the_files_are_the_same_to_the_byte(tmp_path: Path) -> None:
    torch.save(MODEL.state_dict(), tmp_path / "c.pt")
    plain = (tmp_path / "c.pt").read_bytes()
    with observed(*ARMED):
        torch.save(MODEL.state_dict(), tmp_path / "c.pt")
    assert (tmp_path / "c.pt").read_bytes() == plain


# --- where a restarted loop goes on ----------------------------------------------------------------------------------


def life(seen: Observation, *, dies: bool) -> Life:
    """What was told, as the journal of a process that began 10 ms before it."""
    events = seen.sink.events
    start = min(event.time for event in events) - 10_000_000
    end = max(event.time for event in events)
    told = [Event(Kind.START, start), *events]
    return Life(str(start), start, told if dies else [*told, Event(Kind.END, end + 1, name="completed")])


def restarted(
    optimizer: Any, path: Path, copied: Callable[[Path], Path] = lambda path: path
) -> tuple[Report, list[Any]]:
    """A job of ten steps that saves after the sixth and dies; one that goes on from there for five steps."""
    with observed(*ARMED) as first:
        job = Job(optimizer)
        job.train(10, lambda number: torch.save(job.state(), path) if number == 5 else None, work=WORK)
    found = copied(path)
    with observed(*ARMED) as second:
        job = Job(optimizer)
        job.resume(found)
        job.train(5, work=WORK)
    log = RunLog("r", [life(first, dies=True), life(second, dies=False)])
    report = calculate(log, now=2**62)
    return report, [(attempt.first_step, attempt.last_step) for attempt in report.attempts]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_loop_that_loads_what_it_saved_has_true_numbers(optimizer: Any, tmp_path: Path) -> None:
    report, steps = restarted(optimizer, tmp_path / "c.pt")
    assert steps == [(0, 9), (6, 10)]
    wasted = report.to_json()["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"]
    assert 3 * WORK <= wasted <= 4 * WORK + LATE
    assert (report.steps.last, report.steps.count, report.steps.max_productive) == (10, 11, 10)
    assert report.disruptions == 1


def test_a_checkpoint_that_was_moved_is_known_again(tmp_path: Path) -> None:
    _, steps = restarted(torch.optim.SGD, tmp_path / "c.pt", lambda path: path.rename(tmp_path / "last.pt"))
    assert steps == [(0, 9), (6, 10)]


@pytest.mark.parametrize(("optimizer", "known"), [(torch.optim.SGD, False), (torch.optim.Adam, True)])
def test_of_a_copy_the_optimizers_count_tells_or_the_number_is_unknown(
    optimizer: Any, known: bool, tmp_path: Path
) -> None:
    def copy(path: Path) -> Path:
        return Path(shutil.copyfile(path, tmp_path / "copy.pt"))

    report, steps = restarted(optimizer, tmp_path / "c.pt", copy)
    assert steps == ([(0, 9), (6, 10)] if known else [(0, 9), (None, None)])
    wasted = report.to_json()["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"]
    assert (wasted is None) is not known


def test_the_checkpoint_knows_better_than_the_optimizer(tmp_path: Path) -> None:
    """A loop that restores its model alone has a fresh optimizer, whose count is no step number."""
    with observed(*ARMED) as first:
        job = Job(torch.optim.Adam)
        job.train(8, lambda number: torch.save(job.model.state_dict(), tmp_path / "m.pt") if number == 3 else None)
    with observed(*ARMED) as second:
        job = Job(torch.optim.Adam)
        job.model.load_state_dict(torch.load(tmp_path / "m.pt"))
        job.train(3)
    report = calculate(RunLog("r", [life(first, dies=True), life(second, dies=False)]), now=2**62)
    assert [(attempt.first_step, attempt.last_step) for attempt in report.attempts] == [(0, 7), (4, 6)]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_a_process_that_goes_back_to_its_own_checkpoint_has_wasted_what_came_after(
    optimizer: Any, tmp_path: Path
) -> None:
    with observed(*ARMED) as seen:
        job = Job(optimizer)
        job.train(8, lambda number: torch.save(job.state(), tmp_path / "c.pt") if number == 2 else None, work=WORK)
        job.resume(tmp_path / "c.pt")
        job.train(6, work=WORK)
    report = calculate(RunLog("r", [life(seen, dies=False)]), now=2**62)
    assert (report.steps.last, report.steps.count) == (8, 9)
    wasted = report.to_json()["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"]
    assert 4 * WORK <= wasted <= 5 * WORK + LATE
    assert report.disruptions == 0


def test_hf_40560_rates_come_from_the_steps_of_this_attempt(tmp_path: Path) -> None:
    report, _ = restarted(torch.optim.Adam, tmp_path / "c.pt")
    assert report.steps.p50 is not None and WORK <= report.steps.p50 / 1e9 <= WORK + LATE


# --- torch.distributed.checkpoint ------------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[tuple[Observation, Any]]:
    """Its hooks, in a process group of one."""
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    from torch.distributed.checkpoint import logger

    with observed(*ARMED, (logger, install_sharded)) as observation:
        where = f"file://{tmp_path / 'rendezvous'}"
        torch.distributed.init_process_group("gloo", init_method=where, rank=0, world_size=1)
        try:
            yield observation, checkpoint
        finally:
            torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_a_sharded_save_and_load_are_one_checkpoint_each(sharded: Any, tmp_path: Path) -> None:
    seen, checkpoint = sharded
    job = Job()
    job.train(3)
    checkpoint.save({"model": job.model.state_dict()}, checkpoint_id=tmp_path / "c")
    checkpoint.load({"model": job.model.state_dict()}, checkpoint_id=tmp_path / "c")
    assert len(seen.stretches(Activity.SAVE)) == len(seen.stretches(Activity.RESTORE)) == 1
    assert held(seen) == [3]
    (saved,) = seen.of(Kind.COMMIT)[0].data["files"]
    (loaded,) = seen.of(Kind.FINISH, Activity.RESTORE)[0].data["files"]
    assert saved == loaded and saved[0] == str(tmp_path / "c" / ".metadata")


class SlowWriter:
    """Makes the storage writer of an asynchronous save take its time, or fail."""

    def __new__(cls, checkpoint: Any, path: Path, seconds: float, fails: bool) -> Any:
        class Writer(checkpoint.FileSystemWriter):  # type: ignore[name-defined, misc]
            def write_data(self, plan: Any, planner: Any) -> Any:
                time.sleep(seconds)
                if fails:
                    raise OSError("no space left")
                return super().write_data(plan, planner)

        return Writer(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fails", [False, True])
def test_an_asynchronous_sharded_save_blocks_shortly_and_is_committed_or_lost_later(
    sharded: Any, tmp_path: Path, fails: bool
) -> None:
    seen, checkpoint = sharded
    job = Job()
    job.train(2)
    writer = SlowWriter(checkpoint, tmp_path / "c", 0.3, fails)
    future = checkpoint.async_save({"model": job.model.state_dict()}, storage_writer=writer)
    assert not seen.of(Kind.COMMIT)
    job.train(2)
    assert (future.exception() is not None) is fails
    assert len(seen.stretches(Activity.SAVE)) == 1
    assert seen.seconds(Activity.SAVE) < 0.2
    if fails:
        assert len(seen.of(Kind.COMMIT_FAILED)) == 1 and not seen.of(Kind.COMMIT)
    else:
        (commit,) = seen.of(Kind.COMMIT)
        assert held(seen) == [2] and (commit.duration or 0) > 0.25e9


def test_the_process_group_is_start_up_and_tells_the_rank(sharded: Any) -> None:
    seen, _ = sharded
    assert len(seen.stretches(Activity.DEVICE_INIT, "init_process_group")) == 1
    assert [(event.step, event.data) for event in seen.of(Kind.RANK)] == [(0, 1), (0, 1)]
