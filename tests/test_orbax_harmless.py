"""Whatever fails in our hooks, Orbax saves and restores as without them; and hooks leave no trace."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ocp = pytest.importorskip("orbax.checkpoint")

import jax.numpy as jnp  # noqa: E402
from orbax.checkpoint import v1  # noqa: E402
from orbax.checkpoint._src.logging import event_tracking  # noqa: E402
from orbax.checkpoint._src.path import atomicity  # noqa: E402

from goodput_plugins.auto.plugins import TABLE  # noqa: E402
from goodput_plugins.core.clock import system_clock  # noqa: E402
from goodput_plugins.core.events import Activity  # noqa: E402
from goodput_plugins.core.guard import Guard  # noqa: E402
from goodput_plugins.core.patching import Hooks  # noqa: E402
from goodput_plugins.core.recorder import Recorder  # noqa: E402
from goodput_plugins.orbax.by_hand import REQUIREMENT  # noqa: E402
from goodput_plugins.orbax.install import SEES, install_orbax, installed  # noqa: E402
from goodput_plugins.orbax.watch import Watch  # noqa: E402
from goodput_plugins.testing import MemorySink  # noqa: E402

ENTRIES = sorted(name for name, _ in inspect.getmembers(Watch, inspect.isfunction) if not name.startswith("_"))
if not hasattr(ocp.AsyncCheckpointer, "cancel"):
    ENTRIES.remove("cancel_begins")
TELLING = ("now", "begin", "finish", "span", "committed", "commit_failed")


def state() -> dict[str, Any]:
    return {"w": jnp.arange(6.0), "b": jnp.zeros(2)}


def outcome(call: Callable[[], Any]) -> Any:
    """What the host sees of a call: its result or its error."""
    try:
        result = call()
    except Exception as error:
        return type(error)
    if isinstance(result, dict):
        return {key: value.tolist() for key, value in result.items()}
    return result if isinstance(result, bool | int | None) else type(result)


def everything(folder: Path) -> list[Any]:
    """Every hooked call once, and what the host sees of it: results, errors, files."""
    saves, restores = ocp.args.StandardSave(state()), ocp.args.StandardRestore(state())
    with ocp.CheckpointManager(
        folder / "m", options=ocp.CheckpointManagerOptions(save_interval_steps=2, max_to_keep=2)
    ) as manager:
        seen = [outcome(lambda: manager.restore(None, args=restores))]
        seen += [outcome(lambda step=step: manager.save(step, args=saves)) for step in range(6)]
        seen.append(outcome(manager.wait_until_finished))
        seen.append(outcome(lambda: manager.save(4, args=saves, force=True)))
        seen.append(outcome(lambda: manager.save(7, args=saves, force=True)))
        seen.append(outcome(lambda: manager.save()))  # the host's own TypeError
        seen += [outcome(lambda: manager.restore(None, args=restores)), list(manager.all_steps())]
    direct = ocp.StandardCheckpointer()
    seen += [outcome(lambda: direct.save(folder / "1", state())), outcome(direct.check_for_errors)]
    seen += [outcome(direct.wait_until_finished), outcome(lambda: direct.restore(folder / "1"))]
    direct.save(folder / "1", state(), force=True)
    if hasattr(direct, "cancel"):
        direct.wait_until_finished()
        seen.append(outcome(direct.cancel))
    seen.append(outcome(direct.close))
    seen.append(outcome(lambda: v1.save(folder / "2", state())))
    seen.append(outcome(v1.save_async(folder / "3", state()).result))
    seen.append(outcome(lambda: v1.load(folder / "2", state())))
    with v1.training.Checkpointer(folder / "t") as trainer:
        seen += [outcome(lambda: trainer.save(1, state())), outcome(lambda: trainer.load(None, state()))]
    with ocp.CheckpointManager(
        folder / "slow", options=ocp.CheckpointManagerOptions(save_decision_policy=SlowRefusal())
    ) as manager:
        seen.append(outcome(lambda: manager.save(1, args=saves)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(atomicity, "on_commit_callback", disk_full)
            seen.append(outcome(lambda: manager.save(2, args=saves, force=True)))
            seen += [outcome(manager.wait_until_finished), list(manager.all_steps())]
    return [*seen, sorted(str(p.relative_to(folder)) for p in folder.glob("*/[0-9]*"))]


class SlowRefusal(ocp.checkpoint_managers.SaveDecisionPolicy):
    def should_save(self, *args: Any, **kwargs: Any) -> bool:
        time.sleep(0.002)
        return False


async def disk_full(*args: Any, **kwargs: Any) -> None:
    raise OSError("disk full")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    assert installed(ocp) is None
    return everything(tmp_path_factory.mktemp("plain"))


def failing(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("planted")


def under_hooks(recorder: Recorder, folder: Path) -> tuple[list[Any], Guard]:
    hooks = Hooks(recorder, Guard("orbax"))
    install_orbax(ocp, hooks)
    try:
        return everything(folder), hooks.guard
    finally:
        hooks.uninstall()


def test_hooks_change_nothing_that_the_host_sees(
    plain: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen, guard = under_hooks(Recorder(MemorySink(), system_clock()), tmp_path)
    assert seen == plain
    assert guard.on, capsys.readouterr().err


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_point_that_fails_switches_the_plugin_off_and_nothing_else(
    plain: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], entry: str
) -> None:
    monkeypatch.setattr(Watch, entry, failing)
    seen, guard = under_hooks(Recorder(MemorySink(), system_clock()), tmp_path)
    assert seen == plain
    assert not guard.on, "this entry point was never reached"
    assert capsys.readouterr().err.count("the plugin 'orbax' failed") == 1


@pytest.mark.parametrize("telling", TELLING)
def test_a_recorder_that_fails_does_not_reach_the_host(
    plain: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, telling: str
) -> None:
    monkeypatch.setattr(Recorder, telling, failing)
    recorder = Recorder(MemorySink(), system_clock())
    if telling == "now":
        recorder.now = failing  # type: ignore[method-assign]
    seen, guard = under_hooks(recorder, tmp_path)
    assert seen == plain
    assert not guard.on, "it was never called"


def test_an_error_of_the_host_is_the_hosts_alone(tmp_path: Path) -> None:
    hooks = Hooks(Recorder(MemorySink(), system_clock()), Guard("orbax"))
    install_orbax(ocp, hooks)
    with ocp.CheckpointManager(tmp_path) as manager, pytest.raises(FileNotFoundError) as caught:
        manager.restore(None)
    hooks.uninstall()
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def hooked_owners() -> list[Any]:
    return [
        *(ocp.CheckpointManager, ocp.Checkpointer, ocp.AsyncCheckpointer, ocp.StandardCheckpointer),
        *(event_tracking.OperationRecorder, v1, v1.training.Checkpointer),
        *(inspect.getmodule(v1.save), inspect.getmodule(v1.load)),
    ]


def test_uninstalling_puts_everything_back() -> None:
    before = [dict(vars(owner)) for owner in hooked_owners()]
    hooks = Hooks(Recorder(MemorySink(), system_clock()), Guard("orbax"))
    install_orbax(ocp, hooks)
    assert [dict(vars(owner)) for owner in hooked_owners()] != before
    hooks.uninstall()
    assert [dict(vars(owner)) for owner in hooked_owners()] == before


@pytest.mark.parametrize(
    ("owner", "name"), [(ocp.CheckpointManager, "_finalize"), (ocp.AsyncCheckpointer, "check_for_errors"), (v1, "load")]
)
def test_an_orbax_that_lacks_what_is_hooked_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    owners = hooked_owners()
    monkeypatch.delattr(owner, name)
    before = [dict(vars(owner)) for owner in owners]
    hooks = Hooks(Recorder(MemorySink(), system_clock()), Guard("orbax"))
    with pytest.raises(AttributeError, match=name):
        install_orbax(ocp, hooks)
    assert [dict(vars(owner)) for owner in owners] == before


def test_hooked_methods_still_look_like_the_hosts() -> None:
    signature, text = inspect.signature(ocp.CheckpointManager.save), ocp.CheckpointManager.save.__doc__
    hooks = Hooks(Recorder(MemorySink(), system_clock()), Guard("orbax"))
    install_orbax(ocp, hooks)
    assert inspect.signature(ocp.CheckpointManager.save) == signature
    assert ocp.CheckpointManager.save.__doc__ == text
    hooks.uninstall()


def test_the_table_of_plugins_says_what_the_plugin_says() -> None:
    (plugin,) = [plugin for plugin in TABLE if plugin.name == "orbax"]
    assert plugin.sees == SEES
    assert plugin.requirement == REQUIREMENT


def test_a_save_on_ctrl_c_is_still_told(tmp_path: Path) -> None:
    """Interrupted inside a save, then saving again: nothing of the first call hides the second."""
    sink = MemorySink()
    hooks = Hooks(Recorder(sink, system_clock()), Guard("orbax"))
    install_orbax(ocp, hooks)
    args = ocp.args.StandardSave(state())
    with ocp.CheckpointManager(tmp_path) as manager:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(manager, "wait_until_finished", interrupted)
            with pytest.raises(KeyboardInterrupt):
                manager.save(1, args=args)
        manager.save(2, args=args)
    hooks.uninstall()
    told = [(e.kind.name, e.step) for e in sink.events if e.activity is Activity.SAVE and e.name is None]
    assert told == [("BEGIN", 1), ("FINISH", None), ("BEGIN", 2), ("FINISH", 2)]


def interrupted() -> None:
    raise KeyboardInterrupt
