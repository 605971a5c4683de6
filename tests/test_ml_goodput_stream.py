"""Entries in Google's payloads while a run is recorded: each event once, whatever becomes of the agent."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from goodput_plugins.agent.position import Positions
from goodput_plugins.agent.start import _events_of
from goodput_plugins.agent.tail import OVER, Tail
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.events import SCHEMA, Activity, Event, Kind, encode
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.reading import read
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.testing import FakeClock

LATE = 4_000_000_000_000_000_000


def play(folder: Path, *, numbered: bool = True, end: bool = True) -> None:
    """An attempt: it starts, gets its device, restores, trains, saves, evaluates."""
    clock = FakeClock()
    journal = Journal(folder / "attempt.jsonl", {"schema": SCHEMA, "run": "r", "attempt": "attempt", "start": clock()})
    journal.write(encode(Event(Kind.START, clock())))
    recorder = Recorder(journal.write, clock)
    recorder.write_to(journal)

    def busy(activity: Activity, seconds: float, **more: Any) -> None:
        with recorder.activity(activity, **more):
            clock.advance(seconds)

    clock.advance(3)
    busy(Activity.DEVICE_INIT, 2)
    clock.advance(1)
    busy(Activity.RESTORE, 4, step=9)
    for step in range(10, 110):
        busy(Activity.DATA, 0.0 if step % 20 else 0.5)
        recorder.step(step if numbered else None)
        clock.advance(1)
        if step % 40 == 0:
            busy(Activity.SAVE, 3, step=step)
        if step % 50 == 0:
            busy(Activity.CUSTOM, 5, name="EVAL")
        if step % 5 == 0:
            recorder.heartbeat()
    if end:
        recorder.flush()
        journal.write(encode(Event(Kind.END, clock(), name="completed")))
        journal.close()


def entries(folder: Path) -> list[dict[str, Any]]:
    tail = Tail(folder, Positions(folder, "memory"), whole_lines=True)
    stream = _events_of(tail)
    return [dict(entry) for stretch, _ in tail.stretches(0.0) for entry in stream(stretch)]


def test_the_report_of_what_was_sent_is_near_that_of_the_journal(tmp_path: Path) -> None:
    play(tmp_path)
    sent = calculate(read_entries(entries(tmp_path))[0], now=LATE).to_json()
    local = calculate(read(tmp_path)[0], now=LATE).to_json()
    assert sent["elapsed_seconds"] == pytest.approx(local["elapsed_seconds"], abs=0.01)
    assert sent["goodput_seconds"] == pytest.approx(local["goodput_seconds"], abs=3)
    for bucket in ("TPU_INITIALIZATION", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME", "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"):
        assert sent["badput_seconds"][bucket] == pytest.approx(local["badput_seconds"][bucket], abs=0.01), bucket
    assert sent["badput_seconds"]["TRAINING_PREP"] == pytest.approx(4, abs=0.6)
    assert sent["badput_seconds"]["CUSTOM_BADPUT_EVENTS"] == pytest.approx({"EVAL": 10})
    assert sent["steps"]["last"] == 109 and sent["steps"]["count"] == local["steps"]["count"]


@pytest.mark.parametrize("seed", range(3))
def test_however_it_is_cut_and_whoever_sends_it_the_entries_are_equal(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(tmp_path)
    whole = entries(tmp_path)
    random = Random(seed)
    positions = Positions(tmp_path, "memory")
    tail = Tail(tmp_path, positions, whole_lines=True)
    stream = _events_of(tail)
    parts: list[dict[str, Any]] = []
    for _ in range(200):
        monkeypatch.setattr("goodput_plugins.agent.tail.AT_ONCE", random.randint(300, 900))
        for stretch, position in tail.stretches(0.0):
            parts += [dict(entry) for entry in stream(stretch)]
            positions[stretch.attempt] = position
            break
        if random.random() < 0.2:  # another agent goes on
            positions.save()
            positions = Positions(tmp_path, "memory")
            tail = Tail(tmp_path, positions, whole_lines=True)
            stream = _events_of(tail)
    assert parts == whole
    assert len({entry["insertId"] for entry in whole}) == len(whole)


def test_the_line_of_a_killed_process_is_taken_once_it_has_fallen_silent(tmp_path: Path) -> None:
    play(tmp_path, end=False)
    tail = Tail(tmp_path, Positions(tmp_path, "memory"), whole_lines=True)
    stream = _events_of(tail)
    positions = tail._positions
    told: list[int] = []
    for now in (0.0, OVER / 2, OVER + 1):
        for stretch, position in tail.stretches(now):
            payloads = [entry["jsonPayload"] for entry in stream(stretch)]
            told += [payload["step_count"] for payload in payloads if "step_count" in payload]
            positions[stretch.attempt] = position
        assert (told[-1] == 109) is (now > OVER)
    assert told == list(range(10, 110))


def test_steps_without_numbers_are_counted_on(tmp_path: Path) -> None:
    play(tmp_path, numbered=False)
    numbers = [entry["jsonPayload"].get("step_count") for entry in entries(tmp_path)]
    assert [number for number in numbers if number is not None] == list(range(100))


def test_entries_are_json(tmp_path: Path) -> None:
    play(tmp_path)
    assert json.loads(json.dumps(entries(tmp_path), allow_nan=False))
