"""What a hook tells becomes journal lines: true, in order, whatever is handed over, from any thread or signal."""

from __future__ import annotations

import itertools
import json
import random
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest
from running import Runner, steps_of

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.clock import system_clock
from goodput_plugins.core.events import SCHEMA, Activity, Event, Kind
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.reading import read, read_journal
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import UNKNOWN, Steps
from goodput_plugins.testing import FakeClock, MemorySink

START = FakeClock().now
MS = 1_000_000


class Recording:
    """A recorder that writes a journal, and what is read from it."""

    def __init__(self, path: Path, clock: Callable[[], int] | None = None, **limits: Any) -> None:
        self.clock = FakeClock()
        header = {"schema": SCHEMA, "run": "r", "attempt": path.stem, "start": START}
        self.journal = Journal(path, header, **limits)
        self.recorder = Recorder(self.journal.write, clock or self.clock)
        self.recorder.write_to(self.journal)
        self.recorder.plugin("test", "1", ())

    def pass_ms(self, ms: float) -> None:
        self.clock.advance(ms / 1e3)

    def end(self) -> None:
        self.recorder.flush()
        self.journal.write(b'["end",%d,0,null,null,"completed"]\n' % self.clock())
        self.journal.close()

    @property
    def events(self) -> list[Event]:
        read = read_journal(self.journal.path, self.journal.path.read_bytes())
        assert read.torn == 0
        return read.events

    @property
    def steps(self) -> Steps:
        steps = Steps()
        for event in self.events:
            steps.add(event)
        return steps

    def report(self) -> Report:
        (log,) = read(self.journal.paths[0])
        return calculate(log, now=self.clock() + 10**12)


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "a.jsonl")


# --- steps and waits -------------------------------------------------------------------------------


def test_steps_that_follow_each_other_share_a_line(recording: Recording) -> None:
    for number in range(1000):
        recording.pass_ms(3)
        assert recording.recorder.step(number) == number
    (run,) = [event for event in recording.events if event.kind is Kind.RUN]
    assert [step.step for step in steps_of(run)] == list(range(1000))
    assert {b.time - a.time for a, b in pairwise(steps_of(run))} == {3 * MS}
    assert len(recording.journal.path.read_bytes().rstrip(b"\0")) < 15 * 1000


def test_a_wait_is_told_with_the_step_after_it(recording: Recording) -> None:
    recorder = recording.recorder
    for number in range(3):
        recorder.step(number)
        recording.pass_ms(5)
        with recorder.activity(Activity.DATA):
            recording.pass_ms(7)
        recording.pass_ms(1)
    recorder.step(3)
    steps = recording.steps
    assert [time - START for time in steps.times] == [0, 13 * MS, 26 * MS, 39 * MS]
    assert [time - START for time in steps.wait_starts] == [5 * MS, 18 * MS, 31 * MS]
    assert [time - START for time in steps.wait_ends] == [12 * MS, 25 * MS, 38 * MS]


def test_a_step_that_begins_while_a_wait_is_open_loses_neither(recording: Recording) -> None:
    recorder = recording.recorder
    for following in (1, 7):  # one that continues the run, one that does not
        recorder.step(following - 1)
        recording.pass_ms(5)
        recorder.begin(Activity.DATA)
        recording.pass_ms(5)
        recorder.step(following)
        recording.pass_ms(5)
        recorder.finish(Activity.DATA)
        assert not recorder.inside(Activity.DATA)
    assert list(recording.steps.numbers) == [0, 1, 6, 7]
    waits = [event for event in recording.events if event.activity is Activity.DATA]
    assert [event.duration for event in waits if event.kind is Kind.SPAN] == [10 * MS] * 2
    assert all(event.kind is Kind.SPAN for event in waits)


def test_a_wait_that_was_told_before_it_ended_ends_as_such(recording: Recording) -> None:
    recorder = recording.recorder
    recorder.step(0)
    recorder.begin(Activity.DATA)
    recording.pass_ms(1500)
    recorder.heartbeat()
    recorder.heartbeat()
    recording.pass_ms(500)
    recorder.finish(Activity.DATA)
    recorder.step(1)
    waits = [event for event in recording.events if event.activity is Activity.DATA]
    assert [(event.kind, event.time - START) for event in waits] == [(Kind.BEGIN, 0), (Kind.FINISH, 2000 * MS)]


