"""What a real CheckpointManager does is told: blocking part, commit, restore, waits; with planted sleeps."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")
ocp = pytest.importorskip("orbax.checkpoint")

import jax.numpy as jnp  # noqa: E402
from orbax.checkpoint._src.path import atomicity  # noqa: E402

from goodput_plugins.core.clock import system_clock  # noqa: E402
from goodput_plugins.core.events import Activity, Event, Kind, decode  # noqa: E402
from goodput_plugins.core.guard import Guard  # noqa: E402
from goodput_plugins.core.patching import Hooks  # noqa: E402
from goodput_plugins.core.recorder import Recorder  # noqa: E402
from goodput_plugins.orbax.install import install_orbax  # noqa: E402
from goodput_plugins.testing import MemorySink, strict  # noqa: E402

BLOCKING, BACKGROUND = 0.15, 0.3
NOISE = 0.05
"""How far our figure may be from the script's own, seconds: other processes share the machine."""


@dataclass
class Stretch:
    """A SAVE or RESTORE as it was told."""

    name: str | None
    asked: int | None
    done: int | None
    start: int
    seconds: float


@dataclass
class Watched:
    sink: MemorySink
    now: Callable[[], int]

    def stretches(self, activity: Activity) -> list[Stretch]:
        """BEGIN with its FINISH; never nested, so in order."""
        told = []
        begun: Event | None = None
        for event in self.sink.events:
            if event.activity is not activity:
                continue
            if event.kind is Kind.BEGIN:
                assert begun is None
                begun = event
            elif event.kind is Kind.FINISH:
                assert begun is not None and begun.name == event.name and begun.thread == event.thread
                told.append(Stretch(begun.name, begun.step, event.step, begun.time, (event.time - begun.time) / 1e9))
                begun = None
        assert begun is None
        return told

    def of(self, *kinds: Kind) -> list[Event]:
        return [event for event in self.sink.events if event.kind in kinds]

    def timed(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """The script's own stopwatch."""
        start = self.now()
        result = call()
        return (self.now() - start) / 1e9, result


@pytest.fixture
def watched() -> Iterator[Watched]:
    clock, sink = system_clock(), MemorySink()
    hooks = Hooks(Recorder(sink, clock), Guard("orbax"))
    install_orbax(ocp, hooks)
    with strict():
        yield Watched(sink, clock)
    hooks.uninstall()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every save blocks for BLOCKING, then needs BACKGROUND more until it is durable."""
    save, commit = ocp.StandardCheckpointHandler.async_save, atomicity.on_commit_callback

    async def slow_save(*args: Any, **kwargs: Any) -> Any:
        time.sleep(BLOCKING)
        return await save(*args, **kwargs)

    async def slow_commit(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(BACKGROUND)
        return await commit(*args, **kwargs)

    monkeypatch.setattr(ocp.StandardCheckpointHandler, "async_save", slow_save)
    monkeypatch.setattr(atomicity, "on_commit_callback", slow_commit)


def manager_in(folder: Path, **options: Any) -> Any:
    return ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(**options))


def state() -> dict[str, Any]:
    return {"w": jnp.arange(6.0), "step": jnp.array(3)}


def saving() -> Any:
    return ocp.args.StandardSave(state())


def restoring() -> Any:
    return ocp.args.StandardRestore(state())


@pytest.mark.usefixtures("slow")
def test_an_async_save_is_its_blocking_part_and_a_commit_later(watched: Watched, tmp_path: Path) -> None:
    args = saving()
    with manager_in(tmp_path) as manager:
        took, saved = watched.timed(lambda: manager.save(3, args=args))
        returned = watched.now()
        assert saved is True
        manager.wait_until_finished()
    save, *_ = watched.stretches(Activity.SAVE)
    assert (save.name, save.asked, save.done) == (None, 3, 3)
    assert BLOCKING <= save.seconds <= took
    assert save.seconds == pytest.approx(took, abs=NOISE)
    (commit,) = watched.of(Kind.COMMIT, Kind.COMMIT_FAILED)
    assert (commit.kind, commit.step) == (Kind.COMMIT, 3)
    assert commit.duration / 1e9 >= BACKGROUND - 0.01
    assert commit.duration / 1e9 == pytest.approx((commit.time - returned) / 1e9, abs=NOISE)


@pytest.mark.usefixtures("slow")
def test_a_sync_save_blocks_to_the_commit(watched: Watched, tmp_path: Path) -> None:
    args = saving()
    with manager_in(tmp_path, enable_async_checkpointing=False) as manager:
        took, _ = watched.timed(lambda: manager.save(3, args=args))
    (save,) = watched.stretches(Activity.SAVE)
    assert (save.asked, save.done) == (3, 3)
    assert save.seconds >= BLOCKING + BACKGROUND
    assert save.seconds == pytest.approx(took, abs=NOISE)
    (commit,) = watched.of(Kind.COMMIT)
    assert (commit.step, commit.duration) == (3, None)


@pytest.mark.usefixtures("slow")
def test_waiting_for_the_save_before_is_part_of_a_save(watched: Watched, tmp_path: Path) -> None:
    args = saving()
    with manager_in(tmp_path) as manager:
        manager.save(1, args=args)
        took, _ = watched.timed(lambda: manager.save(2, args=args))
    first, second, last = watched.stretches(Activity.SAVE)
    assert [first.asked, second.asked, last.name] == [1, 2, "wait"]
    assert second.seconds >= BLOCKING + BACKGROUND - 0.01
    assert second.seconds == pytest.approx(took, abs=NOISE)
    assert [commit.step for commit in watched.of(Kind.COMMIT)] == [1, 2]


def test_a_save_shows_in_the_journal_while_it_lasts(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Event] = []
    save = ocp.StandardCheckpointHandler.async_save

    async def looking(*args: Any, **kwargs: Any) -> Any:
        seen.extend(watched.sink.events)
        return await save(*args, **kwargs)

    monkeypatch.setattr(ocp.StandardCheckpointHandler, "async_save", looking)
    with manager_in(tmp_path) as manager:
        manager.save(3, args=saving())
        manager.save(4, args=saving(), force=True)
    assert [(e.kind, e.step) for e in seen if e.kind in (Kind.BEGIN, Kind.FINISH)] == [
        (Kind.BEGIN, 3),
        *[(Kind.BEGIN, 3), (Kind.FINISH, 3), (Kind.BEGIN, 4)],
    ]


def test_a_failed_commit_is_told_and_the_error_is_the_hosts(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*args: Any, **kwargs: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(atomicity, "on_commit_callback", full)
    manager = manager_in(tmp_path)
    assert manager.save(1, args=saving()) is True
    with pytest.raises(OSError, match="disk full"):
        manager.wait_until_finished()
    (lost,) = watched.of(Kind.COMMIT, Kind.COMMIT_FAILED)
    assert (lost.kind, lost.step, lost.name) == (Kind.COMMIT_FAILED, 1, "OSError: disk full")
    assert manager.all_steps() == []


def test_a_commit_is_told_before_old_checkpoints_are_deleted(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with manager_in(tmp_path) as manager:
        deleter = manager._checkpoint_deleter
        monkeypatch.setattr(deleter, "delete_steps", lambda steps: time.sleep(BACKGROUND))
        manager.save(1, args=saving())
        manager.wait_until_finished()
        ended = watched.now()
    (commit,) = watched.of(Kind.COMMIT)
    assert (ended - commit.time) / 1e9 >= BACKGROUND - 0.01


def test_a_restore_has_its_step(watched: Watched, tmp_path: Path) -> None:
    with manager_in(tmp_path, step_prefix="state") as manager:
        for step in (5, 12):
            manager.save(step, args=saving())
            manager.wait_until_finished()
        args = restoring()
        took, restored = watched.timed(lambda: manager.restore(None, args=args))
        manager.restore(5, args=restoring())
    assert restored["w"].tolist() == state()["w"].tolist()
    latest, explicit = watched.stretches(Activity.RESTORE)
    assert (latest.asked, latest.done) == (None, 12)
    assert latest.seconds == pytest.approx(took, abs=NOISE)
    assert (explicit.asked, explicit.done) == (5, 5)


def test_a_restore_of_nothing_is_no_resume(watched: Watched, tmp_path: Path) -> None:
    with manager_in(tmp_path) as manager:
        with pytest.raises(FileNotFoundError):
            manager.restore(None, args=restoring())
        manager.save(5, args=saving())
        manager.wait_until_finished()
        with pytest.raises(FileNotFoundError):
            manager.restore(7, args=restoring())
    assert [stretch.done for stretch in watched.stretches(Activity.RESTORE)] == [None, None]


def test_a_restore_from_another_directory_is_no_resume(watched: Watched, tmp_path: Path) -> None:
    with manager_in(tmp_path / "pretrained") as pretrained:
        pretrained.save(1000, args=saving())
    with manager_in(tmp_path / "run") as manager:
        manager.restore(1000, args=restoring(), directory=tmp_path / "pretrained")
        manager.save(1, args=saving())
        manager.wait_until_finished()
        manager.restore(1, args=restoring(), directory=f"{tmp_path}/run/")
    foreign, own = watched.stretches(Activity.RESTORE)
    assert (foreign.asked, foreign.done) == (None, None)
    assert (own.asked, own.done) == (1, 1)


def test_a_declined_save_costs_little_and_writes_nothing(watched: Watched, tmp_path: Path) -> None:
    with manager_in(tmp_path, save_interval_steps=1_000_000) as manager:
        manager.save(0, args=saving())
        manager.wait_until_finished()
        before = [e for e in watched.sink.events if e.kind is not Kind.SPAN]
        args = saving()
        for step in range(1, 1001):
            assert manager.save(step, args=args) is False
    assert [e for e in watched.sink.events if e.kind is not Kind.SPAN] == before
    slow_ones = [e for e in watched.of(Kind.SPAN) if e.duration <= 1_000_000]
    assert slow_ones == []


def test_hooks_add_microseconds_to_a_declined_save(tmp_path: Path) -> None:
    manager = manager_in(tmp_path, save_interval_steps=1_000_000)
    manager.save(0, args=saving())
    manager.wait_until_finished()
    args = saving()

    def cost() -> float:
        start = time.perf_counter()
        for step in range(1, 21):
            manager.save(step, args=args)
        return (time.perf_counter() - start) / 20

    plain, hooked = [], []
    hooks = Hooks(Recorder(MemorySink(), system_clock()), Guard("orbax"))
    for _ in range(200):  # short rounds, so that some of each find the machine quiet
        plain.append(cost())
        install_orbax(ocp, hooks)
        hooked.append(cost())
        hooks.uninstall()
    manager.close()
    assert min(hooked) - min(plain) < 50e-6


class SlowDecision(ocp.checkpoint_managers.SaveDecisionPolicy):
    """Takes 20 ms to say that only step 1 is saved, as one that asks other processes would."""

    def should_save(self, step: Any, *args: Any, **kwargs: Any) -> bool:
        time.sleep(0.02)
        return step.step == 1


def test_a_slow_decision_is_time_but_no_checkpoint(watched: Watched, tmp_path: Path) -> None:
    args = saving()
    with manager_in(tmp_path, save_decision_policy=SlowDecision()) as manager:
        yes_took, _ = watched.timed(lambda: manager.save(1, args=args))
        manager.wait_until_finished()
        no_took, saved = watched.timed(lambda: manager.save(2, args=args))
    assert saved is False
    yes, no = watched.of(Kind.SPAN)
    for span in (yes, no):
        assert (span.activity, span.name, span.step) == (Activity.SAVE, "wait", None)
        assert span.duration / 1e9 >= 0.02
    save = watched.stretches(Activity.SAVE)[0]
    assert yes.duration / 1e9 + save.seconds == pytest.approx(yes_took, abs=NOISE)
    assert no.duration / 1e9 == pytest.approx(no_took, abs=NOISE)
    assert [e.step for e in watched.of(Kind.BEGIN) if e.name is None] == [1]


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("end", ["wait_until_finished", "close"])
def test_waiting_for_a_save_in_flight_is_a_save_that_is_no_checkpoint(
    watched: Watched, tmp_path: Path, end: str
) -> None:
    manager = manager_in(tmp_path)
    manager.save(3, args=saving())
    took, _ = watched.timed(getattr(manager, end))
    _, wait = watched.stretches(Activity.SAVE)
    assert (wait.name, wait.asked, wait.done) == ("wait", None, None)
    assert wait.seconds >= BACKGROUND - NOISE
    assert wait.seconds == pytest.approx(took, abs=NOISE)
    manager.close()


def test_waiting_for_nothing_is_not_told(watched: Watched, tmp_path: Path) -> None:
    manager = manager_in(tmp_path)
    for _ in range(100):
        manager.wait_until_finished()
    assert watched.of(Kind.BEGIN, Kind.FINISH, Kind.COMMIT) == []
    manager.close()


@pytest.mark.usefixtures("slow")
def test_another_thread_that_waits_is_not_told(watched: Watched, tmp_path: Path) -> None:
    with manager_in(tmp_path) as manager:
        manager.save(3, args=saving())
        thread = threading.Thread(target=manager.wait_until_finished)
        thread.start()
        thread.join()
        assert [stretch.name for stretch in watched.stretches(Activity.SAVE)] == [None]


def test_a_step_that_exists_is_the_hosts_error_and_loses_nothing(watched: Watched, tmp_path: Path) -> None:
    with manager_in(tmp_path) as manager:
        manager.save(3, args=saving())
        manager.wait_until_finished()
        with pytest.raises(ValueError, match="already exists"):
            manager.save(3, args=saving(), force=True)
    failed = watched.stretches(Activity.SAVE)[2]
    assert (failed.asked, failed.done) == (3, None)
    assert [(e.kind, e.step) for e in watched.of(Kind.COMMIT, Kind.COMMIT_FAILED)] == [(Kind.COMMIT, 3)]


def test_a_step_may_be_an_array(watched: Watched, tmp_path: Path) -> None:
    with manager_in(tmp_path) as manager:
        manager.save(jax.block_until_ready(jnp.array(4)), args=saving())
    save, _ = watched.stretches(Activity.SAVE)
    assert (save.asked, save.done) == (4, 4)
    assert [commit.step for commit in watched.of(Kind.COMMIT)] == [4]


def test_a_manager_of_several_items_commits_once(watched: Watched, tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path, item_names=("state", "meta")) as manager:
        manager.save(1, args=ocp.args.Composite(state=saving(), meta=ocp.args.JsonSave({"epoch": 1})))
        manager.wait_until_finished()
        manager.restore(1, args=ocp.args.Composite(state=restoring(), meta=ocp.args.JsonRestore()))
    assert [(e.kind, e.step) for e in watched.of(Kind.COMMIT)] == [(Kind.COMMIT, 1)]
    assert [(s.asked, s.done) for s in watched.stretches(Activity.RESTORE)] == [(1, 1)]


class OwnMind(ocp.CheckpointManager):
    """Decides by itself, without asking the class that is hooked."""

    def should_save(self, step: int) -> bool:
        return step % 2 == 0


@pytest.mark.usefixtures("slow")
def test_a_manager_that_decides_by_itself_waits_inside_its_save(watched: Watched, tmp_path: Path) -> None:
    args = saving()
    with OwnMind(tmp_path) as manager:
        assert [manager.save(step, args=args) for step in (1, 2, 3)] == [False, True, False]
        took, _ = watched.timed(lambda: manager.save(4, args=args))
    saves = watched.stretches(Activity.SAVE)
    assert [(save.name, save.asked) for save in saves] == [(None, 2), (None, 4), ("wait", None)]
    assert saves[1].seconds == pytest.approx(took, abs=NOISE)


class Mirrored(ocp.CheckpointManager):
    """Saves to a second place first, as the managers for emergencies do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "far")
        self.near = ocp.CheckpointManager(folder / "near")

    def save(self, step: int, **kwargs: Any) -> bool:
        return bool(super().save(step, **kwargs))

    def should_save(self, step: int) -> bool:
        return super().should_save(step) and self.near.save(step, args=saving())

    def close(self) -> None:
        self.near.close()
        super().close()


