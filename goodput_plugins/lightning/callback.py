"""The callback: Lightning calls it, it tells the trainer's :class:`~goodput_plugins.lightning.watch.Watch`.

It has no state of its own: it can be pickled, reused and listed twice, and adds nothing to a checkpoint.
"""

from __future__ import annotations

from typing import Any

from goodput_plugins.core.errors import PluginUnavailable
from goodput_plugins.core.guard import guard_of
from goodput_plugins.core.patching import wrapper
from goodput_plugins.lightning.twins import MODULES, in_use, twin

NAME = "lightning"
REQUIREMENT = "lightning>=2.5"
"""What to hand to ``pip install``; the plugin table says the same."""


class GoodputCallback:
    """Records the goodput of a ``Trainer``: ``Trainer(callbacks=[GoodputCallback()])``.

    What is made is an instance of a subclass that is a ``Callback`` of the library that the script uses:
    ``pytorch_lightning``, ``lightning.pytorch``, or both.

    Raises:
        PluginUnavailable: neither library is installed, or in a version that cannot be watched.
    """

    def __new__(cls) -> GoodputCallback:
        """An instance of the subclass for the library in use."""
        return object.__new__(_chosen() if cls is GoodputCallback else cls)

    def __init__(self) -> None:
        from goodput_plugins.lightning.install import by_hand

        for library in in_use():
            by_hand(library)

    @wrapper
    def __reduce__(self) -> Any:
        """How it is pickled: it is made again where it is loaded, so that a process that was spawned is hooked."""
        return _made_again, (type(self),)

    @wrapper
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The rank is known; the model is about to be made ready."""
        guard_of(NAME)(_set_up, trainer)

    @wrapper
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A batch has been fetched; it may begin a step."""
        watch = getattr(trainer, "_goodput_watch", None)
        if watch is not None and watch.guard.on:
            try:  # what calling the guard does, without a call more for each batch
                watch.batch_begins(trainer)
            except Exception as error:
                watch.guard.failed(error)

    @wrapper
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The work of a batch has been queued on the device."""
        watch = getattr(trainer, "_goodput_watch", None)
        if watch is not None and watch.device is not None:
            watch.guard(watch.batch_ended, trainer)

    @wrapper
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """A validation begins, or the sanity check."""
        guard_of(NAME)(_tell, self, trainer, "evaluation_begins", "EVAL")

    @wrapper
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """A validation ends, or the sanity check."""
        guard_of(NAME)(_tell, self, trainer, "evaluation_ended", "EVAL")

    @wrapper
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """A test begins."""
        guard_of(NAME)(_tell, self, trainer, "evaluation_begins", "TEST")

    @wrapper
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """A test ends."""
        guard_of(NAME)(_tell, self, trainer, "evaluation_ended", "TEST")

    @wrapper
    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """A prediction begins."""
        guard_of(NAME)(_tell, self, trainer, "evaluation_begins", "PREDICT")

    @wrapper
    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """A prediction ends."""
        guard_of(NAME)(_tell, self, trainer, "evaluation_ended", "PREDICT")

    @wrapper
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Something was raised that ends what the trainer does."""
        guard_of(NAME)(_tell, self, trainer, "failed", exception)


@wrapper
def _made_again(kind: type[GoodputCallback]) -> GoodputCallback:
    callback: GoodputCallback = object.__new__(kind)
    guard_of(NAME)(callback.__init__)  # type: ignore[misc]
    return callback


def _set_up(trainer: Any) -> None:
    watch = getattr(trainer, "_goodput_watch", None)
    if watch is not None:
        watch.guard(watch.set_up, trainer)


def _tell(callback: GoodputCallback, trainer: Any, method: str, *args: Any) -> None:
    """Tell the trainer's watch, unless another callback of ours in its list does."""
    watch = getattr(trainer, "_goodput_watch", None)
    if watch is None:
        return
    first = next((known for known in trainer.callbacks if isinstance(known, GoodputCallback)), None)
    if first is callback:
        watch.guard(getattr(watch, method), trainer, *args)


def _chosen() -> type[GoodputCallback]:
    """The subclass for the libraries that are imported; if none is yet, for those that are installed."""
    libraries = in_use() or [library for library in MODULES if _can_be_imported(library)]
    if not libraries:
        raise PluginUnavailable(
            "goodput_plugins.lightning needs Lightning, which cannot be imported here. "
            f"Run: pip install '{REQUIREMENT}'"
        )
    return twin(*libraries)


def _can_be_imported(library: str) -> bool:
    from importlib import import_module

    try:
        import_module(library)
    except ImportError:
        return False
    return True
