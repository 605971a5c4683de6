"""Checkpoints of a ``Trainer``: what a save blocks, which steps it holds, when it is durable; and restarts."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytorch_lightning = pytest.importorskip("pytorch_lightning")
lightning = pytest.importorskip("lightning.pytorch")

from observing import Observation, observed  # noqa: E402
from trainees import learner, loader, trainer  # noqa: E402

from goodput_plugins.core.events import Activity, Kind  # noqa: E402
from goodput_plugins.lightning import GoodputCallback  # noqa: E402
from goodput_plugins.lightning.install import install_lightning  # noqa: E402
from goodput_plugins.torch.install import install_data, install_torch  # noqa: E402

LIBRARIES = {"pytorch_lightning": pytorch_lightning, "lightning.pytorch": lightning}
SLEEP = 0.1

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return LIBRARIES[request.param]


@pytest.fixture
def seen(library: Any) -> Iterator[Observation]:
    armed = ((torch, install_torch), (torch.utils.data, install_data), (library, install_lightning))
    with observed(*armed) as observation:
        yield observation


def checkpointing(library: Any, folder: Path, **options: Any) -> Any:
    return library.callbacks.ModelCheckpoint(dirpath=folder / "checkpoints", **options)


def fitted(library: Any, folder: Path, batches: int, *callbacks: Any, ckpt_path: Any = None, **options: Any) -> Any:
    fits = trainer(library, folder, callbacks=[*callbacks, GoodputCallback()], **options)
    fits.fit(learner(library), loader(batches), ckpt_path=ckpt_path)
    return fits


def slow_writes(library: Any, *, fails: bool = False) -> Any:
    """A checkpoint plugin that takes its time, or fails after it."""

    class Slow(library.plugins.io.TorchCheckpointIO):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            self.threads: set[str] = set()

        def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
            self.threads.add(threading.current_thread().name)
            time.sleep(SLEEP)
            if fails:
                raise OSError("no space left")
            super().save_checkpoint(checkpoint, path, storage_options)

    return Slow()


def labels(seen: Observation, kind: Kind) -> list[int | None]:
    return [event.step for event in seen.of(kind, Activity.SAVE if kind is Kind.FINISH else None)]


def held(seen: Observation) -> list[int]:
    """How many steps each committed checkpoint says that it holds."""
    return [event.data["steps"] for event in seen.of(Kind.COMMIT)]


# --- saves -----------------------------------------------------------------------------------------------------------


def test_each_save_has_the_last_step_in_it_and_is_committed(seen: Observation, library: Any, tmp_path: Path) -> None:
    every = checkpointing(library, tmp_path, every_n_train_steps=2, save_top_k=-1)
    fitted(library, tmp_path, 7, every, enable_checkpointing=True)
    assert labels(seen, Kind.FINISH) == labels(seen, Kind.COMMIT) == [1, 3, 5]
    assert held(seen) == [2, 4, 6]
    for event in seen.of(Kind.BEGIN, Activity.SAVE):
        assert seen.step_of(event) == event.step  # before the next step begins


def test_with_accumulation_a_checkpoint_is_saved_once_a_step(seen: Observation, library: Any, tmp_path: Path) -> None:
    every = checkpointing(library, tmp_path, every_n_train_steps=1, save_top_k=-1)
    fitted(library, tmp_path, 8, every, enable_checkpointing=True, accumulate_grad_batches=3)
    assert labels(seen, Kind.COMMIT) == [0, 1, 2]
    assert held(seen) == [1, 2, 3]


def test_top_k_and_last_are_saves_like_others(seen: Observation, library: Any, tmp_path: Path) -> None:
    best = checkpointing(library, tmp_path, monitor="loss", save_top_k=1, save_last=True)

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        self.log("loss", 1.0 / (1 + self.global_step))
        return self.loss(batch)

    fits = trainer(library, tmp_path, callbacks=[GoodputCallback(), best], enable_checkpointing=True, max_epochs=3)
    calls: list[Any] = []
    original = type(fits).save_checkpoint
    fits.save_checkpoint = lambda *args, **kwargs: (calls.append(args), original(fits, *args, **kwargs))[1]
    fits.fit(learner(library, training_step=training_step), loader(2))
    assert (tmp_path / "checkpoints" / "last.ckpt").exists()
    assert len(calls) == len(labels(seen, Kind.COMMIT)) >= 3


def test_the_users_own_save_holds_what_was_trained_when_it_was_called(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 2:
            self.trainer.save_checkpoint(tmp_path / "mine.ckpt")
        return self.loss(batch)

    fits = trainer(library, tmp_path, callbacks=[GoodputCallback()])
    fits.fit(learner(library, training_step=training_step), loader(4))
    fits.save_checkpoint(tmp_path / "after.ckpt")
    assert labels(seen, Kind.COMMIT) == [1, 3]
    assert held(seen) == [2, 4]


def test_the_blocking_part_of_a_save_is_all_that_the_trainer_waited_for(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    every = checkpointing(library, tmp_path, every_n_train_steps=1, save_top_k=-1)
    fitted(library, tmp_path, 2, every, enable_checkpointing=True, plugins=[slow_writes(library)])
    assert 2 * SLEEP <= seen.seconds(Activity.SAVE) <= 2 * SLEEP + 0.15
    assert len(seen.of(Kind.COMMIT)) == 2


def test_an_asynchronous_save_is_committed_by_the_thread_that_writes_it(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    slow = slow_writes(library)
    plugin = library.plugins.io.AsyncCheckpointIO(slow)
    every = checkpointing(library, tmp_path, every_n_train_steps=1, save_top_k=-1)
    fitted(library, tmp_path, 3, every, enable_checkpointing=True, plugins=[plugin])
    assert "MainThread" not in slow.threads
    assert labels(seen, Kind.FINISH) == labels(seen, Kind.COMMIT) == [0, 1, 2]
    assert seen.seconds(Activity.SAVE) < SLEEP
    for save, commit in zip(seen.of(Kind.FINISH, Activity.SAVE), seen.of(Kind.COMMIT), strict=True):
        assert commit.time - save.time >= 0.9 * SLEEP * 1e9
        assert commit.thread != save.thread and commit.duration >= 0.9 * SLEEP * 1e9


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_save_that_fails_is_not_committed(
    seen: Observation, library: Any, tmp_path: Path, asynchronous: bool
) -> None:
    plugin = slow_writes(library, fails=True)
    plugin = library.plugins.io.AsyncCheckpointIO(plugin) if asynchronous else plugin
    every = checkpointing(library, tmp_path, every_n_train_steps=1, save_top_k=-1)
    with pytest.raises(OSError, match="no space left"):
        fitted(library, tmp_path, 1, every, enable_checkpointing=True, plugins=[plugin])
    assert not seen.of(Kind.COMMIT)
    assert [event.name for event in seen.of(Kind.COMMIT_FAILED)] == ["OSError: no space left"] * asynchronous
    assert labels(seen, Kind.FINISH) == [0] * asynchronous + [None] * (not asynchronous)


# --- restores --------------------------------------------------------------------------------------------------------


def test_a_restart_goes_on_after_the_last_step_of_the_checkpoint(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    every = checkpointing(library, tmp_path, every_n_train_steps=2, save_top_k=-1)
    fitted(library, tmp_path, 5, every, enable_checkpointing=True)
    path = next((tmp_path / "checkpoints").glob("*step=4*"))
    fitted(library, tmp_path, 5, ckpt_path=path, max_epochs=2)
    assert seen.steps[:5] == [0, 1, 2, 3, 4]
    assert seen.steps[5] == 4
    restores = seen.of(Kind.FINISH, Activity.RESTORE)
    assert [event.step for event in restores] == [None, 3]
    ((begin, end),) = seen.stretches(Activity.PREPARATION)[1:]
    assert begin.time < restores[0].time < restores[1].time < end.time


def test_weights_that_a_validation_loads_resume_nothing(seen: Observation, library: Any, tmp_path: Path) -> None:
    fits = fitted(library, tmp_path, 3)
    fits.save_checkpoint(tmp_path / "saved.ckpt")
    fits.validate(learner(library), loader(1), ckpt_path=tmp_path / "saved.ckpt", verbose=False)
    assert [event.step for event in seen.of(Kind.FINISH, Activity.RESTORE)] == [None, None]


# --- what stays as it was --------------------------------------------------------------------------------------------


def test_the_checkpoints_are_the_same_with_our_callback_and_without(
    seen: Observation, library: Any, tmp_path: Path
) -> None:
    saved = []
    for callbacks in ([], [GoodputCallback()], [GoodputCallback(), GoodputCallback()]):
        library.seed_everything(1, verbose=False)
        fits = trainer(library, tmp_path, callbacks=callbacks, max_epochs=2)
        fits.fit(learner(library), loader(3), loader(1))
        fits.save_checkpoint(tmp_path / "saved.ckpt")
        saved.append(torch.load(tmp_path / "saved.ckpt", weights_only=False))
    plain, *ours = saved
    for other in ours:
        assert other.keys() == plain.keys() and other["callbacks"] == plain["callbacks"]
        for name, value in plain["state_dict"].items():
            assert torch.equal(other["state_dict"][name], value)
        assert other["loops"] == plain["loops"]


def test_the_callback_can_be_pickled_and_belongs_to_the_library_in_use(seen: Observation, library: Any) -> None:
    made = GoodputCallback()
    assert isinstance(made, GoodputCallback) and isinstance(made, library.Callback)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made) and vars(again) == {}
    assert made.state_dict() == {}


@pytest.mark.parametrize("switch", ["", "off", "orbax,torch"])
def test_unasked_the_entry_points_give_nothing_and_import_nothing(run: Any, switch: str) -> None:
    script = (
        "import sys\nfrom importlib.metadata import entry_points\nbefore = set(sys.modules)\n"
        "for library in ('pytorch_lightning', 'lightning.pytorch'):\n"
        "    (factory,) = {e.value: e for e in entry_points(group=library + '.callbacks_factory')}.values()\n"
        "    assert factory.load()() == []\n"
        "print(*sorted(set(sys.modules) - before - {'__future__'}))\n"
        "assert not {'torch', 'lightning', 'pytorch_lightning'} & set(sys.modules)\n"
    )
    done = run(script, **({"GOODPUT_PLUGINS": switch} if switch else {}))
    ours = [f"goodput_plugins{name}" for name in ("", ".lightning", ".lightning.entry")]
    assert set(done.stdout.split()) <= set(ours)


def test_by_the_switch_every_trainer_has_the_callback_once_more_by_hand_changes_nothing(run: Any) -> None:
    """Nor does it change how an error in training ends the process."""
    script = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "import lightning.pytorch as library\nfrom trainees import *\n"
        "from goodput_plugins.lightning import GoodputCallback\n"
        "callbacks = [GoodputCallback()]\n"
        "for _ in range(2):\n"
        "    fits = trainer(library, '.', callbacks=callbacks)\n"
        "    fits.fit(learner(library), loader(4), loader(1))\n"
        "assert isinstance(callbacks[0], library.Callback)\n"
        "assert 'pytorch_lightning' not in sys.modules\n"
        "print(sum(isinstance(c, GoodputCallback) for c in fits.callbacks), flush=True)\n"
        "def training_step(self, batch, batch_idx): raise ValueError('no good')\n"
        "trainer(library, '.').fit(learner(library, training_step=training_step), loader(4))\n"
    )
    done = run(script, code=1, GOODPUT_PLUGINS="auto")
    assert done.stderr.endswith("ValueError: no good\n")
    assert "goodput:" not in done.stderr and int(done.stdout.splitlines()[-1]) >= 3
    _, events = run.recorded()
    assert [event.step for event in events if event.kind is Kind.STEP][:8] == list(range(8))
    assert sum(e.kind is Kind.BEGIN and e.activity is Activity.CUSTOM for e in events) == 2
    assert run.ending() == "exception:ValueError"


def test_by_hand_alone_the_callback_starts_a_run(run: Any) -> None:
    script = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
        "import pytorch_lightning as library\nfrom trainees import *\n"
        "from goodput_plugins.lightning import GoodputCallback\n"
        "fits = trainer(library, '.', callbacks=[GoodputCallback()])\n"
        "fits.fit(learner(library), loader(4, 0.02), loader(1))\n"
        "fits.save_checkpoint('saved.ckpt')\n"
    )
    run(script)
    _, events = run.recorded()
    assert [event.step for event in events if event.kind is Kind.STEP] == [0, 1, 2, 3]
    assert [event.step for event in events if event.kind is Kind.COMMIT] == [3]
    waited = sum(e.duration or 0 for e in events if e.kind is Kind.SPAN and e.activity is Activity.DATA)
    assert waited > 0 or any(e.activity is Activity.DATA for e in events)
    (armed,) = [event for event in events if event.kind is Kind.PLUGIN]
    assert armed.name == "lightning" and armed.data["device"] == "host"
    assert events[-1].kind is Kind.END and events[-1].name == "completed"
