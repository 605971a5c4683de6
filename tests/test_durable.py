"""``kill -9`` at any moment: what the script knew was recorded is in the journal, and the report stays right."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections import Counter
from typing import Any

import pytest
from running import Runner, steps_of

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import Event, Kind
from goodput_plugins.core.reading import read, read_journal
from goodput_plugins.core.report import Report

KILLS = 50
MINUTE = 60 * 10**9
"""After so long without a heartbeat a run is lost."""

LOOP = """
import json, os, sys, threading, time
from goodput_plugins.core.events import Activity
from goodput_plugins.core import heart
from goodput_plugins.core.session import current
heart.INTERVAL = 0.02
known = os.open("known", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def knows(*what):
    '''From here on the script knows that this was recorded.'''
    os.write(known, json.dumps(what).encode() + b"\\n")

recorder = current().recorder
first, pause = int(sys.argv[1]), float(sys.argv[2])
with recorder.activity(Activity.PREPARATION): time.sleep(0.001)
knows("finish", "prep", None)

def background():
    for number in range(10**9):
        recorder.committed(number)
        knows("commit", number)
        time.sleep(0.002)

threading.Thread(target=background, daemon=True).start()
for number in range(first, 10**9):
    with recorder.activity(Activity.DATA):
        if number % 7 == 0: time.sleep(0.0005)
    ordinal = recorder.step(number)
    knows("step", number)
    if pause: time.sleep(pause)
    recorder.device_done(ordinal, recorder.now())
    knows("done", ordinal)
    if number % 10 == 9:
        recorder.begin(Activity.SAVE, step=number)
        knows("begin", "save", number)
        time.sleep(0.0005)
        recorder.finish(Activity.SAVE, step=number)
        knows("finish", "save", number)
    if number % 25 == 0:
        recorder.span(Activity.COMPILE, recorder.now() - 1000, 1000, name="x" * (number % 200))
        knows("span", number % 200)
"""


def told(events: list[Event]) -> Counter[tuple[Any, ...]]:
    """What a journal tells, in the words in which the script knows it."""
    words: Counter[tuple[Any, ...]] = Counter()
    for event in events:
        activity = None if event.activity is None else event.activity.value
        match event.kind:
            case Kind.RUN:
                words.update(("step", step.step) for step in steps_of(event))
                numbers = [~n for n in event.data[1:] if n < 0]
                words.update(("done", ordinal) for ordinal in numbers[: len(numbers) // 2 * 2 : 2])
            case Kind.STEP:
                words["step", event.step] += 1
            case Kind.DEVICE:
                words["done", event.step] += 1
            case Kind.COMMIT:
                words["commit", event.step] += 1
            case Kind.BEGIN | Kind.FINISH if activity != "data":
                words["begin" if event.kind is Kind.BEGIN else "finish", activity, event.step] += 1
            case Kind.SPAN if activity == "compile":
                words["span", len(event.name or "")] += 1
    return words


def adds_up(report: Report) -> None:
    assert report.breakdown.elapsed == report.end - report.start - report.breakdown[Bucket.EXCLUDED]
    assert all(ns >= 0 for ns in report.breakdown.spent.values())


def killed_at(moment: float, run: Runner, first: int) -> list[list[Any]]:
    """Run the loop, kill it that long after it began to record, and tell what it knew."""
    known = run.folder / "known"
    known.unlink(missing_ok=True)
    environ = run.environ(GOODPUT_RUN_NAME="r")
    with subprocess.Popen([*run.command(LOOP), str(first), "0"], env=environ, cwd=run.folder) as loop:
        while not known.exists():
            time.sleep(0.001)
            assert loop.poll() is None
        time.sleep(moment)
        loop.kill()
    assert loop.returncode == -signal.SIGKILL
    return [json.loads(line) for line in known.read_text().splitlines()]


@pytest.mark.timeout(300)
def test_fifty_kills_lose_nothing_that_was_recorded(run: Runner) -> None:
    rng = random.Random(9)
    first, attempts = 0, 0
    for kill in range(KILLS):
        knew = killed_at(rng.uniform(0, 0.25) if kill % 5 else 0.0, run, first)
        before = {path.name for path in run.journals[:attempts]}
        new = [path for path in run.journals if path.name not in before]
        steps = [what[1] for what in knew if what[0] == "step"]
        if not steps:  # killed before there was anything to record
            assert len(new) <= 1
            attempts = len(run.journals)
            continue
        (journal,) = new
        attempts += 1
        found = read_journal(journal, journal.read_bytes())
        assert found.torn <= 1
        recorded = told(found.events)
        missing = Counter(map(tuple, knew)) - recorded
        assert not missing, missing
        last = max(number for word, number, *_ in recorded if word == "step")
        assert last <= steps[-1] + 1  # and nothing that was not
        first = max(0, rng.choice([last, last + 1, last - rng.randrange(20)]))
    (log,) = read(run.journals[0].parent)
    assert len(log.lives) >= KILLS // 2  # the others were killed before their first step
    report = calculate(log, now=time.time_ns() + MINUTE)
    adds_up(report)
    assert report.status == "lost" and report.disruptions == len(report.attempts)
    assert report.steps.last is not None and report.steps.count == report.steps.last + 1
    assert {slug for slug, _ in log.notes} <= {"torn-lines"}
    for life in log.lives:
        adds_up(calculate(log, now=time.time_ns(), as_of=life.start + 200_000_000))


TRAIN = """
import json, os, sys, time
known = os.open("known", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
import jax, jax.numpy as jnp, optax

@jax.jit
def train_step(params, state, x):
    loss, grads = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss

optimizer = optax.adam(1e-3)
params = jnp.ones((32, 32))
state = optimizer.init(params)
for number in range(10**9):
    params, state, loss = train_step(params, state, jnp.ones((32, 32)))
    os.write(known, b"%d\\n" % number)
"""


@pytest.mark.timeout(200)
def test_a_jax_script_that_is_killed_has_each_step_that_it_took_in_its_journal(run: Runner) -> None:
    pytest.importorskip("optax")
    rng = random.Random(4)
    known = run.folder / "known"
    for _ in range(3):
        known.unlink(missing_ok=True)
        environ = run.environ(GOODPUT_PLUGINS="auto", GOODPUT_RUN_NAME="r", JAX_PLATFORMS="cpu")
        with subprocess.Popen(run.command(TRAIN), env=environ, cwd=run.folder) as loop:
            while not (known.exists() and known.stat().st_size):
                time.sleep(0.01)
                assert loop.poll() is None
            time.sleep(rng.uniform(0, 1))
            loop.kill()
        taken = len(known.read_text().splitlines())
        newest = max(run.journals, key=lambda path: path.stat().st_mtime)
        found = read_journal(newest, newest.read_bytes())
        assert found.torn <= 1
        steps = sum(len(steps_of(event)) for event in found.events if event.kind in (Kind.RUN, Kind.STEP))
        assert taken <= steps <= taken + 1
    (log,) = read(run.journals[0].parent)
    report = calculate(log, now=time.time_ns() + MINUTE)
    adds_up(report)
    assert len(report.attempts) == 3 and report.status == "lost"


@pytest.mark.parametrize("most", ["1e9", "1"])
def test_a_journal_read_while_it_is_written_is_right_so_far(run: Runner, most: str) -> None:
    known = run.folder / "known"
    environ = run.environ(GOODPUT_MAX_BYTES=most)
    with subprocess.Popen([*run.command(LOOP), "0", "0.001"], env=environ, cwd=run.folder) as loop:
        while not known.exists() or not run.journals:
            time.sleep(0.001)
        for _ in range(10):
            time.sleep(0.05)
            knew = [json.loads(line) for line in known.read_bytes().rpartition(b"\n")[0].splitlines()]
            (journal,) = run.journals
            found = read_journal(journal, journal.read_bytes())
            assert found.torn == 0
            if most != "1":  # in sums, steps are told once a second
                missing = Counter(map(tuple, knew)) - told(found.events)
                assert not missing, missing
            if any(what[0] == "step" for what in knew):
                (log,) = read(journal)
                adds_up(calculate(log, now=time.time_ns()))
        loop.kill()
