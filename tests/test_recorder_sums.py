"""Of a journal that is full, steps are told in sum: the report stays that of steps in full."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from recording import MS, START, Recording

from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import Activity, Kind


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


def test_a_step_in_which_the_device_was_idle_is_so_in_sum(tmp_path: Path) -> None:
    reports = []
    for most in (1e9, 0):
        recording = Recording(tmp_path / f"{most}.jsonl", most=most)
        recorder = recording.recorder
        for number in range(1000):
            ordinal = recorder.step(number)
            for part in range(3):
                if part:
                    idle = recording.clock()
                    with recorder.activity(Activity.DATA):
                        recording.pass_ms(2)
                    recording.pass_ms(3)
                    recorder.device_idle(idle, recording.clock() - idle)
                recording.pass_ms(10)
                recorder.device_done(ordinal, recording.clock())
            if number == 500:
                with recorder.activity(Activity.SAVE, step=number):
                    recording.pass_ms(40)
        recording.end()
        reports.append((recording.report().breakdown, recording.journal.path.stat().st_size))
    (told, size), (summed, small) = reports
    assert small < size / 5
    assert told[Bucket.DATA_LOADING_SYNC] == pytest.approx(2 * 2 * 1e9, rel=0.01)
    assert told[Bucket.OTHER] == pytest.approx(2 * 3 * 1e9, rel=0.01)
    near = 0.01 * told.elapsed
    for bucket in Bucket:
        assert summed[bucket] == pytest.approx(told[bucket], abs=near), bucket


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