@pytest.mark.parametrize("inner", [Activity.SAVE, Activity.COMPILE])
def test_an_activity_inside_a_long_wait_keeps_the_lines_in_order(recording: Recording, inner: Activity) -> None:
    recorder = recording.recorder
    recorder.step(0)
    recorder.begin(Activity.DATA)
    recording.pass_ms(3000)
    with recorder.activity(inner):
        recording.pass_ms(3000)
        recorder.heartbeat()
    recorder.finish(Activity.DATA)
    recorder.step(1)
    begins = [event.time - START for event in recording.events if event.kind is Kind.BEGIN]
    assert begins == [0, 3000 * MS]
    recording.end()
    assert recording.report().breakdown.elapsed == 6000 * MS


def test_a_run_goes_on_after_a_line_of_another_kind(recording: Recording) -> None:
    recorder = recording.recorder
    for number in range(6):
        recording.pass_ms(2)
        recorder.step(number)
        if number % 2:
            recorder.committed(number)
        recorder.device_done(number, recording.clock() + MS)
    steps = recording.steps
    assert list(steps.numbers) == list(steps.ordinals) == list(range(6))
    assert sorted(zip(steps.done_ordinals, steps.done, strict=True)) == [
        (number, START + (2 * number + 3) * MS) for number in range(6)
    ]


def test_a_step_told_late_or_by_another_thread_begins_a_run_of_its_own(recording: Recording) -> None:
    recorder = recording.recorder
    recorder.step(0)
    recording.pass_ms(10)
    recorder.step(1)
    recorder.step(2, at=recording.clock() - 5 * MS)
    other = threading.Thread(target=recorder.step, args=(3,))
    other.start()
    other.join()
    runs = [event for event in recording.events if event.kind is Kind.RUN]
    assert [(event.thread, event.step, event.data[0]) for event in runs] == [(0, 0, 0), (0, 2, 2), (1, 3, 3)]


