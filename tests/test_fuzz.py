"""Journals and exports that were damaged, spliced or made up: a report or one sentence, never a traceback."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goodput_plugins.cli import main
from goodput_plugins.core.events import SCHEMA, Activity, Kind
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.testing import FakeClock

START = FakeClock().now
CASES = sorted((Path(__file__).parent / "cases").glob("*[!r].json"))
FUZZ = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cache
def recorded(most: float = 1e9) -> bytes:
    """A journal that holds an event of every kind, as a process writes it."""
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        journal = Journal(path, {"schema": SCHEMA, "run": "r", "attempt": "a", "start": START}, most=most)
        recorder = Recorder(journal.write, clock)
        recorder.write_to(journal)
        journal.write(b'["start",%d]\n' % START)
        recorder.rank(0, 2)
        recorder.plugin("jax", "1", ("CHECKPOINT_SAVE",))
        for activity in (Activity.DEVICE_INIT, Activity.PREPARATION, Activity.RESTORE):
            with recorder.activity(activity, step=0):
                clock.advance(1)
        for number in range(25):
            with recorder.activity(Activity.DATA):
                clock.advance(0.01)
            recorder.device_done(recorder.step(number), clock() + 5_000_000)
            recorder.device_idle(clock() + 1_000_000, 2_000_000)
            recorder.span(Activity.COMPILE, clock(), 1000, name="jit(f)")
            clock.advance(0.1)
            if number % 5 == 4:
                with recorder.activity(Activity.SAVE, step=number):
                    clock.advance(0.02)
                recorder.committed(number, duration=1000)
                recorder.heartbeat()
                recorder.number(number)
            if number > 10:
                with recorder.activity(Activity.CUSTOM, name="EVAL"):
                    clock.advance(0.01)
        recorder.commit_failed(24, "disk")
        recorder.notice("SIGTERM")
        recorder.flush()
        journal.write(b'["lost",0,0,3]\n["end",%d,0,null,null,"completed"]\n' % clock())
        journal.close()
        return path.read_bytes()


def report(data: bytes, name: str = "given.jsonl") -> None:
    """Ask for a report on ``data``, for people and as JSON: it adds up, or a sentence says why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        for options in ([], ["--json"]):
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(["report", str(path), *options])
            said = err.getvalue()
            if code == 2:
                assert "holds" in said and "--run" in said  # an export of several jobs
            elif code:
                assert code == 1 and said.startswith("goodput: ") and said.count("\n") == 1, said
                assert "by a fault of goodput-plugins" not in said, said
            elif options:
                adds_up(json.loads(out.getvalue()))


def adds_up(shown: dict[str, Any]) -> None:
    assert shown["schema"] == "goodput-report/1"
    parts = [shown["goodput_seconds"]]
    for value in shown["badput_seconds"].values():
        parts += value.values() if isinstance(value, dict) else [value or 0]
    assert min(parts) >= 0
    assert abs(sum(parts) - shown["elapsed_seconds"]) < 1e-6 * max(1, shown["elapsed_seconds"])


# --- the whole, to begin with ----------------------------------------------------------------------


def test_what_is_fuzzed_is_sound_and_holds_every_kind() -> None:
    assert recorded().endswith(b'"completed"]\n')
    report(recorded())
    kinds = {json.loads(line)[0] for most in (1e9, 0) for line in recorded(most).splitlines()[1:]}
    assert {kind.value for kind in Kind} - kinds <= {"d", "s", "fact"}  # told where a run finds no room, or once


# --- damage ----------------------------------------------------------------------------------------

sources = st.sampled_from([recorded(), recorded(0)])
positions = st.floats(0, 1, exclude_max=True)


@FUZZ
@given(data=st.binary(max_size=2000))
def test_random_bytes(data: bytes) -> None:
    report(data)
    report(recorded()[: recorded().index(b"\n") + 1] + data)


@FUZZ
@given(sources, st.lists(st.tuples(positions, st.binary(min_size=0, max_size=4)), max_size=30))
def test_bytes_that_were_changed(data: bytes, changes: list[tuple[float, bytes]]) -> None:
    damaged = bytearray(data)
    for where, new in changes:
        at = int(where * len(damaged))
        damaged[at : at + len(new)] = new
    report(bytes(damaged))


@FUZZ
@given(sources, sources, positions, positions)
def test_files_that_were_cut_and_spliced(first: bytes, second: bytes, end: float, begin: float) -> None:
    report(first[: int(end * len(first))])
    report(first[: int(end * len(first))] + second[int(begin * len(second)) :])


@FUZZ
@given(sources, st.integers(0, 2**32), st.sampled_from(["shuffled", "doubled", "thinned", "reversed"]))
def test_lines_in_another_order_or_number(data: bytes, seed: int, how: str) -> None:
    rng = random.Random(seed)
    head, *lines = data.splitlines(keepends=True)
    match how:
        case "shuffled":
            rng.shuffle(lines)
        case "doubled":
            lines = [line for line in lines for _ in range(rng.choice([1, 1, 2, 5]))]
        case "thinned":
            lines = [line for line in lines if rng.random() < 0.6]
        case "reversed":
            lines.reverse()
    report(head + b"".join(lines))


# --- values of any type ----------------------------------------------------------------------------

numbers = st.one_of(
    st.integers(-5, 50),
    st.integers(START - 10**10, START + 10**11),
    st.sampled_from([0, -1, 2**31, 2**53, 2**61, 2**62, 2**63 - 1, 2**63, -(2**63), 10**18, 10**30]),
)
GIANT = "stands for a number of 5,000 digits"
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=5), st.just(GIANT)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)


