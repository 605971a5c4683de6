"""Step numbers: where the loop's inputs tell none, checkpoints correct them; and awkward counts come out right."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from loops.registry import loss_of, updated, weights
from observing import Observation, observed
from running import Runner, reported

from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.jax.install import install_jax, install_optax

X = jnp.ones((4, 8))
SCRIPT = """
import os, sys, time
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np, optax, orbax.checkpoint as ocp
tx = optax.sgd(0.1)  # counts nothing

@jax.jit
def train_step(params, state, x):
    loss, grads = jax.value_and_grad(lambda p: ((x @ p["w"]) ** 2).mean())(params)
    updates, state = tx.update(grads, state)
    return optax.apply_updates(params, updates), state, loss

by_hand = Path("params.npy")
params = {"w": jnp.ones((8, 1))}
first = 0
options = ocp.CheckpointManagerOptions(save_interval_steps=3)
with ocp.CheckpointManager(Path.cwd() / "checkpoints", options=options) as manager:
    if manager.latest_step() is not None:
        if sys.argv[1] == "manager":
            params = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(params))
        else:
            params = {"w": jnp.asarray(np.load(by_hand))}
        first = manager.latest_step() + 1
    state = tx.init(params)
    for step in range(first, 12):
        params, state, loss = train_step(params, state, jnp.ones((4, 8)))
        loss.block_until_ready()
        time.sleep(0.1)
        if manager.save(step, args=ocp.args.StandardSave(params)):
            manager.wait_until_finished()
            np.save(by_hand, params["w"])
        if first == 0 and step == 8:
            os.kill(os.getpid(), 9)
"""


@pytest.fixture
def seen() -> Iterator[Observation]:
    with observed((jax, install_jax), (optax, install_optax)) as observation:
        yield observation


@pytest.mark.parametrize("restored_by", ["manager", "hand"])
def test_checkpoints_tell_the_numbers_that_a_restarted_loop_does_not(run: Runner, restored_by: str) -> None:
    command = [*run.command(SCRIPT), restored_by]
    environ = run.environ(GOODPUT_PLUGINS="auto", GOODPUT_RUN_NAME="numbers", JAX_PLATFORMS="cpu")
    for code in (-signal.SIGKILL, 0):
        done = subprocess.run(command, env=environ, cwd=run.folder, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
    report = reported(run.runs / "numbers")
    # Steps 0 to 8, of which 6 is the last that was saved; then 7 to 11.
    assert [(a["first_step"], a["last_step"]) for a in report["attempts"]] == [(0, 8), (7, 11)]
    assert (report["steps"]["count"], report["disruptions"]) == (12, 1)
    assert report["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"] > 0
    found = {finding["id"]: finding["text"] for finding in report["findings"]}
    assert found["wasted-progress"].startswith("2 steps were rolled back")
    assert "unknown-step-numbers" not in found


GOES_BACK = """
import sys, time
from pathlib import Path
import jax, jax.numpy as jnp, optax, orbax.checkpoint as ocp
tx = {"sgd": optax.sgd, "adam": optax.adam}[sys.argv[1]](1e-3)

@jax.jit
def train_step(params, state):
    loss, grads = jax.value_and_grad(lambda p: (p["w"] ** 2).mean())(params)
    updates, state = tx.update(grads, state)
    return optax.apply_updates(params, updates), state, loss

def go_on(kept, first, last):
    params, state = kept["params"], kept["state"]
    for step in range(first, last):
        params, state, loss = train_step(params, state)
        loss.block_until_ready()
        time.sleep(0.02)
        if step % 10 == 0 and step:
            manager.save(step, args=ocp.args.StandardSave({"params": params, "state": state}))
    return {"params": params, "state": state}

params = {"w": jnp.ones(8)}
with ocp.CheckpointManager(Path.cwd() / "checkpoints") as manager:
    kept = go_on({"params": params, "state": tx.init(params)}, 0, 15)
    manager.wait_until_finished()
    if sys.argv[2] == "looks":
        manager.restore(10, args=ocp.args.StandardRestore(kept))
        go_on(kept, 15, 25)
    else:
        go_on(manager.restore(10, args=ocp.args.StandardRestore(kept)), 11, 25)
