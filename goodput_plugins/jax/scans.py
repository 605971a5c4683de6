"""How many steps a call takes, and how many calls a step: learnt while the step function is traced.

A loop over the steps inside the jitted function (``jax.lax.scan``, ``fori_loop``) takes as many steps in one
call as it is long. An optimizer wrapped in ``optax.MultiSteps`` needs as many calls for one step as it was
told; where it was told a schedule, that cannot be known and each call counts.
"""

from __future__ import annotations

import math
import weakref
from types import ModuleType
from typing import Any

import jax

from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.jax.functions import Frame, thread


def install_scans(hooks: Hooks) -> None:
    """Hook the loops that JAX traces."""
    around(hooks.patches, jax.lax, "scan", hooks.guard, before=_scan_begins, after=_ends)
    around(hooks.patches, jax.lax, "fori_loop", hooks.guard, before=_fori_loop_begins, after=_ends)


def steps_taken(frame: Frame) -> int:
    """How often what is being traced now runs in a call of ``frame``."""
    return math.prod(thread.scans[frame.depth :])


def _scan_begins(f: Any, init: Any, xs: Any = None, length: Any = None, *args: Any, **kwargs: Any) -> bool:
    if not thread.frames:
        return False
    if length is None:
        leaves = jax.tree_util.tree_leaves(xs)
        length = leaves[0].shape[0] if leaves else 1
    thread.scans.append(length if type(length) is int else 1)
    return True


def _fori_loop_begins(lower: Any, upper: Any, *args: Any, **kwargs: Any) -> bool:
    if not thread.frames:
        return False
    known = isinstance(lower, int) and isinstance(upper, int)
    thread.scans.append(max(upper - lower, 1) if known else 1)
    return True


def _ends(begun: bool | None, result: Any, error: BaseException | None) -> None:
    if begun:
        thread.scans.pop()


def install_multi_steps(module: ModuleType, hooks: Hooks) -> None:
    """Hook ``optax.MultiSteps``."""
    known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def made(steps: Any, opt: Any, every_k_schedule: Any, *args: Any, **kwargs: Any) -> None:
        if type(every_k_schedule) is int and every_k_schedule > 0:
            known[steps] = every_k_schedule

    def updates(steps: Any, *args: Any, **kwargs: Any) -> None:
        calls = known.get(steps, 1)
        for frame in thread.frames:
            if frame.function.jitted:
                frame.function.calls_per_step = calls

    around(hooks.patches, module.MultiSteps, "__init__", hooks.guard, before=made)
    around(hooks.patches, module.MultiSteps, "update", hooks.guard, before=updates)
