"""Static arguments that switch a jitted function: with each combination of their values it is a function of its own.

``step(state, batch, train=True)`` takes a step, ``step(state, batch, train=False)`` evaluates. JAX compiles either by
itself, so what each does is learnt by itself too. It is the same with any static value that JAX tells apart: a tuple, a
model or ``self``, and what ``equinox.filter_jit`` takes out of its arguments.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from goodput_plugins.jax.functions import EVALUATES, Function

MOST_VARIANTS = 16
"""More combinations than these are no switches: what they do is taken for one and the same."""

FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)
"""These are no switches."""

_TRAINS = re.compile(r"^(is_)?train")


class Place(NamedTuple):
    """Where a static argument is passed: at that position, or under that name."""

    position: int | None
    name: str | None


class Flags:
    """The switches of a jitted function.

    Args:
        function: what is known of it, whatever they are.
        places: where its static arguments are passed.
    """

    def __init__(self, function: Function, places: tuple[Place, ...]) -> None:
        self._function = function
        self._places = places

    def set(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Function:
        """What is known of the function as these arguments switch it."""
        values = [_given(place, args, kwargs) for place in self._places]
        variants, key = self._function.variants, (self._places, *map(_switch, values))
        variant = variants.get(key)
        if variant is None:
            if len(variants) >= MOST_VARIANTS:
                return self._function
            variant = variants[key] = self._further() if variants else self._function
            variant.evaluates |= any(map(_says_evaluation, self._places, values))
        return variant

    def _further(self) -> Function:
        """One that takes the same steps as those known, if it takes any."""
        known = self._function
        further = Function(known.name, jitted=True)
        further.sequence = known.sequence
        further.leader = next((one.leader for one in known.variants.values() if one.leader is not None), None)
        return further


def flags_of(function: Function, host: Any, settings: Mapping[str, Any]) -> Flags | None:
    """The switches of ``host``, which is jitted with these settings; None where it has none."""
    positions = _listed(settings.get("static_argnums", settings.get("static_broadcasted_argnums")))
    names = _listed(settings.get("static_argnames"))
    if not positions and not names:
        return None
    try:
        known = [p.name for p in inspect.signature(host).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        known = []
    places = {_at(position, known) for position in positions} | {_called(name, known) for name in names}
    return Flags(function, tuple(sorted(places, key=str)))


def _listed(setting: Any) -> list[Any]:
    if setting is None:
        return []
    return [setting] if isinstance(setting, int | str) or not isinstance(setting, Iterable) else list(setting)


def _at(position: int, known: list[str]) -> Place:
    position = position + len(known) if position < 0 else position
    return Place(position, known[position] if 0 <= position < len(known) else None)


def _called(name: str, known: list[str]) -> Place:
    return Place(known.index(name) if name in known else None, name)


def _given(place: Place, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The value passed there."""
    position, name = place
    return args[position] if position is not None and position < len(args) else kwargs.get(name) if name else None


def _switch(value: Any) -> Any:
    """What tells a value from others as JAX tells it; nothing holds the value itself."""
    if value is None or isinstance(value, FUNCTIONS):
        return None
    if isinstance(value, bool | int | str | Enum):
        return value
    try:
        return type(value).__qualname__, hash(value)
    except Exception:  # JAX will say so
        return None


def _says_evaluation(place: Place, value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_says_evaluation(place, one) for one in value if isinstance(one, str | Enum))
    if isinstance(value, str | Enum):
        return EVALUATES.search(value.name.lower() if isinstance(value, Enum) else value) is not None
    if place.name is None or not isinstance(value, bool):
        return False
    return not value if _TRAINS.search(place.name) else value and EVALUATES.search(place.name) is not None
