"""What each call of Lightning means, in our words: the methods behind every hook and callback."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.environ import DEVICE_TIME, EVAL
from goodput_plugins.lightning.callback import GoodputCallback
from goodput_plugins.lightning.endings import tell_ending
from goodput_plugins.lightning.saves import Save, Saves
from goodput_plugins.torch.device import CudaDevice
from goodput_plugins.torch.loop import loop_of

FIT = "fit"


class Watch:
    """Sees what the trainers of one library do, and tells the recorder.

    Only a trainer that has our callback is watched.

    Attributes:
        guard: what all of this runs under.
        device: who learns when steps are done on the device; None where that is the host.
    """

    def __init__(self, hooks: Hooks, version: str, sees: tuple[str, ...]) -> None:
        self.guard = hooks.guard
        self.device: CudaDevice | None = None
        self._hooks = hooks
        self._recorder = hooks.recorder
        self._version = version
        self._sees = sees
        self._loop = loop_of(hooks)
        self._saves = Saves(hooks)
        self._trainer: weakref.ref[Any] | None = None
        self._running = 0
        self._strategies: set[type] = set()
        self._told: int | None = None
        self._progress: Any = None
        self._offset = 0
        self._next = 0
        self._restored = False
        self._ended = False

    # --- a trainer runs ---------------------------------------------------------------------------------

    def run_begins(self, trainer: Any, *args: Any, **kwargs: Any) -> bool:
        """``Trainer._run``: everything that a trainer does is in it."""
        self._loop.led += 1
        if not any(isinstance(callback, GoodputCallback) for callback in trainer.callbacks):
            return False
        self._enter(trainer)
        self._observe_strategy(type(trainer.strategy))
        return True

    def run_ended(self, watched: bool | None, result: Any, error: BaseException | None) -> None:
        self._loop.led -= 1
        if watched:
            self._leave()

    def set_up(self, trainer: Any) -> None:
        """The callback's ``setup``: the rank is known, the model is about to be made ready."""
        recorder = self._recorder
        recorder.rank(trainer.global_rank, trainer.world_size)
        where = trainer.strategy.root_device
        recorder.plugin("lightning", self._version, self._sees, device="host" if where.type == "cpu" else None)
        if _is_fit(trainer):
            recorder.training_begins()
            if where.type == "cuda" and self.device is None and DEVICE_TIME.read() != "off":
                self._watch_device(where)

    def _enter(self, trainer: Any) -> None:
        self._running += 1
        if not _is_fit(trainer):
            return
        known = self._trainer() if self._trainer is not None else None
        self._trainer, self._told, self._restored, self._ended = weakref.ref(trainer), None, False, False
        if known is not trainer and self._next > 0:
            self._ended = True
        if not self._recorder.inside(Activity.PREPARATION):
            self._recorder.begin(Activity.PREPARATION, name=FIT)

    def _leave(self) -> None:
        self._running = max(0, self._running - 1)
        trainer = self._trainer() if self._trainer is not None else None
        if trainer is not None and self._told is not None:
            self._next = max(self._next, trainer.global_step + self._offset)
        self._recorder.finish(Activity.PREPARATION, name=FIT)

    def _observe_strategy(self, strategy: type) -> None:
        """Observe ``setup_environment`` of this class, which may be the user's own."""
        if strategy not in self._strategies:
            self._strategies.add(strategy)
            hook = functools.partial(around, self._hooks.patches, strategy, "setup_environment", self.guard)
            hook(before=self._environment_begins, after=self._environment_ended)

    def _environment_begins(self, strategy: Any) -> bool:
        trainer = self._trainer() if self._trainer is not None else None
        fits = self._running > 0 and trainer is not None and trainer.strategy is strategy and _is_fit(trainer)
        if fits:
            self._recorder.begin(Activity.DEVICE_INIT, name="strategy")
        return fits

    def _environment_ended(self, begun: bool | None, result: Any, error: BaseException | None) -> None:
        if begun:
            self._recorder.finish(Activity.DEVICE_INIT, name="strategy")

    # --- steps ------------------------------------------------------------------------------------------

    def batch_begins(self, trainer: Any) -> None:
        """A batch begins: the first of a step if an optimizer has stepped since the last that was."""
        if self._told is None:
            self._first_batch(trainer)
        done = self._progress.completed if self._progress is not None else trainer.global_step
        if done == self._told:
            return
        self._told = done
        self._next = done + self._offset + 1
        ordinal = self._recorder.step(done + self._offset)
        if self.device is not None:
            self.device.step_begins(ordinal)

    def batch_ended(self, trainer: Any) -> None:
        """All work of a batch is queued on the device."""
        if self.device is not None and trainer.global_step != self._told:
            self.device.step_queued()

    def _first_batch(self, trainer: Any) -> None:
        done = trainer.global_step
        self._recorder.finish(Activity.PREPARATION, name=FIT)
        if self._ended and not self._restored:
            self._offset = self._next - done
        self._progress = _progress(trainer)

    def _watch_device(self, where: Any) -> None:
        import torch

        self.device = CudaDevice(torch.cuda, self._recorder, where)
        self._hooks.at_close.append(self.device.close)

    # --- waits for data ---------------------------------------------------------------------------------

    def wait_begins(self, fetcher: Any) -> bool:
        """A data fetcher is asked for a batch, or starts its loaders."""
        return self._running > 0 and self._recorder.wait(name="Trainer")

    def wait_ended(self, begun: bool | None, result: Any, error: BaseException | None) -> None:
        if begun:
            self._recorder.finish(Activity.DATA, name="Trainer")

    # --- evaluation -------------------------------------------------------------------------------------

    def evaluation_begins(self, trainer: Any, name: str) -> None:
        """A validation, test or prediction begins; the sanity check is a part of the preparation."""
        if not trainer.sanity_checking and EVAL.read() != "off":
            self._recorder.begin(Activity.CUSTOM, name=name)

    def evaluation_ended(self, trainer: Any, name: str) -> None:
        if not trainer.sanity_checking:
            self._recorder.finish(Activity.CUSTOM, name=name)

    # --- saves and restores -----------------------------------------------------------------------------

    def save_begins(self, trainer: Any, *args: Any, **kwargs: Any) -> Save | None:
        """``Trainer.save_checkpoint``."""
        if not any(isinstance(callback, GoodputCallback) for callback in trainer.callbacks):
            return None
        done = trainer.global_step
        steps = self._recorder.steps - (self._told is not None and done == self._told)
        return self._saves.begins(done + self._offset - 1, steps)

    def save_ended(self, save: Save | None, result: Any, error: BaseException | None) -> None:
        self._saves.ended(save, result, error)

    def handed_over(self, plugin: Any, *args: Any, **kwargs: Any) -> None:
        """``AsyncCheckpointIO.save_checkpoint``."""
        self._saves.handed_over(plugin, *args, **kwargs)

    def load_begins(self, connector: Any, checkpoint_path: Any = None, *args: Any, **kwargs: Any) -> Any:
        """``_restore_modules_and_callbacks``: the file is loaded and the model restored."""
        return self._restore_begins(connector, bool(checkpoint_path))

    def state_begins(self, connector: Any) -> Any:
        """``restore_training_state``: loops and optimizers are restored."""
        return self._restore_begins(connector, bool(connector._loaded_checkpoint))

    def _restore_begins(self, connector: Any, there_is: bool) -> Any:
        if not there_is or self._running == 0 or self._recorder.inside(Activity.RESTORE):
            return None
        self._recorder.begin(Activity.RESTORE)
        return connector.trainer

    def load_ended(self, trainer: Any, result: Any, error: BaseException | None) -> None:
        if trainer is not None:
            self._recorder.finish(Activity.RESTORE)

    def state_ended(self, trainer: Any, result: Any, error: BaseException | None) -> None:
        if trainer is None:
            return
        resumes = error is None and _is_fit(trainer)
        self._restored |= resumes
        step = trainer.global_step + self._offset - 1 if resumes else None
        self._recorder.finish(Activity.RESTORE, step=step)

    # --- endings ----------------------------------------------------------------------------------------

    def failed(self, trainer: Any, error: BaseException) -> None:
        """The trainer stops because of ``error``."""
        for activity in (Activity.CUSTOM, Activity.RESTORE, Activity.PREPARATION):
            self._recorder.finish(activity)
        tell_ending(self._recorder, error)


def _progress(trainer: Any) -> Any:
    """Where a trainer keeps its ``global_step``, which takes it nine calls to tell; None where that is unknown."""
    epochs = trainer.fit_loop.epoch_loop
    try:
        if trainer.lightning_module.automatic_optimization:
            kept = epochs.automatic_optimization.optim_progress.optimizer.step.total
        else:
            kept = epochs.manual_optimization.optim_step_progress.total
        return kept if kept.completed == trainer.global_step else None
    except AttributeError:
        return None


def _is_fit(trainer: Any) -> bool:
    return trainer.state.fn is not None and trainer.state.fn.value == FIT
