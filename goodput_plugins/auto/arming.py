"""Which plugins are asked for, and installing each when its framework is imported.

A plugin that was asked for by name and cannot work is told, with the ``pip install`` line; one that
``auto`` finds too old stays quietly off, and the report shows its buckets as not measured.
"""

from __future__ import annotations

import os
import sys
from time import monotonic_ns

from goodput_plugins import environ as env
from goodput_plugins.auto.imports import Finder, is_installed
from goodput_plugins.auto.plugins import TIMED
from goodput_plugins.core import ending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType
    from typing import Any

    from goodput_plugins.auto.plugins import Plugin
    from goodput_plugins.core.guard import Guard
    from goodput_plugins.core.patching import Hooks
    from goodput_plugins.core.session import Session


def arm(table: Iterable[Plugin], environ: Mapping[str, str] = os.environ) -> Arming | None:
    """Watch for the frameworks of the plugins that ``GOODPUT_PLUGINS`` asks for.

    Returns:
        None if it asks for none, or another call has armed them.
    """
    asked = env.plugins_asked_for(environ)
    if set(asked) <= {"off"} or any(isinstance(finder, Finder) for finder in sys.meta_path):
        return None
    ending.arm()
    arming = Arming(table, asked)
    Finder({*TIMED, *arming.triggers}, arming).install()
    return arming


class Arming:
    """The plugins of this process.

    Args:
        table: all plugins there are.
        asked: their names, or ``auto`` for all.

    Attributes:
        triggers: the plugins to install when a module has been imported.
    """

    def __init__(self, table: Iterable[Plugin], asked: list[str]) -> None:
        known = {plugin.name: plugin for plugin in table}
        self.asked = asked
        self.unknown = [name for name in asked if name not in known and name not in ("auto", "off")]
        self.known = list(known)
        needed = {known[name].needs for name in asked if name in known}
        self.plugins = [p for p in known.values() if p.name in asked or "auto" in asked or p.name in needed]
        self.triggers: dict[str, list[Plugin]] = {}
        for plugin in self.plugins:
            for trigger in plugin.hooks:
                self.triggers.setdefault(trigger, []).append(plugin)
        self._imports: list[tuple[str, int, int]] = []
        self._installed: dict[tuple[str, str], Hooks] = {}
        self._guards: dict[str, Guard] = {}
        self._awake = False

    # --- what the finder tells ------------------------------------------------------------------------

    def importing(self, name: str) -> None:
        """A module is about to run; if it ran before, its hooks go first, or they would stay twice."""
        for plugin in self.triggers.get(name, ()):
            self._uninstall(plugin.name, name)

    def imported(self, name: str, module: ModuleType, began: int, outermost: bool) -> None:
        """A module has run: tell how long that took, and install the plugins that it triggers."""
        ended = monotonic_ns()
        try:
            if not self._awake:
                self._awake = True
                self._complain()
            if outermost:
                self._imports.append((name, began, ended))
            for plugin in self.triggers.get(name, ()):
                self._install(plugin, name, module)
            if outermost and "goodput_plugins.core.session" in sys.modules:
                self._session()
        except Exception as error:
            from goodput_plugins.core.guard import Guard

            self._guards.setdefault("", Guard("auto")).failed(error)

    # --- installing -----------------------------------------------------------------------------------

    def _install(self, plugin: Plugin, trigger: str, module: ModuleType) -> None:
        from goodput_plugins.core.guard import guard_of
        from goodput_plugins.core.patching import Hooks

        session = self._session()
        first = plugin.name not in self._guards
        guard = self._guards.setdefault(plugin.name, guard_of(plugin.name))
        version = _version(plugin)
        if first and version is not None and not plugin.works_with(version):
            guard.on = False
            self._too_old(plugin, version)
        if not guard.on:
            return
        self._uninstall(plugin.name, trigger)  # whoever tells twice of one import
        hooks = Hooks(session.recorder, guard)
        self._installed[plugin.name, trigger] = hooks
        session.at_close.append(hooks.close)
        guard(lambda: _function(plugin.hooks[trigger])(module, hooks))
        if not guard.on:
            for name, installed in list(self._installed):
                if name == plugin.name:
                    self._uninstall(name, installed)
        elif first:
            session.recorder.plugin(plugin.name, version or "unknown", plugin.sees)

    def _uninstall(self, plugin: str, trigger: str) -> None:
        """Leave the framework as it was, and what the plugin runs beside it stopped."""
        hooks = self._installed.pop((plugin, trigger), None)
        if hooks is not None:
            hooks.uninstall()

    def _session(self) -> Session:
        """The session, told of the imports so far."""
        from goodput_plugins.core.events import Activity
        from goodput_plugins.core.session import current

        session = current()
        offset = session.clock() - monotonic_ns()
        while self._imports:
            name, began, ended = self._imports.pop(0)
            session.recorder.span(Activity.IMPORT, began + offset, ended - began, name=name)
        return session

    # --- telling the user -----------------------------------------------------------------------------

    def _complain(self) -> None:
        """Say what is wrong with the environment: now that a framework is used, someone may train."""
        env.warn_once()
        if not env.speaks_for_job():
            return
        from goodput_plugins.core.guard import say

        if clash := mixture(self.asked):
            say(f"{clash} Training goes on.")
        if self.unknown:
            say(
                f"GOODPUT_PLUGINS asks for {', '.join(self.unknown)}, which is no plugin;",
                f"there are: auto, off, {', '.join(self.known)}. Ignored; training goes on.",
            )
        for plugin in self.plugins:
            if plugin.name in self.asked and not any(map(is_installed, _libraries(plugin))):
                say(
                    f"the plugin '{plugin.name}' was asked for, but {plugin.distribution} is not installed here.",
                    f"Run: pip install '{plugin.requirement}'",
                )

    def _too_old(self, plugin: Plugin, version: str) -> None:
        if plugin.name in self.asked and env.speaks_for_job():
            from goodput_plugins.core.guard import say

            say(
                f"the plugin '{plugin.name}' was asked for, but does not know {plugin.distribution} {version};",
                f"it stays off and training goes on. Run: pip install '{plugin.requirement}'",
            )


def mixture(asked: list[str]) -> str:
    """What is done where the words of ``GOODPUT_PLUGINS`` contradict each other; empty if they do not."""
    words = {"auto", "off"} & set(asked)
    names = ", ".join(name for name in asked if name not in words)
    if not words or (len(words) == 1 and not names):
        return ""
    done = "all plugins are armed" if "auto" in words else f"off is ignored, and these are asked for: {names}"
    said = f"GOODPUT_PLUGINS={','.join(asked)} mixes what excludes each other: {done}."
    return f"{said} Say auto, off, or names of plugins."


def _version(plugin: Plugin) -> str | None:
    """The version of the plugin's library, the cheap way if there is one; None if nothing tells."""
    used = {name: where for name, where in _libraries(plugin).items() if name in sys.modules} or _libraries(plugin)
    for library in used:
        version = getattr(sys.modules.get(library), "__version__", None)
        if isinstance(version, str):
            return str(version)
    from importlib import metadata

    for distribution in used.values():
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def _libraries(plugin: Plugin) -> dict[str, str]:
    """The libraries that a plugin is for, each with its distribution."""
    return {plugin.library: plugin.distribution, **dict(plugin.also)}


def _function(where: str) -> Callable[..., Any]:
    from importlib import import_module

    module, _, name = where.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function