def test_a_loop_interrupted_in_the_middle_of_a_line_goes_on(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl")
    extend, calls = recording.journal.extend, 0

    def interrupted(line: int, more: bytes) -> bool:
        nonlocal calls
        calls += 1
        if calls == 5:
            extend(line, more)
            raise KeyboardInterrupt
        return extend(line, more)

    recording.journal.extend = interrupted  # type: ignore[method-assign]
    for number in range(10):
        recording.pass_ms(1)
        try:
            with recording.recorder.activity(Activity.DATA):
                recording.pass_ms(1)
            recording.recorder.step(number)
        except KeyboardInterrupt:
            continue
    steps = recording.steps
    assert [time - START for time in steps.times][-5:] == [2 * MS * number for number in range(6, 11)]
    assert list(steps.numbers)[-5:] == list(range(5, 10))


# --- names and values ------------------------------------------------------------------------------


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


# --- threads and signals ---------------------------------------------------------------------------


def test_lines_of_eight_threads_at_once_are_whole(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl", system_clock())
    recorder, each = recording.recorder, 2000
    ready = threading.Barrier(8)

    def work(at: int) -> None:
        ready.wait()
        for number in range(each):
            if at == 0:
                with recorder.activity(Activity.DATA):
                    pass
                recorder.device_done(recorder.step(number), recorder.now())
            elif at == 1:
                recorder.device_done(number, recorder.now())
            else:
                with recorder.activity(Activity.SAVE, step=number, name=f"thread-{at}"):
                    pass

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recording.journal.close()
    assert list(recording.steps.numbers) == list(range(each))
    assert len(recording.steps.done) == 2 * each
    told: dict[int, list[Event]] = {}
    for event in recording.events:
        if event.activity is Activity.SAVE:
            told.setdefault(event.thread, []).append(event)
    assert len(told) == 6
    for events in told.values():
        assert [event.step for event in events] == [number for number in range(each) for _ in "bf"]
        assert all(a.time <= b.time for a, b in pairwise(events))


def test_threads_that_step_by_turns_lose_no_step(tmp_path: Path) -> None:
    for limits in ({}, {"most": 0}):
        recording = Recording(tmp_path / f"{len(limits)}.jsonl", **limits)
        recorder = recording.recorder

        def work(recorder: Recorder = recorder) -> None:
            for _ in range(500):
                recorder.step()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        recorder.flush()
        recording.journal.close()
        assert recorder.steps >= 4000 - 8  # the counter itself is not locked
        assert abs(recording.steps.told - recorder.steps) <= 8


def test_a_signal_handler_may_record_in_the_middle_of_anything(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl", system_clock())
    recorder = recording.recorder
    noticed, numbers = 0, itertools.count()

    def handler(*_: object) -> None:
        nonlocal noticed
        number = next(numbers)
        with recorder.activity(Activity.CUSTOM, name="handler"):
            recorder.notice(str(number))
        noticed = max(noticed, number + 1)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    number = 0
    try:
        while noticed < 500:
            with recorder.activity(Activity.DATA):
                pass
            recorder.step(number)
            with recorder.activity(Activity.SAVE, step=number):
                pass
            number += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    recording.journal.close()
    events = recording.events
    assert list(recording.steps.numbers) == list(range(number))
    notices = [int(event.name or -1) for event in events if event.kind is Kind.NOTICE]
    assert sorted(notices) == list(range(noticed))  # a handler may be interrupted, too
    assert sum(event.activity is Activity.SAVE for event in events) == 2 * number


# --- steps in sum ----------------------------------------------------------------------------------


def train(recording: Recording, seed: int, *, device: bool, numbered: bool = True) -> None:
    """A loop with waits, saves and a compilation; the device is done with a step some time after its call."""
    rng = random.Random(seed)
    recorder = recording.recorder
    with recorder.activity(Activity.PREPARATION):
        recording.pass_ms(700)
    for number in range(4000):
        with recorder.activity(Activity.DATA):
            recording.pass_ms(rng.choice([0, 0, 0, 1, 6, 25]))
        ordinal = recorder.step(number if numbered else None)
        called = recording.clock()
        recording.pass_ms(rng.uniform(2, 3))
        if device:
            recorder.device_done(ordinal, called + 9 * MS)
            recording.clock.now = max(recording.clock.now, called + 5 * MS)
        if number % 333 == 332:
            recording.clock.now = max(recording.clock.now, called + 9 * MS)
            with recorder.activity(Activity.SAVE, step=number):
                recording.pass_ms(40)
            recorder.committed(number)
        if number == 2000:
            start = recording.clock()
            recording.pass_ms(300)
            recorder.span(Activity.COMPILE, start, 300 * MS, name="jit(f)")
        if number % 100 == 99:
            recorder.heartbeat()
    recording.pass_ms(50)
    recording.end()


@pytest.mark.parametrize("device", [True, False])
@pytest.mark.parametrize("numbered", [True, False])
def test_a_report_of_steps_in_sum_is_that_of_steps_in_full(tmp_path: Path, device: bool, numbered: bool) -> None:
    full, condensed = Recording(tmp_path / "full.jsonl"), Recording(tmp_path / "sum.jsonl", most=0)
    for recording in (full, condensed):
        train(recording, 1, device=device, numbered=numbered)
    told, summed = full.report(), condensed.report()
    assert condensed.journal.path.stat().st_size < full.journal.path.stat().st_size / 5
    assert summed.breakdown.elapsed == told.breakdown.elapsed
    assert (summed.steps.count, summed.steps.last) == (told.steps.count, told.steps.last)
    assert summed.steps.source == told.steps.source
    near = 0.01 * told.breakdown.elapsed
    for bucket in Bucket:
        assert summed.breakdown[bucket] == pytest.approx(told.breakdown[bucket], abs=near), bucket
    assert told.breakdown[Bucket.DATA_LOADING_SYNC] > 0.5e9 and told.breakdown[Bucket.SAVE] > 0.3e9


def test_each_slow_step_is_told_when_it_begins_even_in_sum(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl", most=0)
    for number in range(10):
        recording.recorder.step(number)
        assert list(recording.steps.numbers) == list(range(number + 1))
        recording.pass_ms(1500)


def test_fast_steps_in_sum_are_told_once_a_second(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl", most=0)
    for number in range(10_000):
        recording.recorder.step(number)
        recording.pass_ms(1)
    sums = [json.loads(line) for line in recording.journal.path.read_bytes().strip(b"\0").splitlines()[2:]]
    assert len(sums) == 10 and {line[0] for line in sums} == {"a"}
    assert recording.steps.told > 9000


def test_a_journal_that_fills_up_goes_over_to_sums_without_losing_a_step(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl", most=3000)
    recorder = recording.recorder
    for number in range(5000):
        recorder.device_done(recorder.step(number), recording.clock() + MS)
        recording.pass_ms(2)
        if number % 250 == 0:
            recorder.heartbeat()
    recording.end()
    kinds = [event.kind for event in recording.events]
    assert Kind.RUN in kinds and Kind.STEPS in kinds
    steps = recording.steps
    assert list(steps.numbers) == list(steps.ordinals) == list(range(5000))
    assert [time - START for time in steps.times] == [2 * MS * number for number in range(5000)]
    assert recording.report().steps.count == 5000
