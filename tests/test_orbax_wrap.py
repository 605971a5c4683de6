"""``wrap(manager)``: one manager, by hand; starts a run; twice is once; with the switch nothing counts twice."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ocp = pytest.importorskip("orbax.checkpoint")

import jax.numpy as jnp  # noqa: E402

from goodput_plugins.core.clock import system_clock  # noqa: E402
from goodput_plugins.core.errors import PluginUnavailable  # noqa: E402
from goodput_plugins.core.events import Event, Kind, decode  # noqa: E402
from goodput_plugins.core.guard import Guard  # noqa: E402
from goodput_plugins.core.patching import Hooks  # noqa: E402
from goodput_plugins.core.recorder import Recorder  # noqa: E402
from goodput_plugins.core.session import Session  # noqa: E402
from goodput_plugins.orbax import by_hand, wrap  # noqa: E402
from goodput_plugins.orbax.install import install_orbax, installed  # noqa: E402
from goodput_plugins.testing import MemorySink, strict  # noqa: E402


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The session that ``wrap`` finds, and no hook left afterwards."""
    session = Session({"GOODPUT_DIR": str(tmp_path / "goodput"), "GOODPUT_RUN_NAME": "wrapped"})
    monkeypatch.setattr(by_hand, "current", lambda: session)
    with strict():
        yield session
        session.close()
    mark = vars(ocp.CheckpointManager).get("_goodput_installed")
    if mark is not None:
        mark[0].patches.undo()


def events(path: Path) -> list[Event]:
    lines = path.read_bytes().replace(b"\0", b"").splitlines()[1:]
    return [decode(line) for line in lines]


def told(session: Session, *kinds: Kind) -> list[tuple[str, int | None]]:
    assert session.journal is not None
    return [(e.kind.name, e.step) for e in events(session.journal.path) if e.kind in kinds and e.name is None]


def state() -> dict[str, Any]:
    return {"w": jnp.arange(6.0)}


def save(manager: Any, step: int) -> None:
    assert manager.save(step, args=ocp.args.StandardSave(state())) is True
    manager.wait_until_finished()


MARKS = (Kind.BEGIN, Kind.FINISH, Kind.COMMIT)


def once(step: int) -> list[tuple[str, int]]:
    return [("BEGIN", step), ("COMMIT", step), ("FINISH", step)]


def test_wrap_returns_the_manager_and_starts_a_run(session: Session, tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path / "c") as manager:
        assert session.journal is None
        assert wrap(manager) is manager
        assert session.journal is not None
        save(manager, 3)
        manager.restore(None, args=ocp.args.StandardRestore(state()))
    assert told(session, *MARKS)[-2:] == [("BEGIN", None), ("FINISH", 3)]
    assert sorted(told(session, *MARKS)[:-2]) == sorted(once(3))
    (plugin,) = [e for e in events(session.journal.path) if e.kind is Kind.PLUGIN]
    assert (plugin.name, plugin.data["version"]) == ("orbax", ocp.__version__)
    assert plugin.data["sees"] == list(by_hand.SEES)


def test_only_that_manager_is_watched(session: Session, tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path / "a") as ours, ocp.CheckpointManager(tmp_path / "b") as other:
        wrap(ours)
        save(other, 1)
        ocp.PyTreeCheckpointer().save(tmp_path / "9", state())
        other.restore(1, args=ocp.args.StandardRestore(state()))
        ocp.PyTreeCheckpointer().restore(tmp_path / "9")
        save(ours, 2)
    assert sorted(told(session, *MARKS)) == sorted(once(2))


def test_twice_is_once_and_two_are_two(session: Session, tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path / "a") as first, ocp.CheckpointManager(tmp_path / "b") as second:
        wrap(wrap(first))
        wrap(second)
        save(first, 1)
        save(second, 2)
    assert sorted(told(session, *MARKS)) == sorted([*once(1), *once(2)])
    assert session.journal is not None
    assert [e.kind for e in events(session.journal.path)].count(Kind.PLUGIN) == 1


def test_with_the_plugin_installed_nothing_counts_twice(session: Session, tmp_path: Path) -> None:
    hooks = Hooks(session.recorder, Guard("orbax"))
    install_orbax(ocp, hooks)
    with ocp.CheckpointManager(tmp_path / "c") as manager:
        wrap(manager)
        save(manager, 3)
    hooks.uninstall()
    assert sorted(told(session, *MARKS)) == sorted(once(3))


