"""Jobs of several JAX processes on one machine: one report; and all of them hear of a preemption."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
from running import Runner

SCRIPT = """
import os, signal, sys, time
import jax
jax.distributed.initialize("localhost:{port}", 2, int(sys.argv[1]))
import jax.numpy as jnp, optax
from jax.experimental import multihost_utils
tx = optax.adam(0.1)
@jax.jit
def train_step(params, state):
    updates, state = tx.update(jax.grad(lambda p: (p**2).sum())(params), state)
    return optax.apply_updates(params, updates), state
params = jnp.ones(8)
state = tx.init(params)
stopped = None
for step in range(400):
    params, state = train_step(params, state)
    jax.block_until_ready(params)
    if step == 5 and {preempted} and sys.argv[1] == "1":
        os.kill(os.getpid(), signal.SIGTERM)
    if {preempted}:
        time.sleep(0.02)
        if multihost_utils.reached_preemption_sync_point(step):
            stopped = step
            break
    elif step == 9:
        break
print(stopped, flush=True)
"""


def two_processes(run: Runner, *, preempted: bool, **variables: str) -> list[str]:
    """What each of two processes of one job prints."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = run.command(SCRIPT.format(port=port, preempted=preempted))
    environ = run.environ(GOODPUT_PLUGINS="auto", GOODPUT_RUN_NAME="pair", JAX_PLATFORMS="cpu", **variables)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [
        subprocess.Popen([*command, str(index)], env=environ, cwd=run.folder, text=True, **pipes) for index in range(2)
    ]
    ended = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended
    return [output.strip() for output, _ in ended]


def report_of(run: Runner) -> dict[str, object]:
    (folder,) = run.runs.iterdir()
    command = [sys.executable, "-m", "goodput_plugins", "report", str(folder), "--json"]
    done = subprocess.run(command, env=run.environ(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(("processes", "journals"), [("primary", 1), ("all", 2)])
def test_two_processes_are_one_run_whose_report_is_that_of_the_primary(
    run: Runner, processes: str, journals: int
) -> None:
    two_processes(run, preempted=False, GOODPUT_PROCESSES=processes)
    assert len(list(run.runs.rglob("*.jsonl"))) == journals
    report = report_of(run)
    assert len(report["attempts"]) == 1  # type: ignore[arg-type]
    assert report["steps"]["count"] == 10  # type: ignore[index]
    assert report["status"] == "completed"
    assert report["badput_seconds"]["TPU_INITIALIZATION"] > 0  # type: ignore[index]


def test_a_preemption_of_one_process_is_noticed_by_the_primary(run: Runner) -> None:
    first, second = two_processes(run, preempted=True)
    assert first == second != "None"
    (journal,) = run.runs.rglob("*.jsonl")
    notices = [line for line in journal.read_text().splitlines() if line.startswith('["notice"')]
    assert len(notices) == 1
    assert "preemption" in notices[0]
