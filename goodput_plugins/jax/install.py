"""What the import hooks call when ``jax`` and ``optax`` have been imported."""

from __future__ import annotations

import functools
import os
import sys
from types import ModuleType
from typing import Any

from jax._src import source_info_util, traceback_util

from goodput_plugins.core.patching import Hooks, around, without_this_frame, wrapper
from goodput_plugins.jax.annotations import install_annotations
from goodput_plugins.jax.backends import install_backends, observe_mesh
from goodput_plugins.jax.functions import Function, thread
from goodput_plugins.jax.jitted import install_jitted, observed_maker
from goodput_plugins.jax.learning import gradient_taken
from goodput_plugins.jax.programs import install_programs
from goodput_plugins.jax.scans import install_multi_steps, install_scans
from goodput_plugins.jax.sharing import observing, once

OUR_FILES = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@once
def install_jax(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``jax``."""
    _hide_our_frames(hooks)
    install_backends(hooks)
    install_programs(hooks)
    install_jitted(hooks)
    install_annotations(hooks)
    install_scans(hooks)
    for name in ("grad", "value_and_grad"):
        _observe_gradients(module, name, hooks)


@once
def install_optax(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``optax.apply_updates``, by both names that it goes by."""
    observing(hooks, module, "apply_updates", Function("optax.apply_updates", optimizes=True))
    hooks.patches.set(sys.modules["optax._src.update"], "apply_updates", module.apply_updates)
    install_multi_steps(module, hooks)


@once
def install_equinox(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``equinox``, whose ``filter_jit`` calls ``jax.jit``."""
    observing(hooks, module, "apply_updates", Function("equinox.apply_updates", optimizes=True))

    def given(jitted: Any, is_lower: bool, args: Any, kwargs: Any) -> Any:
        before, thread.given = thread.given, (args, kwargs)
        return before

    def over(before: Any, result: Any, error: BaseException | None) -> None:
        thread.given = before

    # What ``jax.jit`` is given has lost the names by which a counter is found.
    jitting = sys.modules.get("equinox._jit")
    if hasattr(jitting, "_call"):
        around(hooks.patches, jitting, "_call", hooks.guard, before=given, after=over)


@once
def install_pjit(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``jax.experimental.pjit``, whose function is handed out, with a warning, from a table."""
    table = vars(module).get("_deprecations", {})
    if "pjit" in table:
        warning, original = table["pjit"]
        _hand_out(module, table, (warning, observed_maker(hooks, original)))
        hooks.at_close.append(functools.partial(_hand_out, module, table, (warning, original)))


def _hand_out(module: ModuleType, table: dict[str, Any], entry: tuple[Any, Any]) -> None:
    table["pjit"] = entry
    forget = getattr(vars(module).get("__getattr__"), "cache_clear", None)
    if forget is not None:
        forget()


@once
def install_mesh_utils(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``jax.experimental.mesh_utils``."""
    for name in ("create_device_mesh", "create_hybrid_device_mesh"):
        observe_mesh(hooks, module, name)


@once
def install_multihost_utils(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``jax.experimental.multihost_utils``: the step at which all processes know that they will be stopped."""
    told: list[bool] = []

    def asked(token: None, reached: Any, error: BaseException | None) -> None:
        if reached and not told:
            told.append(True)
            hooks.recorder.notice("preemption")

    around(hooks.patches, module, "reached_preemption_sync_point", hooks.guard, after=asked)


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
