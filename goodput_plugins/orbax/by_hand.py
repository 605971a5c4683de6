"""Watching one manager, without the switch: what ``goodput_plugins.orbax.wrap`` does."""

from __future__ import annotations

import weakref
from typing import Any, TypeVar

from goodput_plugins.core.errors import PluginUnavailable
from goodput_plugins.core.guard import guard_of
from goodput_plugins.core.patching import Hooks
from goodput_plugins.core.session import Session, current
from goodput_plugins.orbax.install import SEES, install_for, installed

REQUIREMENT = "orbax-checkpoint>=0.12"
"""What to hand to ``pip install``; the plugin table says the same."""

M = TypeVar("M")


def wrap(manager: M) -> M:
    """Record what this ``CheckpointManager`` saves and restores, and start a run if there is none.

    Args:
        manager: an ``orbax.checkpoint.CheckpointManager``, or an instance of a subclass.

    Returns:
        The same object. To wrap it twice, or with the switch on, changes nothing.

    Raises:
        PluginUnavailable: Orbax is not installed, or is a version that cannot be watched.
        TypeError: it is something else.
    """
    module = _orbax()
    if not isinstance(manager, module.CheckpointManager):
        raise TypeError(f"wrap() takes an orbax.checkpoint.CheckpointManager, not a {type(manager).__name__}")
    session = current()
    watch = installed(module)
    if watch is None:
        _watch(module, session, manager)
    elif watch.only is not None:
        watch.only.add(manager)
    session.recorder.training_begins()
    return manager


def _orbax() -> Any:
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise PluginUnavailable(
            f"goodput_plugins.orbax needs Orbax, which cannot be imported ({error}). Run: pip install '{REQUIREMENT}'"
        ) from error
    return orbax.checkpoint


def _watch(module: Any, session: Session, manager: Any) -> None:
    version = getattr(module, "__version__", "unknown")
    hooks = Hooks(session.recorder, guard_of("orbax"), at_close=session.at_close)
    try:
        install_for(module, hooks, weakref.WeakSet([manager]))
    except (AttributeError, ImportError) as error:
        raise PluginUnavailable(
            f"goodput_plugins.orbax does not know orbax-checkpoint {version} ({error}). "
            f"Run: pip install '{REQUIREMENT}'"
        ) from error
    session.recorder.plugin("orbax", version, SEES)
