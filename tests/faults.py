"""Faults planted in our own code: each function of ours can be made to fail where it is entered."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from types import FrameType
from typing import Any

import goodput_plugins
from goodput_plugins.auto.arming import Arming
from goodput_plugins.auto.plugins import TABLE, Plugin
from goodput_plugins.core import session as sessions
from goodput_plugins.core.guard import Guard, guard_of, of_process, say
from goodput_plugins.core.patching import WRAPPER, without_this_frame
from goodput_plugins.core.session import Session

PACKAGE = str(Path(goodput_plugins.__file__).parent) + "/"
STANDING = {function.__code__ for function in (Guard.__call__, Guard.failed, guard_of, say, without_this_frame)}
"""What holds the others' faults back; like the wrappers, whose only work is to call the host and a guard."""


class Planted(Exception):
    """A fault of ours."""


class Entries:
    """A trace function that sees each function of ours entered, on every thread, and makes one of them fail.

    Attributes:
        seen: the functions, in the order of their first calls.
        failed: whether the one was called.
    """

    def __init__(self, target: str | None = None) -> None:
        self.target = target
        self.seen: dict[str, None] = {}
        self.failed = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_filename.endswith(WRAPPER) or code in STANDING:
            return
        if code.co_name.startswith("<") and code.co_name != "<lambda>":  # a module, a comprehension
            return
        entry = f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_qualname}"
        self.seen[entry] = None
        if entry == self.target and not self.failed:
            self.failed = True
            raise Planted(entry)

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Watch this block."""
        before = sys.gettrace()
        threading.settrace(self)
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(before)  # type: ignore[arg-type]


def triggers(plugin: Plugin) -> list[str]:
    """The modules that trigger the plugin and can be imported here."""
    return [name for name in plugin.hooks if importlib.util.find_spec(name.partition(".")[0]) is not None]


ASKED = os.environ.get("PLUGINS_UNDER_TEST", ",".join(plugin.name for plugin in TABLE)).split(",")
PLUGINS = [
    plugin
    for plugin in TABLE
    if plugin.name in ASKED and importlib.util.find_spec(plugin.library.partition(".")[0]) is not None
]
"""Those whose library can be imported here, unless the environment asks for fewer of them."""


class Armed:
    """The plugins of the table under a session of their own, as the switch arms them."""

    def __init__(self, folder: Path) -> None:
        self.session = Session({"GOODPUT_DIR": str(folder), "GOODPUT_RUN_NAME": "contract"})
        self.arming = Arming(PLUGINS, ["auto"])

    def install(self, plugin: Plugin, *, times: int = 1) -> None:
        """Tell that the plugin's frameworks have been imported."""
        for trigger in triggers(plugin):
            module = importlib.import_module(trigger)
            for _ in range(times):
                self.arming.imported(trigger, module, monotonic_ns(), False)

    def patched(self, plugin: Plugin) -> list[tuple[Any, str]]:
        """Which attributes the plugin has replaced."""
        installed = self.arming._installed.items()
        return [place for (name, _), hooks in installed if name == plugin.name for place in hooks.patches.places]

    def uninstall(self) -> None:
        for plugin, trigger in list(self.arming._installed):
            self.arming._uninstall(plugin, trigger)


@contextmanager
def armed(folder: Path, *plugins: Plugin, times: int = 1) -> Iterator[Armed]:
    """The hooks of these plugins, and a session, for this block."""
    of_process.clear()
    found = Armed(folder)
    before = sessions._of_process.get("session")
    sessions._of_process["session"] = found.session
    try:
        for plugin in plugins:
            found.install(plugin, times=times)
        yield found
    finally:
        found.session.close()
        found.uninstall()
        of_process.clear()
        del sessions._of_process["session"]
        if before is not None:
            sessions._of_process["session"] = before
