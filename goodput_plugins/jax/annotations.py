"""``jax.profiler.StepTraceAnnotation``: the loop's own word for "this is step 41".

Its ``step_num`` is the number of the first step that runs inside it; further step functions inside it
belong to the same step. Where no step function is known, the annotation itself is the step.
"""

from __future__ import annotations

import numbers
import re
from typing import Any

import jax

from goodput_plugins.core.patching import Hooks, around
from goodput_plugins.jax.sharing import loop_of

_EVALUATION = re.compile(r"eval|valid|test", re.IGNORECASE)


def install_annotations(hooks: Hooks) -> None:
    """Hook the annotation's construction, begin and end."""
    loop = loop_of(hooks)

    def made(annotation: Any, name: str, **kwargs: Any) -> None:
        number = kwargs.get("step_num")
        # A device array would have to be waited for.
        whole = int(number) if isinstance(number, numbers.Integral) else None
        annotation.goodput_step = (whole, "step_num" in kwargs and not _EVALUATION.search(name))

    def entered(annotation: Any) -> None:
        number, is_step = getattr(annotation, "goodput_step", (None, False))
        loop.annotation_begins(number, is_step=is_step)

    def left(annotation: Any, *args: Any) -> None:
        loop.annotation_ends()

    patched, guard = jax.profiler.StepTraceAnnotation, hooks.guard
    around(hooks.patches, patched, "__init__", guard, before=made)
    around(hooks.patches, patched, "__enter__", guard, before=entered)
    around(hooks.patches, patched, "__exit__", guard, before=left)
