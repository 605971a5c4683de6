"""Whatever is handed over as a name, a number or data, a line of the journal comes of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy
import pytest
from recording import START, Recording
from running import Runner

from goodput_plugins.core.columns import UNKNOWN
from goodput_plugins.core.events import Activity, Kind
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.testing import FakeClock, MemorySink


class Liar:
    """Answers nothing that is asked of it."""

    def __index__(self) -> int:
        raise RuntimeError("no")

    def __str__(self) -> str:
        return "liar"


class OnDevice:
    """An array whose value is not there yet: reading it would wait."""

    def __dlpack__(self) -> None: ...

    def __index__(self) -> int:
        raise AssertionError("waited for the device")


@pytest.mark.parametrize(
    ("given", "known"),
    [
        (7, 7),
        (-1, -1),
        (numpy.int64(7), 7),
        (numpy.uint8(7), 7),
        (None, None),
        (-2, None),
        (2**53 + 1, None),
        (10**5000, None),
        (7.0, None),
        (float("nan"), None),
        (numpy.float32(7), None),
        (numpy.array([1, 2]), None),
        ("7", None),
        (Liar(), None),
        (OnDevice(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_step_number_is_a_whole_number_or_unknown(recording: Recording, given: Any, known: int | None) -> None:
    recorder = recording.recorder
    recorder.step(given)
    with recorder.activity(Activity.SAVE, step=given):
        pass
    recorder.committed(given)
    recorder.number(given)
    assert list(recording.steps.numbers) == [UNKNOWN if known is None else known]
    told = [event for event in recording.events if event.kind in (Kind.BEGIN, Kind.FINISH, Kind.COMMIT, Kind.NUMBER)]
    assert [event.step for event in told] == [known] * 4


def test_a_step_number_of_jax_is_not_waited_for(recording: Recording) -> None:
    jax = pytest.importorskip("jax")
    recorder = recording.recorder

    def slow(x: Any) -> Any:
        for _ in range(20):
            x = jax.numpy.tanh(x @ x)
        return x.sum().astype(int)

    running = jax.jit(slow)(jax.numpy.ones((400, 400)))
    recorder.step(running)
    assert not running.is_ready()
    running.block_until_ready()
    assert list(recording.steps.numbers) == [UNKNOWN]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "\0\1\x1b[31m\n\r\u2028",
        "a\ud800b",
        '"],["s",1]\n["s",2',
        "x" * 10_000_000,
        "\U0001f600" * 500,
        b"bytes",
        7,
        Liar(),
        ["unhashable"],
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_any_name_is_recorded_in_one_line(recording: Recording, name: Any) -> None:
    recorder = recording.recorder
    with recorder.activity(Activity.CUSTOM, name=name):
        recording.pass_ms(1)
    recorder.span(Activity.COMPILE, recording.clock(), 5, name=name)
    recorder.notice(name)
    recorder.commit_failed(1, name)
    expected = str(name)[:200]
    assert [event.name for event in recording.events[1:]] == [expected] * 5
    assert all(len(line) < 3000 for line in recording.journal.path.read_bytes().rstrip(b"\0").split(b"\n"))


def test_negative_times_and_durations_are_none(recording: Recording) -> None:
    recording.recorder.span(Activity.COMPILE, START, -5)
    recording.recorder.span(Activity.COMPILE, -5, 5)
    assert [(event.time, event.duration) for event in recording.events[1:]] == [(START, 0), (0, 5)]


def test_ends_without_a_begin_are_ignored() -> None:
    sink = MemorySink()
    recorder = Recorder(sink, FakeClock())
    recorder.finish(Activity.SAVE)
    recorder.begin(Activity.SAVE)
    recorder.begin(Activity.DATA)
    recorder.finish(Activity.SAVE)
    recorder.finish(Activity.DATA)
    assert [(event.kind, event.activity) for event in sink.events] == [
        (Kind.BEGIN, Activity.SAVE),
        (Kind.BEGIN, Activity.DATA),
        (Kind.FINISH, Activity.SAVE),
    ]


def test_a_wall_clock_that_is_set_during_the_run_changes_nothing(run: Runner) -> None:
    run(
        """
import time
from goodput_plugins.core.session import current
recorder = current().recorder
recorder.step(0)
now = time.time_ns
for number, hours in enumerate([-5, 7, -100, 3], 1):
    time.time_ns = lambda: now() + hours * 3600 * 10**9
    time.time = lambda: time.time_ns() / 1e9
    time.sleep(0.02)
    recorder.step(number)
"""
    )
    times = [event.time for event in run.recorded()[1] if event.kind is Kind.STEP]
    assert len(times) == 5
    assert all(0.015e9 < b - a < 2e9 for a, b in pairwise(times))
