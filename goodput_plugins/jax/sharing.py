"""The loop that all adapters of a recorder share, and how a library's functions are hooked for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from goodput_plugins.core.patching import Hooks, without_this_frame, wrapper
from goodput_plugins.environ import DEVICE_TIME
from goodput_plugins.jax.device import DeviceWatch
from goodput_plugins.jax.functions import Function
from goodput_plugins.jax.loop import Loop

Install = Callable[[ModuleType, Hooks], None]


class _Shared:
    """A loop, and what is installed for it: by which function, in which module."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.users: dict[int, Hooks] = {}
        self.installed: set[tuple[Install, ModuleType]] = set()


_shared: dict[int, _Shared] = {}


def loop_of(hooks: Hooks) -> Loop:
    """The loop of the recorder that ``hooks`` tell; it is closed when the last that asked for it are uninstalled."""
    return _shared_by(hooks).loop


def once(install: Install) -> Install:
    """``install``, which does nothing where it has hooked the module for the same recorder already."""

    @functools.wraps(install)
    def installs(module: ModuleType, hooks: Hooks) -> None:
        installed = _shared_by(hooks).installed
        if (installs, module) not in installed:
            installed.add((installs, module))
            hooks.at_close.append(functools.partial(installed.discard, (installs, module)))
            install(module, hooks)

    return installs


def observing(hooks: Hooks, owner: Any, name: str, function: Function) -> None:
    """Observe the calls of ``owner.name`` as calls of ``function``.

    With ``optimizes`` set: called while a jitted function is traced, it makes that one a step function;
    called by itself, it is a step.
    """
    loop, guard = loop_of(hooks), hooks.guard
    original = getattr(owner, name)

    @functools.wraps(original)
    @wrapper
    def observed(*args: Any, **kwargs: Any) -> Any:
        try:
            return loop.call(guard, function, original, args, kwargs)
        except BaseException as error:
            without_this_frame(error)
            raise

    hooks.patches.set(owner, name, observed)


def _shared_by(hooks: Hooks) -> _Shared:
    key = id(hooks.recorder)
    shared = _shared.get(key)
    if shared is None:
        off = DEVICE_TIME.read() == "off"
        shared = _shared[key] = _Shared(Loop(hooks.recorder, None if off else DeviceWatch(hooks.recorder, hooks.guard)))
    if id(hooks) not in shared.users:
        shared.users[id(hooks)] = hooks
        hooks.at_close.append(functools.partial(_leave, key, id(hooks)))
    return shared


def _leave(key: int, user: int) -> None:
    shared = _shared.get(key)
    if shared is not None:
        shared.users.pop(user, None)
        if not shared.users:
            del _shared[key]
            shared.loop.close()