def dumped(value: Any) -> bytes:
    """JSON as Python writes it, NaN included, and numbers that Python does not even read."""
    return json.dumps(value).replace(f'"{GIANT}"', "9" * 5000).encode() + b"\n"


kinds = st.sampled_from([kind.value for kind in Kind])
activities = st.sampled_from([activity.value for activity in Activity])
runs = st.lists(st.one_of(st.integers(-1000, 10**9), numbers), max_size=20)
field_values = [numbers, st.integers(0, 2), numbers, activities, st.text(max_size=3), numbers, runs]
lines = st.tuples(kinds, *(st.one_of(usual, anything) for usual in field_values)).map(list)
plausible = st.tuples(
    kinds,
    st.integers(START, START + 10**11),
    st.integers(0, 1),
    st.one_of(st.none(), st.integers(0, 60)),
    st.one_of(st.none(), activities),
    st.one_of(st.none(), st.sampled_from(["completed", "user", "wait", "x"])),
    st.one_of(st.none(), st.integers(0, 10**10)),
    st.one_of(st.none(), st.lists(st.integers(-(10**9), 10**10), min_size=1, max_size=12)),
).map(list)


@FUZZ
@given(
    st.lists(st.one_of(lines, anything), max_size=15),
    st.dictionaries(st.sampled_from(["run", "attempt", "start", "segment", "schema", "pid"]), anything, max_size=2),
)
def test_fields_of_any_type(made_up: list[Any], header: dict[str, Any]) -> None:
    usual = {"schema": SCHEMA, "run": "r", "attempt": "a", "start": START}
    report(b"".join(map(dumped, [usual | header, *made_up])))


@FUZZ
@given(st.lists(plausible, max_size=40))
def test_events_in_no_sensible_order(made_up: list[Any]) -> None:
    usual = {"schema": SCHEMA, "run": "r", "attempt": "a", "start": START}
    made_up.sort(key=lambda line: line[1])
    report(b"".join(map(dumped, [usual, *made_up])))


# --- exports ---------------------------------------------------------------------------------------


@FUZZ
@given(st.sampled_from(CASES), st.lists(st.tuples(positions, st.binary(max_size=4)), max_size=30), positions)
def test_exports_that_were_damaged(case: Path, changes: list[tuple[float, bytes]], end: float) -> None:
    damaged = bytearray(case.read_bytes())
    for where, new in changes:
        at = int(where * len(damaged))
        damaged[at : at + len(new)] = new
    report(bytes(damaged), "entries.json")
    report(bytes(damaged[: int(end * len(damaged))]), "entries.json")


KEYS = (
    ["job_name", "job_start_time", "job_end_time", "step_count", "step_start_time", "event_type", "step", "timestamp"]
    + [f"{what}_{edge}_time" for what in ("tpu_init", "training_prep", "data_loading") for edge in ("start", "end")]
    + ["custom_badput_event_type", "custom_badput_event_start_time", "custom_badput_event_end_time"]
    + ["checkpoint_manager_blocking_start_time", "checkpoint_manager_blocking_duration_secs", "jsonPayload", "insertId"]
)
payloads = st.dictionaries(
    st.sampled_from(KEYS),
    st.one_of(st.sampled_from(["j", "save", "restore", "2026-11-29T08:00:00Z"]), st.floats(1.78e9, 1.79e9), anything),
    max_size=6,
)


@FUZZ
@given(st.lists(st.one_of(payloads, payloads.map(lambda payload: {"jsonPayload": payload}), anything), max_size=12))
def test_payloads_of_any_shape(entries: list[Any]) -> None:
    report(dumped(entries), "entries.json")
    report(b"".join(map(dumped, entries)), "entries.json")


# --- as a process ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b"[" * 3000 + b"]" * 3000,
        b"1" * 10_000,
        dumped([GIANT]),
        recorded() + b"[" * 100_000 + b"\n",
        recorded() + b'["s",' + b"9" * 5000 + b",0,1]\n",
        recorded() + b'["b",%d,0,1,"custom","' % START + b"x" * 5_000_000 + b'"]\n',
        recorded().replace(b'"run": "r"', b'"run": "\\ud800\\u0000\\u001b[31m\\r\\u202e' + b"r" * 9000 + b'"'),
        recorded().replace(b"EVAL", b"\\ud800\\u0000\\u001b[2J\\u202e"),
        gzip.compress(recorded()),
        recorded()[::-1],
        bytes(1_000_000),
        b"\xff\xfe" + recorded().decode().encode("utf-16-le"),
    ],
    ids=[
        "deep lists", "deep objects", "nested lists", "digits", "a large number", "a deep line", "a long time",
        "a giant line", "an odd run", "an odd name", "gzip", "backwards", "zeros", "utf-16",
    ],
)  # fmt: skip
def test_no_file_makes_the_command_crash(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    for encoding in ("utf-8", "ascii"):
        done = subprocess.run(
            [sys.executable, "-m", "goodput_plugins", "report", str(path)],
            capture_output=True,
            check=False,
            timeout=60,
            env={"PATH": "/usr/bin", "PYTHONIOENCODING": encoding, "COLUMNS": "80"},
        )
        assert done.returncode in (0, 1)
        assert b"Traceback" not in done.stderr and b"by a fault" not in done.stderr, done.stderr
        assert done.returncode == 0 or done.stderr.count(b"\n") == 1
        assert b"\x1b[2J" not in done.stdout and b"\x1b[31m" not in done.stdout
