"""The callback on the base class of each library, and of both for a script that uses both.

Each is a class of a module of its own, so that it can be pickled, and importing one imports its library.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goodput_plugins.lightning.callback import GoodputCallback

MODULES = {"pytorch_lightning": "of_pytorch_lightning", "lightning.pytorch": "of_lightning"}
"""Where the twin for each library is."""


def twin(*libraries: str) -> type[GoodputCallback]:
    """The callback for these libraries, which are imported if they are not yet."""
    module = MODULES[libraries[0]] if len(libraries) == 1 else "of_both"
    found: type[GoodputCallback] = import_module(f"{__name__}.{module}").GoodputCallback
    return found


def in_use() -> list[str]:
    """The libraries that are imported."""
    return [library for library in MODULES if library in sys.modules]
