"""When the device finished each step is known, without waiting for it on the training thread."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from observing import Observation, armed, observed

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.jax.functions import Function
from goodput_plugins.jax.install import install_jax, install_optax
from goodput_plugins.jax.outputs import SmallOutput

SIZE = 600


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed((jax, install_jax), (optax, install_optax)) as observation:
        yield observation


def slow_step(params: Any, x: Any) -> Any:
    """About 30 ms on the host's processors."""
    y = x
    for _ in range(4):
        y = jnp.tanh(y @ x)
    params = optax.apply_updates(params, jax.tree.map(lambda p: 1e-6 * p + y.mean() * 0, params))
    return params, {"loss": y.sum()}


def inputs() -> tuple[Any, Any]:
    return {"w": jnp.ones((8, 1)), "b": jnp.zeros(())}, jnp.ones((SIZE, SIZE)) / SIZE


def watching() -> set[threading.Thread]:
    """The threads that watch a device."""
    return {thread for thread in threading.enumerate() if thread.name == "goodput-device"}


def test_steps_that_run_behind_the_host_are_seen_to_end_when_they_end(seen: Observation) -> None:
    step = jax.jit(slow_step, donate_argnums=0)
    now = seen.hooks.recorder.now
    losses: SimpleQueue[Any] = SimpleQueue()
    measured: list[int] = []

    def measure() -> None:
        while (loss := losses.get()) is not None:
            loss.block_until_ready()
            measured.append(now())

    measuring = threading.Thread(target=measure)
    measuring.start()
    params, x = inputs()
    for i in range(30):
        params, metrics = step(params, x)
        losses.put(metrics["loss"])
        if i % 10 == 9:
            jax.block_until_ready(params)
            time.sleep(0.02)
    losses.put(None)
    measuring.join()
    time.sleep(0.05)

    done = {event.step: event.time for event in seen.of(Kind.DEVICE)}
    assert len(done) >= 28
    assert set(done) <= set(range(30))
    late = sorted(abs(done[ordinal] - measured[ordinal]) / 1e6 for ordinal in done)
    assert statistics.median(late) < 5, late
    assert late[int(len(late) * 0.9)] < 25, late


def test_a_wait_right_after_a_step_finds_the_device_done_however_busy_the_host_is(seen: Observation) -> None:
    step, recorder = jax.jit(slow_step), seen.hooks.recorder
    params, x = inputs()
    for _ in range(20):
        params, metrics = step(params, x)
        metrics["loss"].block_until_ready()
        recorder.begin(Activity.DATA)
        busy_until = time.monotonic() + 0.004
        while time.monotonic() < busy_until:
            pass
        recorder.finish(Activity.DATA)
    time.sleep(0.05)
    done = {event.step: event.time for event in seen.of(Kind.DEVICE)}
    begins = [begin.time for begin, _ in seen.stretches(Activity.DATA)]
    assert len(done) >= 18
    assert [ordinal for ordinal in done if done[ordinal] > begins[ordinal]] == []


def test_a_step_done_when_its_call_returns_needs_no_thread(seen: Observation) -> None:
    params, _ = inputs()

    @jax.jit
    def step(params: Any) -> Any:
        return optax.apply_updates(params, params), jnp.zeros(()) + 1

    for _ in range(5):
        params, loss = step(params)
        jax.block_until_ready((params, loss))
    time.sleep(0.05)
    assert {event.step for event in seen.of(Kind.DEVICE)} == set(range(5))


def test_a_state_that_is_donated_whole_is_not_an_error(seen: Observation) -> None:
    step = jax.jit(lambda params, x: slow_step(params, x)[0], donate_argnums=0)
    params, x = inputs()
    for _ in range(5):
        params = step(params, x)
    jax.block_until_ready(params)
    time.sleep(0.1)
    assert len(seen.steps) == 5
    assert {event.step for event in seen.of(Kind.DEVICE)} >= {4}


def test_no_array_is_kept_once_it_is_ready(seen: Observation) -> None:
    import weakref

    step = jax.jit(slow_step, donate_argnums=0)
    params, x = inputs()
    for _ in range(4):
        params, metrics = step(params, x)
    loss = weakref.ref(metrics["loss"])
    metrics["loss"].block_until_ready()
    del metrics
    deadline = time.monotonic() + 2
    while loss() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert loss() is None


def test_switched_off_there_is_neither_device_time_nor_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOODPUT_DEVICE_TIME", "off")
    before = watching()
    with observed((jax, install_jax), (optax, install_optax)) as seen:
        step = jax.jit(slow_step)
        params, x = inputs()
        for _ in range(3):
            params, _ = step(params, x)
        assert watching() <= before
        assert len(seen.steps) == 3
        assert seen.of(Kind.DEVICE) == []


def test_the_thread_ends_with_the_hooks() -> None:
    before = watching()
    with observed((jax, install_jax), (optax, install_optax)):
        step = jax.jit(slow_step)
        params, x = inputs()
        for _ in range(3):
            params, _ = step(params, x)
        assert watching() - before
    assert watching() <= before


def test_the_output_to_watch_is_the_loss_and_not_the_small_counter_of_the_state() -> None:
    function, output = Function("step"), SmallOutput()
    assert function.output is not output
    state: Any = {"count": jnp.zeros(()), "w": jnp.ones(4)}
    for value in range(4):
        before, state = state, {"count": state["count"] + 1, "w": state["w"] + 1}
        loss = jnp.full((2,), value)
        picked = output.pick((before,), {}, ({"loss": loss}, state))
    assert picked is loss


def test_an_input_handed_through_is_not_watched() -> None:
    output, key = SmallOutput(), jnp.zeros(())
    loss = jnp.ones((3,))
    assert output.pick((key,), {}, (loss, key)) is loss


def test_a_result_of_another_structure_is_learnt_anew() -> None:
    output, loss = SmallOutput(), jnp.ones(())
    for _ in range(5):
        assert output.pick((), {}, {"loss": loss}) is loss
    assert output.pick((), {}, [loss]) is None
    assert output.pick((), {}, [loss]) is loss


ENDING = """
import jax.numpy as jnp
{before}
def step(params, x):
    y = x
    for _ in range(8):
        y = jnp.tanh(y @ x)
    return optax.apply_updates(params, params), y.sum()
step = jax.jit(step, donate_argnums=0)
params, x = jnp.ones(3), jnp.ones((1000, 1000)) / 1000
for _ in range(6):
    params, loss = step(params, x)
print(len(seen.steps), loss.is_ready(), flush=True)
{end}
"""


@pytest.mark.parametrize("before", ["", "atexit.unregister(close)"], ids=["closed", "never-closed"])
@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("raise ValueError('the end')", 1), ("sys.exit(3)", 3)], ids=["end", "error", "exit"]
)
def test_a_process_that_ends_with_work_in_flight_ends_as_it_would(before: str, end: str, code: int) -> None:
    done = armed(ENDING.format(before=before, end=end))
    assert done.returncode == code, done.stderr
    assert done.stdout.startswith("6 ")
    assert "goodput" not in done.stderr.replace("goodput_plugins", "")
