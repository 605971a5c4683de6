"""What is hooked in Lightning, by the switch or by hand; the same in both libraries.

Private are ``Trainer._run`` (where a trainer's work begins and ends), ``_DataFetcher`` (waits, the first prefetch
included), ``_CheckpointConnector`` (restores).
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.errors import PluginUnavailable
from goodput_plugins.core.guard import guard_of
from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.environ import EVAL
from goodput_plugins.lightning.callback import NAME, REQUIREMENT
from goodput_plugins.lightning.watch import Watch

SEES = tuple(
    bucket.value
    for bucket in (
        Bucket.TPU_INITIALIZATION,
        Bucket.DATA_LOADING_SYNC,
        Bucket.SAVE,
        Bucket.RESTORE,
        Bucket.SAVE_ASYNC,
        *((Bucket.CUSTOM,) if EVAL.read() != "off" else ()),
    )
)
"""The buckets that this plugin can see once a trainer runs."""
MARK = "_goodput_watch"
"""What a hooked ``Trainer`` carries. It goes when the hooks go."""


def install_lightning(module: Any, hooks: Hooks) -> None:
    """Hook ``pytorch_lightning`` or ``lightning.pytorch``.

    Raises:
        AttributeError, ImportError: a version of Lightning that lacks what is hooked; nothing stays patched.
    """
    watch = Watch(hooks, getattr(module, "__version__", "unknown"), SEES)
    try:
        hooks.patches.set(module.Trainer, MARK, watch)
        _hook(module.__name__, module.Trainer, hooks, watch)
    except (AttributeError, ImportError):
        hooks.patches.undo()
        raise


def install_fabric(module: Any, hooks: Hooks) -> None:
    """Hook ``lightning_fabric.fabric`` or ``lightning.fabric.fabric``."""
    from goodput_plugins.lightning.fabric import observe_fabric

    observe_fabric(module.Fabric, hooks)


def by_hand(library: str) -> None:
    """Hook a library that is imported, unless it is or the plugin has failed: what making a callback does.

    Raises:
        PluginUnavailable: this version cannot be watched.
    """
    from goodput_plugins.core.session import current

    module, guard = importlib.import_module(library), guard_of(NAME)
    if hasattr(module.Trainer, MARK) or not guard.on:
        return
    session = current()
    hooks = Hooks(session.recorder, guard, at_close=session.at_close)
    try:
        install_lightning(module, hooks)
    except (AttributeError, ImportError) as error:
        version = getattr(module, "__version__", "unknown")
        raise PluginUnavailable(
            f"goodput_plugins.lightning does not know {library} {version} ({error}). Run: pip install '{REQUIREMENT}'"
        ) from error


def _hook(library: str, trainer: Any, hooks: Hooks, watch: Watch) -> None:
    fetcher = importlib.import_module(f"{library}.loops.fetchers")._DataFetcher
    connector = importlib.import_module(f"{library}.trainer.connectors.checkpoint_connector")._CheckpointConnector
    plugin = importlib.import_module(f"{library}.plugins.io").AsyncCheckpointIO
    hook = functools.partial(around, hooks.patches, guard=hooks.guard)
    hook(trainer, "_run", before=watch.run_begins, after=watch.run_ended)
    hook(trainer, "save_checkpoint", before=watch.save_begins, after=watch.save_ended)
    hook(plugin, "save_checkpoint", before=watch.handed_over)
    hook(connector, "_restore_modules_and_callbacks", before=watch.load_begins, after=watch.load_ended)
    hook(connector, "restore_training_state", before=watch.state_begins, after=watch.state_ended)
    for name in ("__iter__", "__next__"):
        hook(fetcher, name, before=watch.wait_begins, after=watch.wait_ended)
    prefetcher = importlib.import_module(f"{library}.loops.fetchers")._PrefetchDataFetcher
    hook(prefetcher, "__iter__", before=watch.wait_begins, after=watch.wait_ended)
