"""Seeing modules being imported, without a cost to those nobody watches.

:class:`Finder` stands first on ``sys.meta_path``. It answers for the watched names only, and then
with the spec that the other finders give, whose loader tells before and after the module runs.
Whatever the host's import does is its own: an error of it passes, and importlib trims our frames
from its traceback like its own. ``wrapt`` has the same hook, but costs an interpreter start 60 ms.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from time import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Protocol, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

    class Watcher(Protocol):
        """Who is told of watched modules; what it raises is its own affair, so it does not."""

        def importing(self, name: str) -> None:
            """The module is about to run, maybe not for the first time."""

        def imported(self, name: str, module: ModuleType, began: int, outermost: bool) -> None:
            """The module has run, since ``began`` (``monotonic_ns``), inside no other watched one if ``outermost``."""


def _trimmed(function: F) -> F:
    """Make importlib trim the function's frame from tracebacks, as it does with frames of its own files."""
    code = function.__code__
    function.__code__ = code.replace(co_filename="<frozen importlib._bootstrap>")
    return function


class Finder:
    """A finder that watches some names.

    Args:
        names: full names of modules.
        watcher: is told of them.
    """

    def __init__(self, names: Collection[str], watcher: Watcher) -> None:
        self.names = frozenset(names)
        self.watcher = watcher
        self._asking: set[tuple[int, str]] = set()
        self.inside: set[int] = set()
        """The threads that are importing a watched module."""

    def install(self) -> None:
        """Stand first in ``sys.meta_path``, and tell of what is there already."""
        sys.meta_path.insert(0, self)
        for name in sys.modules.keys() & self.names:
            self.watcher.imported(name, sys.modules[name], monotonic_ns(), False)

    @_trimmed
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with our loader around theirs; None for names not watched."""
        if name not in self.names:
            return None
        asking = (get_ident(), name)
        if asking in self._asking:  # another hook of our kind asks everyone, us included
            return None
        self._asking.add(asking)
        try:
            spec = spec_from_others(self, name, path, target)
        finally:
            self._asking.discard(asking)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, name, self)  # type: ignore[assignment]
        return spec


@_trimmed
def spec_from_others(
    asking: Finder | None, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """What the first finder that knows ``name`` answers, ``asking`` left out; arguments as in ``find_spec``."""
    for finder in list(sys.meta_path):
        find = None if finder is asking else getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find(name, path, target) if find else None
        if spec is not None:
            return spec
    return None


def is_installed(module: str) -> bool:
    """Whether a module could be imported; imports nothing, not even its parents."""
    name, path = "", None
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        spec = spec_from_others(None, name, path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True


class Loader:
    """The host's loader, which also tells. Once the module runs it knows its own loader only."""

    def __init__(self, loader: Any, name: str, finder: Finder) -> None:
        self._goodput = (loader, name, finder)

    def __getattr__(self, name: str) -> Any:
        if name == "_goodput":  # a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self._goodput[0], name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._goodput[0])

    @_trimmed
    def exec_module(self, module: ModuleType) -> None:
        """Run the module as the host's loader does."""
        loader, name, finder = self._goodput
        module.__loader__ = loader
        if module.__spec__ is not None:
            module.__spec__.loader = loader
        finder.watcher.importing(name)
        thread = get_ident()
        outermost = thread not in finder.inside
        finder.inside.add(thread)
        began = monotonic_ns()
        try:
            loader.exec_module(module)
        finally:
            if outermost:
                finder.inside.discard(thread)
        finder.watcher.imported(name, sys.modules.get(name, module), began, outermost)
