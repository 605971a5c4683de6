"""The entry points by which every ``Trainer`` gets our callback under the switch.

Lightning calls them whenever a ``Trainer`` is made, and an error here would break that. Where the switch is unset or
asks for other plugins they return nothing and import nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WRAPPER = " (skipped like importlib._bootstrap)"
"""Marks what only calls others, as :func:`goodput_plugins.core.patching.wrapper` does, without importing that."""


def for_pytorch_lightning() -> list[Any]:
    """The callbacks for ``pytorch_lightning.Trainer``."""
    return _callbacks("pytorch_lightning")


def for_lightning() -> list[Any]:
    """The callbacks for ``lightning.pytorch.Trainer``."""
    return _callbacks("lightning.pytorch")


def _callbacks(library: str) -> list[Any]:
    asked = [word.strip() for word in os.environ.get("GOODPUT_PLUGINS", "").lower().split(",")]
    if not {"auto", "lightning"} & set(asked):
        return []
    try:
        from goodput_plugins.lightning.twins import twin

        return [twin(library)()]
    except Exception as error:
        from goodput_plugins.core.guard import guard_of

        guard_of("lightning").failed(error)
        return []


for _function in (for_pytorch_lightning, for_lightning, _callbacks):
    _function.__code__ = _function.__code__.replace(co_filename=__file__ + WRAPPER)
