"""Checkpointers called without a manager, of v0 and v1: told once each, committed once each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ocp = pytest.importorskip("orbax.checkpoint")

import jax.numpy as jnp  # noqa: E402
from orbax.checkpoint import v1  # noqa: E402
from orbax.checkpoint._src.path import atomicity  # noqa: E402

from goodput_plugins.core.clock import system_clock  # noqa: E402
from goodput_plugins.core.events import Event, Kind  # noqa: E402
from goodput_plugins.core.guard import Guard  # noqa: E402
from goodput_plugins.core.patching import Hooks  # noqa: E402
from goodput_plugins.core.recorder import Recorder  # noqa: E402
from goodput_plugins.orbax.install import install_orbax, installed  # noqa: E402
from goodput_plugins.orbax.steps import step_of_direct, step_of_managed  # noqa: E402
from goodput_plugins.testing import MemorySink, strict  # noqa: E402

BACKGROUND = 0.3


@pytest.fixture
def sink() -> Iterator[MemorySink]:
    sink = MemorySink()
    hooks = Hooks(Recorder(sink, system_clock()), Guard("orbax"))
    install_orbax(ocp, hooks)
    with strict():
        yield sink
    hooks.uninstall()


@pytest.fixture
def slow_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = atomicity.on_commit_callback

    async def slow(*args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(BACKGROUND)
        return await commit(*args, **kwargs)

    monkeypatch.setattr(atomicity, "on_commit_callback", slow)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*args: Any, **kwargs: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(atomicity, "on_commit_callback", full)


def state() -> dict[str, Any]:
    return {"w": jnp.arange(6.0), "b": jnp.zeros(2)}


def shape(event: Event) -> tuple[Any, ...]:
    """What of an event does not depend on the time."""
    return event.kind.name, event.activity and event.activity.value, event.step, event.name


def shapes(sink: MemorySink) -> list[tuple[Any, ...]]:
    return [shape(event) for event in sink.events if event.kind is not Kind.SPAN]


def save(step: int | None, *, done: bool = True) -> list[tuple[Any, ...]]:
    return [("BEGIN", "save", step, None), ("FINISH", "save", step if done else None, None)]


def restore(step: int | None, done: int | None) -> list[tuple[Any, ...]]:
    return [("BEGIN", "restore", step, None), ("FINISH", "restore", done, None)]


def around(middle: tuple[Any, ...], outer: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [outer[0], middle, outer[1]]


def commit(step: int | None) -> tuple[Any, ...]:
    return ("COMMIT", None, step, None)


WAIT = [("BEGIN", "save", None, "wait"), ("FINISH", "save", None, "wait")]


def test_a_sync_checkpointer(sink: MemorySink, tmp_path: Path) -> None:
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "40", state())
    restored = checkpointer.restore(tmp_path / "40")
    assert restored["w"].tolist() == state()["w"].tolist()
    assert shapes(sink) == [*around(commit(40), save(40)), *restore(40, 40)]
    assert [e.duration for e in sink.events if e.kind is Kind.COMMIT] == [None]


@pytest.mark.usefixtures("slow_commit")
def test_an_async_checkpointer(sink: MemorySink, tmp_path: Path) -> None:
    checkpointer = ocp.StandardCheckpointer()
    checkpointer.save(tmp_path / "best", state())
    checkpointer.wait_until_finished()
    checkpointer.restore(tmp_path / "best")
    checkpointer.close()
    assert shapes(sink) == [*save(None), *around(commit(None), WAIT), *restore(None, None)]
    (committed,) = [e for e in sink.events if e.kind is Kind.COMMIT]
    assert committed.duration is not None
    assert committed.duration / 1e9 >= BACKGROUND - 0.01


@pytest.mark.usefixtures("slow_commit")
def test_saving_to_one_path_again_waits_and_commits_both(sink: MemorySink, tmp_path: Path) -> None:
    with ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        for _ in range(2):
            checkpointer.save(tmp_path / "latest", args=ocp.args.StandardSave(state()), force=True)
    assert shapes(sink) == [*save(None), *around(commit(None), save(None)), *around(commit(None), WAIT)]


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("surfaces", ["wait_until_finished", "check_for_errors", "close"])
def test_a_lost_async_save_is_told_when_its_error_surfaces(sink: MemorySink, tmp_path: Path, surfaces: str) -> None:
    checkpointer = ocp.StandardCheckpointer()
    checkpointer.save(tmp_path / "step_7", state())
    checkpointer._async_manager._thread.join()
    with pytest.raises(OSError, match="disk full"):
        getattr(checkpointer, surfaces)()
    assert ("COMMIT_FAILED", None, 7, "OSError: disk full") in shapes(sink)
    assert "COMMIT" not in {event.kind.name for event in sink.events}


@pytest.mark.usefixtures("slow_commit")
def test_asking_for_errors_is_no_commit(sink: MemorySink, tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step_7", state())
        checkpointer.check_for_errors()
        assert shapes(sink) == save(7)


def test_a_destination_that_exists_is_the_hosts_error(sink: MemorySink, tmp_path: Path) -> None:
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(tmp_path / "1", state())
    with pytest.raises(ValueError, match="already exists"):
        checkpointer.save(tmp_path / "1", state())
    with pytest.raises(FileNotFoundError):
        checkpointer.restore(tmp_path / "2")
    assert shapes(sink) == [*around(commit(1), save(1)), *save(1, done=False), *restore(2, None)]
    watch = installed(ocp)
    assert watch is not None
    assert not watch.in_flight


def test_functions_of_v1(sink: MemorySink, tmp_path: Path) -> None:
    v1.save(tmp_path / "1", state())
    response = v1.save_async(tmp_path / "2", state())
    response.result()
    v1.save_checkpointables(tmp_path / "3", {"state": state()})
    restored = v1.load(tmp_path / "2", state())
    v1.load_checkpointables(tmp_path / "3")
    assert restored["w"].tolist() == state()["w"].tolist()
    events = shapes(sink)
    assert events[:3] == around(commit(1), save(1))
    assert [e for e in events if e[0] == "COMMIT"] == [commit(1), commit(2), commit(3)]
    assert [e for e in events if e[0] != "COMMIT"] == [
        *save(1),
        *save(2),
        *WAIT,
        *save(3),
        *restore(2, 2),
        *restore(3, 3),
    ]


@pytest.mark.usefixtures("slow_commit")
def test_a_response_of_v1_that_is_not_waited_out_is_not_lost(sink: MemorySink, tmp_path: Path) -> None:
    response = v1.save_async(tmp_path / "2", state())
    with pytest.raises(TimeoutError):
        response.result(timeout=0.01)
    response.result()
    assert [e for e in shapes(sink) if e[0].startswith("COMMIT")] == [commit(2)]


@pytest.mark.usefixtures("full_disk")
def test_a_lost_save_of_v1(sink: MemorySink, tmp_path: Path) -> None:
    response = v1.save_async(tmp_path / "2", state())
    with pytest.raises(OSError, match="disk full"):
        response.result()
    with pytest.raises(OSError, match="disk full"):
        v1.save(tmp_path / "3", state())
    assert [e for e in shapes(sink) if e[0].startswith("COMMIT")] == [("COMMIT_FAILED", None, 2, "OSError: disk full")]
    assert shapes(sink)[-2:] == save(3, done=False)


def test_the_checkpointer_of_v1(sink: MemorySink, tmp_path: Path) -> None:
    with v1.training.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state())
        response = checkpointer.save_async(2, state())
        assert response.result() is True
        del sink.lines[:]
        checkpointer.load(1, state())
        checkpointer.load(None, state())
        checkpointer.load(checkpointer.latest)
        checkpointer.load_checkpointables(2)
        with pytest.raises(Exception, match="9"):
            checkpointer.load(9)
    assert shapes(sink) == [
        *restore(1, 1),
        *restore(None, 2),
        *restore(2, 2),
        *restore(2, 2),
        *restore(9, None),
    ]


@pytest.mark.usefixtures("slow_commit")
def test_the_checkpointer_of_v1_saves_through_its_manager(sink: MemorySink, tmp_path: Path) -> None:
    with v1.training.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state())
        assert shapes(sink) == [*save(1), *around(commit(1), WAIT)]


@pytest.mark.skipif(not hasattr(ocp.AsyncCheckpointer, "cancel"), reason="this Orbax cannot cancel a save")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Orbax's own: its loop is closed
def test_a_cancelled_save_is_neither_durable_nor_lost(
    sink: MemorySink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orbax.checkpoint._src.futures import future

    async_save = ocp.StandardCheckpointHandler.async_save
    writing = threading.Event()

    async def endless(*args: Any, **kwargs: Any) -> Any:
        async def write() -> None:
            writing.set()
            await asyncio.sleep(30)

        return [*(await async_save(*args, **kwargs) or []), future.CommitFuture(write())]

    monkeypatch.setattr(ocp.StandardCheckpointHandler, "async_save", endless)
    start = time.monotonic()
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(1, args=ocp.args.StandardSave(state()))
        assert writing.wait(10)
        manager._checkpointer.cancel()
    time.sleep(0.5)  # what it writes in the background meets the closed loop now, not in another test
    assert time.monotonic() - start < 20
    assert [p.name for p in tmp_path.iterdir() if p.name == "1"] == []
    assert [event for event in sink.events if event.kind in (Kind.COMMIT, Kind.COMMIT_FAILED)] == []


def test_nothing_stays_in_flight(tmp_path: Path) -> None:
    hooks = Hooks(Recorder(MemorySink(), system_clock()), Guard("orbax"))
    install_orbax(ocp, hooks)
    watch = installed(ocp)
    assert watch is not None
    with ocp.CheckpointManager(tmp_path / "m") as manager:
        for step in range(3):
            manager.save(step, args=ocp.args.StandardSave(state()))
            assert watch.in_flight
    v1.save(tmp_path / "1", state())
    v1.save_async(tmp_path / "2", state()).result()
    ocp.PyTreeCheckpointer().save(tmp_path / "3", state())
    hooks.uninstall()
    assert not watch.in_flight
    assert watch.operations.innermost is None


@pytest.mark.parametrize(
    ("path", "direct", "managed"),
    [
        ("/c/40", 40, 40),
        ("/c/step_0040", 40, 40),
        ("/c/checkpoint-7", 7, 7),
        ("/c/ckpt7", 7, 7),
        ("/c/model_v2", None, 2),
        ("/c/40/", 40, 40),
        ("gs://bucket/c/40", 40, 40),
        ("/40/state", None, None),
    ],
)
def test_which_step_a_path_names(path: str, direct: int | None, managed: int | None) -> None:
    from goodput_plugins.orbax.steps import key_of

    assert step_of_direct(key_of(path)) == direct
    assert step_of_managed(key_of(path)) == managed