"""


@pytest.mark.parametrize(("optimizer", "how"), [("sgd", "looks"), ("sgd", "goes back"), ("adam", "goes back")])
def test_a_process_that_restores_goes_back_if_its_counter_or_its_labels_do(
    run: Runner, optimizer: str, how: str
) -> None:
    command = [*run.command(GOES_BACK), optimizer, how]
    environ = run.environ(GOODPUT_PLUGINS="auto", GOODPUT_RUN_NAME="back", JAX_PLATFORMS="cpu")
    subprocess.run(command, env=environ, cwd=run.folder, check=True)
    report = reported(run.runs / "back")
    assert [(a["first_step"], a["last_step"]) for a in report["attempts"]] == [(0, 24)]
    assert report["steps"]["count"] == 25
    back = how == "goes back"
    assert (report["badput_seconds"]["WASTED_PROGRESS_FROM_DISRUPTION"] > 0) is back
    found = {finding["id"]: finding["text"] for finding in report["findings"]}
    assert found.get("wasted-progress", "").startswith("4 steps were rolled back") is back
    assert report["disruptions"] == 0


def test_an_optimizer_of_several_calls_a_step_resumes_in_the_middle_of_one(seen: Observation) -> None:
    tx, params = optax.MultiSteps(optax.adam(1e-2), 4), weights()
    state = tx.init(params)._replace(gradient_step=jnp.array(5), mini_step=jnp.array(2))
    step = jax.jit(lambda *args: updated(tx, *args))
    for _ in range(7):  # the two that step 5 lacks, the four of 6, one of 7
        params, state, _ = step(params, state, X)
    assert seen.steps == [5, 6, 7]
    assert (int(state.gradient_step), int(state.mini_step)) == (7, 1)


def test_a_last_call_of_fewer_steps_counts_as_many_as_it_takes(seen: Observation) -> None:
    tx, params = optax.adam(1e-2), weights()
    state = tx.init(params)

    @jax.jit
    def steps(carry: Any, xs: Any) -> Any:
        def one(carry: Any, x: Any) -> Any:
            params, state, loss = updated(tx, *carry, x)
            return (params, state), loss

        return jax.lax.scan(one, carry, xs)

    carry = params, state
    for count in (4, 4, 2, 4, 1, 4, 1, 3):
        carry, _ = steps(carry, jnp.ones((count, 4, 8)))
    assert seen.steps == [0, 4, 8, 10, 14, 15, 19, 20]
    assert int(carry[1][0].count) == 23


def test_calls_of_one_step_and_then_of_several(seen: Observation) -> None:
    tx, params = optax.adam(1e-2), weights()
    state = tx.init(params)

    @jax.jit
    def steps(carry: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda carry, x: (updated(tx, *carry, x)[:2], None), carry, xs)[0]

    carry = params, state
    for count in (1, 1, 3, 1, 3):
        carry = steps(carry, jnp.ones((count, 4, 8)))
    assert seen.steps == [0, 1, 2, 5, 6]


def test_an_eager_update_beside_a_jitted_one_belongs_to_its_step(seen: Observation) -> None:
    tx, params = optax.adam(1e-2), weights()
    state, averaged = tx.init(params), weights()
    step = jax.jit(lambda *args: updated(tx, *args))
    for _ in range(5):
        params, state, _ = step(params, state, X)
        for _ in range(2):
            difference = jax.tree.map(lambda new, old: 0.1 * (new - old), params, averaged)
            averaged = optax.apply_updates(averaged, difference)
    assert seen.steps == list(range(5))


def test_one_jitted_update_and_then_eager_ones_are_all_steps(seen: Observation) -> None:
    tx, params = optax.adam(1e-2), weights()
    state = tx.init(params)
    params, state, _ = jax.jit(lambda *args: updated(tx, *args))(params, state, X)
    for _ in range(6):
        updates, state = tx.update(jax.grad(loss_of)(params, X), state, params)
        params = optax.apply_updates(params, updates)
    assert seen.steps == list(range(7))
    times = [event.time for event in seen.sink.events if event.kind is Kind.STEP]
    assert times == sorted(times)


def test_no_counter_that_is_still_being_computed_is_waited_for_after_a_restore(seen: Observation) -> None:
    """A checkpoint that is only looked at while steps are in flight: the loop goes on, and nothing waits."""
    tx = optax.adam(1e-2)

    @jax.jit
    def step(params: Any, state: Any, x: Any) -> Any:
        heavy = jax.lax.fori_loop(0, 60, lambda i, y: jnp.tanh(y @ x), x).sum()
        updates, state = tx.update(jax.tree.map(lambda p: p + heavy, params), state, params)
        return optax.apply_updates(params, updates), jax.tree.map(lambda leaf: leaf + (heavy > 1e30), state), heavy

    params, x = weights(), jnp.ones((500, 500)) / 500
    state = tx.init(params)
    for _ in range(4):
        params, state, loss = step(params, state, x)
        loss.block_until_ready()
    for _ in range(3):
        params, state, loss = step(params, state, x)
    with seen.hooks.recorder.activity(Activity.RESTORE, step=2):
        pass
    params, state, loss = step(params, state, x)
    assert not loss.is_ready()
    for _ in range(2):
        params, state, loss = step(params, state, x)
    assert seen.steps == list(range(10))
