"""Tracing, lowering, compiling, loading from the persistent cache, as JAX itself reports them.

``jax.monitoring`` calls its listeners on the thread that does the work: a scalar when something starts,
a duration when it ends (also when it failed). A program found in the cache reports, in between, how long
the retrieval took: that stretch is told as a cache load, with the compiling that it saved; one that was
looked for and is not there is told as a miss. An error in a listener would reach the host's
jitted call, so each runs under the guard.
"""

from __future__ import annotations

import functools
import threading
from contextlib import suppress
from typing import Any, cast

import jax.monitoring

from goodput_plugins.core.events import Activity, Fact
from goodput_plugins.core.null_recorder import NullRecorder
from goodput_plugins.core.patching import Hooks
from goodput_plugins.jax.functions import thread

ACTIVITIES = {
    "/jax/core/compile/jaxpr_trace_duration": Activity.TRACE,
    "/jax/core/compile/jaxpr_to_mlir_module_duration": Activity.LOWER,
    "/jax/core/compile/backend_compile_duration": Activity.COMPILE,
}
CACHE_RETRIEVAL = "/jax/compilation_cache/cache_retrieval_time_sec"
CACHE_SAVED = "/jax/compilation_cache/compile_time_saved_sec"
CACHE_MISS = "/jax/compilation_cache/cache_misses"


class _Current(threading.local):
    program: str | None = None


class Programs:
    """Tells a recorder what JAX's monitoring says about programs."""

    def __init__(self, recorder: NullRecorder) -> None:
        self._recorder = recorder
        self._current = _Current()

    def begins(self, event: str, value: float, **told: Any) -> None:
        """A scalar was recorded: something starts, if it is one of ours."""
        activity = ACTIVITIES.get(event)
        if activity is not None:
            self._current.program = name = _named(told.get("fun_name"))
            self._recorder.begin(activity, name=name)

    def ends(self, event: str, seconds: float, **told: Any) -> None:
        """A duration was recorded."""
        activity = ACTIVITIES.get(event)
        if activity is not None:
            self._recorder.finish(activity, name=_named(told.get("fun_name")))
            thread.compiled = self._recorder.now()
        elif event == CACHE_RETRIEVAL:
            duration = round(seconds * 1e9)
            start = self._recorder.now() - duration
            self._recorder.span(Activity.CACHE_LOAD, start, duration, name=self._current.program)
        elif event == CACHE_SAVED:
            self._recorder.fact(Fact.CACHE_SAVED, of=self._current.program, duration=max(0, round(seconds * 1e9)))

    def happened(self, event: str, **told: Any) -> None:
        """An event was recorded: the cache may lack the program that is being compiled."""
        if event == CACHE_MISS:
            self._recorder.fact(Fact.CACHE_MISS, of=self._current.program)


def install_programs(hooks: Hooks) -> None:
    """Register the listeners; uninstalling removes them."""
    programs, monitoring = Programs(hooks.recorder), jax.monitoring
    listeners = (
        (programs.begins, monitoring.register_scalar_listener, monitoring.unregister_scalar_listener),
        (
            programs.ends,
            monitoring.register_event_duration_secs_listener,
            monitoring.unregister_event_duration_listener,
        ),
        (programs.happened, monitoring.register_event_listener, monitoring.unregister_event_listener),
    )
    for listen, register, unregister in listeners:
        listener: Any = functools.partial(hooks.guard, cast(Any, listen))
        register(listener)
        hooks.at_close.append(functools.partial(_unregister, unregister, listener))


def _unregister(unregister: Any, listener: Any) -> None:
    # The host may have cleared all listeners meanwhile.
    with suppress(AssertionError, ValueError):
        unregister(listener)


def _named(name: str | None) -> str | None:
    """A program's name; ``pmap`` hides the function's behind ``_fun``."""
    if name is not None and name.endswith(("_fun", "_fun)")) and thread.frames:
        return name.replace("_fun", thread.frames[0].function.name)
    return name