def test_a_plugin_that_comes_later_takes_over(session: Session, tmp_path: Path) -> None:
    sink = MemorySink()
    hooks = Hooks(Recorder(sink, system_clock()), Guard("orbax"))
    with ocp.CheckpointManager(tmp_path / "c") as manager:
        wrap(manager)
        install_orbax(ocp, hooks)
        save(manager, 3)
    hooks.uninstall()
    assert told(session, *MARKS) == []
    assert sorted((e.kind.name, e.step) for e in sink.events if e.name is None) == sorted(once(3))
    assert installed(ocp) is None


def test_a_wrapped_manager_is_as_it_was(session: Session, tmp_path: Path) -> None:
    with ocp.CheckpointManager(tmp_path / "c") as manager:

        def pickled() -> Any:
            try:
                return pickle.dumps(manager)
            except Exception as error:
                return type(error), str(error).split(" at 0x")[0]

        before = pickled(), type(manager), sorted(vars(manager))
        wrap(manager)
        assert (pickled(), type(manager), sorted(vars(manager))) == before


def test_a_manager_does_not_live_longer_for_being_wrapped(session: Session, tmp_path: Path) -> None:
    import gc
    import weakref

    manager = wrap(ocp.CheckpointManager(tmp_path / "c"))
    save(manager, 1)
    manager.close()
    gone = weakref.ref(manager)
    del manager
    gc.collect()
    assert gone() is None


def test_a_subclass_may_be_wrapped(session: Session, tmp_path: Path) -> None:
    class Manager(ocp.CheckpointManager):
        def save(self, step: int, **kwargs: Any) -> bool:
            return bool(super().save(step, **kwargs))

        def should_save(self, step: int) -> bool:
            return step % 2 == 0

    with wrap(Manager(tmp_path / "c")) as manager:
        assert manager.save(1, args=ocp.args.StandardSave(state())) is False
        save(manager, 2)
    assert sorted(told(session, *MARKS)) == sorted(once(2))


def test_wrapping_something_else_is_said_plainly(session: Session) -> None:
    with pytest.raises(TypeError, match=r"takes an orbax\.checkpoint\.CheckpointManager, not a StandardCheck"):
        wrap(ocp.StandardCheckpointer())
    assert session.journal is None


def test_without_orbax_the_error_has_the_pip_line(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(PluginUnavailable, match=r"pip install 'orbax-checkpoint>=0\.12'"):
        wrap(object())


def test_an_orbax_too_old_has_the_pip_line(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ocp.CheckpointManager(tmp_path / "c") as manager:
        with monkeypatch.context() as patch:
            patch.delattr(ocp.CheckpointManager, "_finalize")
            with pytest.raises(PluginUnavailable, match="pip install 'orbax-checkpoint>="):
                wrap(manager)
        assert installed(ocp) is None
        save(manager, 1)
    assert session.journal is None


@pytest.mark.parametrize("switch", ["", "orbax"])
def test_a_script_that_wraps_keeps_a_journal_with_and_without_the_switch(tmp_path: Path, switch: str) -> None:
    script = textwrap.dedent(
        f"""
        from goodput_plugins.auto import boot
        boot()
        import jax.numpy as jnp
        import orbax.checkpoint as ocp
        from goodput_plugins.orbax import wrap

        with wrap(ocp.CheckpointManager({str(tmp_path / "c")!r})) as manager:
            manager.save(5, args=ocp.args.StandardSave({{"w": jnp.arange(6.0)}}))
            manager.wait_until_finished()
        """
    )
    environ = {**os.environ, "GOODPUT_PLUGINS": switch, "GOODPUT_DIR": str(tmp_path / "g"), "GOODPUT_RUN_NAME": "r"}
    child = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode == 0, child.stderr
    assert "goodput:" not in child.stderr
    (journal,) = (tmp_path / "g").rglob("*.jsonl")
    seen = events(journal)
    assert [(e.kind.name, e.step) for e in seen if e.kind in MARKS and e.step is not None] in (
        [("BEGIN", 5), ("FINISH", 5), ("COMMIT", 5)],
        [("BEGIN", 5), ("COMMIT", 5), ("FINISH", 5)],
    )
    assert [e.name for e in seen if e.kind is Kind.PLUGIN] == ["orbax"]