def test_a_manager_inside_a_manager_is_one_save_and_two_commits(watched: Watched, tmp_path: Path) -> None:
    with Mirrored(tmp_path) as manager:
        manager.save(8, args=saving())
    (save,) = [save for save in watched.stretches(Activity.SAVE) if save.name is None]
    assert (save.asked, save.done) == (8, 8)
    assert [commit.step for commit in watched.of(Kind.COMMIT)] == [8, 8]


def test_where_another_process_commits_a_finished_wait_is_the_commit(watched: Watched, tmp_path: Path) -> None:
    elsewhere = ocp.options.MultiprocessingOptions(primary_host=1)
    with manager_in(tmp_path, multiprocessing_options=elsewhere, create=False) as manager:
        manager.save(6, args=saving())
        manager.wait_until_finished()
        assert [commit.step for commit in watched.of(Kind.COMMIT, Kind.COMMIT_FAILED)] == [6]


def test_a_save_killed_in_its_background_part_has_no_commit(tmp_path: Path) -> None:
    script = Path(__file__).parent / "scripts" / "killed_in_commit.py"
    child = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    lines = (tmp_path / "journal").read_bytes().strip(b"\0").splitlines()
    events = [decode(line) for line in lines]
    assert [(e.kind, e.step) for e in events if e.activity is Activity.SAVE and e.step is not None] == [
        *[(Kind.BEGIN, 1), (Kind.FINISH, 1), (Kind.BEGIN, 2), (Kind.FINISH, 2)]
    ]
    assert [e.step for e in events if e.kind is Kind.COMMIT] == [1]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir() if p.name.isdigit()) == ["1"]
