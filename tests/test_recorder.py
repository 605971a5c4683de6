"""What a hook tells of steps and waits becomes journal lines: true and in order, from any thread or signal."""

from __future__ import annotations

import functools
import itertools
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from recording import MS, START, Recording
from running import steps_of

from goodput_plugins.core.clock import system_clock
from goodput_plugins.core.events import Activity, Event, Kind
from goodput_plugins.core.journal import OpenLine
from goodput_plugins.core.recorder import Recorder

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
    assert [(event.thread, event.step, event.data[0]) for event in runs] == [(0, 0, 0), (0, 2, 2), (0, 3, 3)]


def test_a_loop_interrupted_in_the_middle_of_a_line_goes_on(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl")
    open_line, calls = recording.journal.open_line, 0

    def opened(head: bytes) -> OpenLine | None:
        line = open_line(head)
        assert line is not None and line.more is not None
        line.more = functools.partial(interrupted, line.more)
        return line

    def interrupted(more: Callable[[bytes], object], piece: bytes) -> None:
        nonlocal calls
        calls += 1
        more(piece)
        if calls == 5:
            raise KeyboardInterrupt

    recording.journal.open_line = opened  # type: ignore[method-assign]
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
        recorder, turn = recording.recorder, threading.Lock()

        def work(recorder: Recorder = recorder, turn: threading.Lock = turn) -> None:
            for _ in range(500):
                with turn:
                    recorder.step()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        recorder.flush()
        recording.journal.close()
        assert recording.steps.told == recorder.steps == 4000


def test_the_steps_of_a_loop_that_goes_on_in_another_thread_are_steps_of_the_training_thread(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl", system_clock())
    recorder = recording.recorder

    def work(count: int) -> None:
        for _ in range(count):
            with recorder.activity(Activity.DATA):
                pass
            recorder.step()

    work(3)
    for _ in range(4):
        thread = threading.Thread(target=work, args=(100,))
        thread.start()
        thread.join()
    work(50)
    recorder.flush()
    recording.journal.close()
    assert len(recording.steps.times) == recorder.steps == 453


def test_a_thread_that_steps_beside_an_open_activity_of_the_training_thread_is_another(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "a.jsonl", system_clock())
    recorder = recording.recorder
    recorder.step()
    with recorder.activity(Activity.SAVE):
        thread = threading.Thread(target=recorder.step)
        thread.start()
        thread.join()
    recorder.step()
    recorder.flush()
    recording.journal.close()
    assert (len(recording.steps.times), recording.steps.told) == (2, 3)


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
