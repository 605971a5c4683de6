"""Accelerator start-up: the distributed service, backends, the mesh; and the rank that they tell.

Begins and ends are told as they happen, so a start-up that hangs is seen while it hangs. The hook on
the initialization of one backend runs while JAX holds its lock for backends: nothing here asks JAX for
devices.
"""

from __future__ import annotations

from typing import Any

import jax
from jax._src import distributed, xla_bridge

from goodput_plugins.core.events import Activity
from goodput_plugins.core.patching import After, Before, Hooks, around
from goodput_plugins.core.signals import hand_back


def install_backends(hooks: Hooks) -> None:
    """Hook what initializes devices."""
    recorder, patches, guard = hooks.recorder, hooks.patches, hooks.guard

    def begins(name: str | None = None) -> str | None:
        recorder.begin(Activity.DEVICE_INIT, name=name)
        return name

    def ends(name: str | None, result: Any, error: BaseException | None) -> None:
        recorder.finish(Activity.DEVICE_INIT, name=name)

    def discovery_begins() -> bool:
        if xla_bridge.backends_are_initialized():
            return False
        begins("backends")
        return True

    def discovery_ends(first: bool, result: Any, error: BaseException | None) -> None:
        if first:
            ends("backends", result, error)
            if error is None:
                recorder.rank(*_rank_of(xla_bridge._default_backend))

    def connecting(state: Any, *args: Any, **kwargs: Any) -> Any:
        begins("distributed")
        hand_back()  # SIGTERM, which JAX's preemption service handles from here on
        return state

    def connected(state: Any, result: Any, error: BaseException | None) -> None:
        ends("distributed", result, error)
        if error is None:
            recorder.rank(state.process_id, state.num_processes)

    def hook(owner: Any, name: str, before: Before, after: After) -> None:
        around(patches, owner, name, guard, before=before, after=after)

    hook(xla_bridge, "backends", discovery_begins, discovery_ends)
    hook(xla_bridge, "_init_backend", begins, ends)
    hook(distributed.State, "initialize", connecting, connected)
    observe_mesh(hooks, jax, "make_mesh")


def observe_mesh(hooks: Hooks, module: Any, name: str) -> None:
    """Observe the calls of ``module.name``, which lays devices out as a mesh; one inside another is a part of it."""
    recorder = hooks.recorder

    def begins(*args: Any, **kwargs: Any) -> bool:
        if recorder.inside(Activity.DEVICE_INIT):
            return False
        recorder.begin(Activity.DEVICE_INIT, name="mesh")
        return True

    def ends(outermost: bool | None, result: Any, error: BaseException | None) -> None:
        if outermost:
            recorder.finish(Activity.DEVICE_INIT, name="mesh")

    around(hooks.patches, module, name, hooks.guard, before=begins, after=ends)


def _rank_of(client: Any) -> tuple[int, int]:
    """Index of this process and how many there are, as the default backend's client knows them."""
    return client.process_index(), 1 + max(device.process_index for device in client.devices())
