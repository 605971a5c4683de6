"""Running training loops under the adapters, in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.clock import system_clock
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.guard import Guard
from goodput_plugins.core.patching import Hooks
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Life, RunLog
from goodput_plugins.testing import MemorySink, strict

TESTS = Path(__file__).parent
Install = tuple[ModuleType, Callable[[ModuleType, Hooks], None]]


class Observation:
    """What the hooks told."""

    def __init__(self, recorder: type[Recorder] = Recorder) -> None:
        self.sink = MemorySink()
        self.hooks = Hooks(recorder(self.sink, system_clock()), Guard("tested"))

    @property
    def events(self) -> list[Event]:
        return sorted(self.sink.events, key=lambda event: event.time)

    def of(self, kind: Kind, activity: Activity | None = None, name: str | None = None) -> list[Event]:
        return [
            event
            for event in self.events
            if event.kind is kind and activity in (None, event.activity) and name in (None, event.name)
        ]

    @property
    def steps(self) -> list[int | None]:
        """The numbers of the steps, in order."""
        return [event.step for event in self.of(Kind.STEP)]

    def step_of(self, moment: Event) -> int:
        """Which step, counted from 0, an event lies in."""
        return sum(event.time <= moment.time for event in self.of(Kind.STEP)) - 1

    def stretches(self, activity: Activity, name: str | None = None) -> list[tuple[Event, Event]]:
        """The begins of an activity, each with its finish."""
        begins, finishes = self.of(Kind.BEGIN, activity, name), self.of(Kind.FINISH, activity, name)
        assert len(begins) == len(finishes)
        return list(zip(begins, finishes, strict=True))

    def seconds(self, activity: Activity, name: str | None = None) -> float:
        return sum(end.time - begin.time for begin, end in self.stretches(activity, name)) / 1e9


def report_on(*lives: Observation, **query: Any) -> Report:
    """What the journals of processes that died, but for the last, say."""
    told = []
    for number, seen in enumerate(lives):
        events = seen.sink.events
        start, end = min(e.time for e in events) - 10_000_000, max(e.time for e in events) + 1
        ending = [] if number < len(lives) - 1 else [Event(Kind.END, end, name="completed")]
        told.append(Life(str(start), start, [Event(Kind.START, start), *events, *ending]))
    return calculate(RunLog("r", told), now=2**62, **query)


@contextmanager
def observed(
    *installs: Install, errors_are_raised: bool = True, recorder: type[Recorder] = Recorder
) -> Iterator[Observation]:
    """Install hooks for this block; everything is put back at its end."""
    observation = Observation(recorder)
    with strict(errors_are_raised):
        try:
            for module, install in installs:
                install(module, observation.hooks)
            yield observation
        finally:
            observation.hooks.uninstall()


ARMED = """
import sys
sys.path.insert(0, {tests!r})
import jax, optax
from goodput_plugins.jax.install import install_jax, install_optax
from goodput_plugins.core.events import Activity, Kind
from observing import Observation
seen = Observation()
install_jax(jax, seen.hooks)
install_optax(optax, seen.hooks)
import atexit
def close():
    for call in seen.hooks.at_close:
        call()
atexit.register(close)
"""
"""The first lines of a script whose hooks stay to its end, as the switch leaves them."""


def armed(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script under the hooks of JAX and optax in a process of its own."""
    return plain(ARMED.format(tests=str(TESTS)) + script, **variables)


def plain(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": path} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
