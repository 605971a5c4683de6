"""Whether an object is a checkpoint: does it hold the state of a module or of an optimizer?

It does if, at most three containers deep, there is

- a ``torch.nn.Module`` or an optimizer itself;
- a module's state: what ``state_dict()`` returned, or a mapping whose values are all tensors and one of whose names
  is that of a parameter (``weight``, ``bias``, or dotted as in ``encoder.0.weight``);
- an optimizer's state: a mapping with ``state`` and ``param_groups``.

So a data set of tensors, a tokenizer or a random state is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import torch

DEPTH = 3
MOST_ITEMS = 100
"""So many items of a container are looked at."""


def holds_state(value: Any, depth: int = DEPTH) -> bool:
    """Whether ``value`` holds the state of a module or an optimizer."""
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return True
    if isinstance(value, Mapping):
        if _is_state(value):
            return True
        inside: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        inside = value
    else:
        return False
    return depth > 0 and any(holds_state(item, depth - 1) for item in islice(inside, MOST_ITEMS))


def _is_state(value: Mapping[Any, Any]) -> bool:
    if hasattr(value, "_metadata") or ("state" in value and "param_groups" in value):
        return True
    items = list(islice(value.items(), MOST_ITEMS))
    return all(isinstance(item, torch.Tensor) for _, item in items) and any(_names_parameter(key) for key, _ in items)


def _names_parameter(key: Any) -> bool:
    return isinstance(key, str) and ("." in key or key in ("weight", "bias"))


def own_count(optimizer: Any) -> int | None:
    """How many steps the optimizer itself has counted; None if it does not count, or on a device.

    Reading a number from a device would wait for it.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if state:
                return _whole(state.get("step"))
    return None


def _whole(step: Any) -> int | None:
    if isinstance(step, torch.Tensor):
        return int(step) if step.device.type == "cpu" and step.numel() == 1 else None
    return step if type(step) is int else None
