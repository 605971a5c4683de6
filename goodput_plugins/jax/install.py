"""What the import hooks call when ``jax`` and ``optax`` have been imported."""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any

from jax._src import source_info_util, traceback_util

from goodput_plugins.core.patching import Hooks, without_this_frame, wrapper
from goodput_plugins.jax.annotations import install_annotations
from goodput_plugins.jax.backends import install_backends
from goodput_plugins.jax.functions import Function
from goodput_plugins.jax.jitted import install_jitted
from goodput_plugins.jax.loop import gradient_taken, observing
from goodput_plugins.jax.programs import install_programs

OUR_FILES = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def install_jax(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``jax``."""
    _hide_our_frames(hooks)
    install_backends(hooks)
    install_programs(hooks)
    install_jitted(hooks)
    install_annotations(hooks)
    for name in ("grad", "value_and_grad"):
        _observe_gradients(module, name, hooks)


def install_optax(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``optax.apply_updates``, by both names that it goes by."""
    observing(hooks, module, "apply_updates", Function("optax.apply_updates", optimizes=True))
    hooks.patches.set(sys.modules["optax._src.update"], "apply_updates", module.apply_updates)


def _observe_gradients(module: ModuleType, name: str, hooks: Hooks) -> None:
    original, guard = getattr(module, name), hooks.guard

    def observed(function: Any) -> Any:
        @functools.wraps(function)
        @wrapper
        def gradient(*args: Any, **kwargs: Any) -> Any:
            guard(gradient_taken)
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                without_this_frame(error)
                raise

        return gradient

    @functools.wraps(original)
    @wrapper
    def transform(*args: Any, **kwargs: Any) -> Any:
        try:
            function = original(*args, **kwargs)
        except BaseException as error:
            without_this_frame(error)
            raise
        return guard(observed, function) or function

    hooks.patches.set(module, name, transform)


def _hide_our_frames(hooks: Hooks) -> None:
    """Keep our lines out of JAX's tracebacks and out of what it says an operation comes from."""
    for registry in (traceback_util, source_info_util):
        registry.register_exclusion(OUR_FILES)
        hooks.at_close.append(functools.partial(registry._exclude_paths.remove, OUR_FILES))
