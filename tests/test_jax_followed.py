"""Where the host waits for each step, its calls tell when steps are done, and nothing is asked but the newest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from observing import Observation, observed
from stepping import step_that_works, the_loop

from goodput_plugins.core.events import Kind
from goodput_plugins.jax import pace
from goodput_plugins.jax.followed import Followed
from goodput_plugins.jax.install import install_jax, install_optax
from goodput_plugins.jax.steady import WAITED_FOR, Steady
from goodput_plugins.testing import MemorySink

MS = 1_000_000


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observation]:
    for gap in ("SMALL_GAP", "LARGE_GAP"):
        monkeypatch.setattr(pace, gap, 1.0)  # however late a busy machine lets the host call again
    with observed((jax, install_jax), (optax, install_optax)) as observation:
        yield observation


class Training:
    """Steps of about a millisecond, and when each was called and seen to be done by the script, ns."""

    def __init__(self, seen: Observation) -> None:
        self._step, self._params = step_that_works(20), {"w": jnp.ones(3)}
        self._x = jnp.ones((96, 96)) / 96
        self._now = seen.hooks.recorder.now
        self._loop = the_loop(seen.hooks)
        self.called: list[int] = []
        self.done: list[int] = []

    def step(self, *, waits: bool = True) -> None:
        self.called.append(self._now())
        self._params, loss = self._step(self._params, self._x)
        if waits:
            loss.block_until_ready()
        self.done.append(self._now())

    @property
    def followed(self) -> Followed | None:
        steady: Steady | None = self._loop.steady
        return None if steady is None else steady._followed

    def until(self, followed: bool) -> None:
        """Train until the host's calls tell when steps are done, or no longer do."""
        for _ in range(4000):
            self.step(waits=followed)
            if (self.followed is not None) is followed:
                return
        raise AssertionError("the host waits for each step, and is not believed" if followed else "it does not")


def ends(seen: Observation) -> dict[int | None, int]:
    return {event.step: event.time for event in seen.of(Kind.DEVICE)}


def test_each_step_is_told_once_and_ends_before_the_next_begins(seen: Observation) -> None:
    training = Training(seen)
    training.until(followed=True)
    first = len(training.called)
    for _ in range(200):
        training.step()
    time.sleep(0.1)
    seen.hooks.uninstall()
    told = [event.step for event in seen.of(Kind.DEVICE)]
    assert len(told) == len(set(told)) and set(range(first, first + 200)) <= set(told)
    done = ends(seen)
    for step in range(first, first + 199):
        assert training.called[step] <= done[step] <= training.called[step + 1] + MS  # told with the call's own clock


def test_stalls_between_steps_are_seen(seen: Observation) -> None:
    training = Training(seen)
    training.until(followed=True)
    first, planted = len(training.called), 0
    for step in range(600):
        training.step()
        if step % 60 == 30:
            begun = time.perf_counter_ns()
            time.sleep(0.05)
            planted += time.perf_counter_ns() - begun
    seen.hooks.uninstall()
    done, called = ends(seen), training.called
    idle = sum(max(0, called[step + 1] - done[step]) for step in range(first, first + 599) if step in done)
    assert idle == pytest.approx(planted, rel=0.25)  # where steps are not alike, each stall is seen late by up to 10 ms


def test_the_last_step_before_a_stall_is_told_during_the_stall(seen: Observation) -> None:
    training = Training(seen)
    training.until(followed=True)
    last = len(training.called) - 1
    for _ in range(100):
        time.sleep(0.02)
        if last in ends(seen):
            return
    raise AssertionError("whoever is killed now never told that this step was done")


def test_a_host_that_stops_waiting_is_believed_no_longer(seen: Observation) -> None:
    training = Training(seen)
    training.until(followed=True)
    before = len(training.called)
    training.until(followed=False)
    assert len(training.called) - before <= 2 * WAITED_FOR
    training.step()
    time.sleep(0.1)
    seen.hooks.uninstall()
    assert len(training.called) - 1 in ends(seen)


def test_steps_told_by_hand_are_not_counted_on(seen: Observation) -> None:
    training = Training(seen)
    training.until(followed=True)
    seen.hooks.recorder.step_by_hand(1)
    training.step()
    assert training.followed is None
    for _ in range(3 * WAITED_FOR):
        training.step()
    assert training.followed is None
    seen.hooks.uninstall()
    assert max(step for step in ends(seen) if step is not None) < seen.hooks.recorder.steps


@pytest.mark.parametrize("entry", ["tell", "come_by", "probe", "look"])
def test_a_fault_in_what_tells_of_followed_steps_is_said_once(
    entry: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*args: Any, **kwargs: Any) -> Any:
        raise OSError("a fault of ours")

    for gap in ("SMALL_GAP", "LARGE_GAP"):
        monkeypatch.setattr(pace, gap, 1.0)
    monkeypatch.setattr(pace.Pace, "is_probe", lambda *args: True)
    with observed((jax, install_jax), (optax, install_optax), errors_are_raised=False) as seen:
        training = Training(seen)
        training.until(followed=True)
        monkeypatch.setattr(Followed, entry, fails)
        for _ in range(400):
            training.step()
            if not seen.hooks.guard.on:
                break
        for _ in range(20):
            training.step()
        assert not seen.hooks.guard.on
    assert capsys.readouterr().err.count("failed and is off from here on") == 1


class Leaf:
    def __init__(self, ready: bool, asked: Callable[[], Any] = lambda: None) -> None:
        self._ready, self._asked = ready, asked

    def is_ready(self) -> bool:
        self._asked()
        return self._ready


class Told(MemorySink):
    """A recorder that only keeps what it is told of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[int, int] = {}

    def device_done(self, ordinal: int, *times: int) -> None:
        assert not self.done.keys() & range(ordinal, ordinal + len(times))
        self.done.update(enumerate(times, ordinal))


def test_what_was_seen_to_be_done_counts_and_else_the_next_call() -> None:
    steps, told = Followed(7, 100), Told()
    assert not steps.look(lambda: 0)
    steps.newest = Leaf(ready=False)
    assert not steps.look(lambda: 0)
    steps.newest = Leaf(ready=True)
    assert steps.look(lambda: 110)
    steps.calls.append(150)
    steps.calls.append(160)
    assert steps.tell(told, pace.Pace()) == 160  # type: ignore[arg-type]
    assert told.done == {7: 110, 8: 160}


def test_a_step_found_done_after_a_while_lasted_as_others_unless_it_was_seen_to_go_on() -> None:
    steps, told = Followed(0, 100), Told()
    steps.newest = Leaf(ready=True)
    steps.come_by(lambda: 900, 30)
    steps.calls.append(1000)
    steps.newest = Leaf(ready=False)
    steps.come_by(lambda: 1100, 30)
    steps.newest = Leaf(ready=True)
    steps.come_by(lambda: 1200, 30)
    steps.tell(told, pace.Pace())  # type: ignore[arg-type]
    assert told.done == {0: 130, 1: 1100}


def test_the_newest_is_told_while_nothing_follows_and_only_once() -> None:
    steps, told = Followed(0, 100), Told()
    steps.newest = Leaf(ready=True)
    for at in (110, 120):
        steps.look(lambda at=at: at)  # type: ignore[misc]
        steps.tell(told, pace.Pace())  # type: ignore[arg-type]
    steps.calls.append(200)
    steps.newest = None
    steps.tell(told, pace.Pace())  # type: ignore[arg-type]
    steps.calls.append(300)
    steps.tell(told, pace.Pace())  # type: ignore[arg-type]
    assert told.done == {0: 110, 1: 300}


def test_an_answer_that_a_call_has_overtaken_is_no_answer() -> None:
    steps = Followed(0, 100)
    steps.newest = Leaf(ready=True, asked=lambda: steps.calls.append(120))
    assert not steps.look(lambda: 130)
