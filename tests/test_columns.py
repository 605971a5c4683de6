"""Steps in columns: read many at a time or one by one, they tell the same."""

from __future__ import annotations

from array import array
from pathlib import Path
from random import Random

import pytest
from recording import Recording

from goodput_plugins.core.attribution import attribute
from goodput_plugins.core.columns import UNKNOWN, ascends, counted_on, extended, packed
from goodput_plugins.core.events import Activity
from goodput_plugins.core.journal_reading import read_journal
from goodput_plugins.core.runlog import Life, RunLog


def job(path: Path, seed: int) -> None:
    """A journal with all that may happen between steps."""
    rng, recording = Random(seed), Recording(path)
    recorder, clock = recording.recorder, recording.clock
    number, numbered, ahead = rng.choice([0, 7]), rng.random() < 0.8, rng.choice([0, 0.3])
    for _ in range(120):
        if rng.random() < 0.7:
            with recorder.activity(Activity.DATA):
                clock.advance(rng.random() * 0.05)
        if rng.random() < 0.1:
            recorder.heartbeat()
        number = rng.choice([number, number, number, max(0, number - 3)]) if rng.random() < 0.1 else number
        ordinal = recorder.step(number if numbered else None)
        if rng.random() < 0.8:
            recorder.device_done(ordinal, clock() + round(rng.random() * ahead * 1e9))
        clock.advance(rng.random() * 0.1)
        number += 1
        if rng.random() < 0.1:
            with recorder.activity(rng.choice([Activity.CUSTOM, Activity.SAVE, Activity.COMPILE]), step=number):
                clock.advance(rng.random() * 0.2)
    recording.end()


@pytest.mark.parametrize("seed", range(40))
def test_many_events_at_once_are_each_of_them(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    job(path, seed)
    journal = read_journal(path, path.read_bytes())
    one_by_one, at_once = (Life("a", journal.header["start"], []) for _ in range(2))
    at_once.add(journal.events)
    for event in journal.events:
        one_by_one.add([event])
    assert list(at_once.steps.numbers) == list(one_by_one.steps.numbers)
    assert list(at_once.steps.done_ordinals) == list(one_by_one.steps.done_ordinals)
    for as_of in (None, journal.events[len(journal.events) // 2].time):
        whole, parts = (attribute(RunLog("r", [life]), as_of=as_of).generations for life in (at_once, one_by_one))
        assert [list(g.segments()) for g in whole] == [list(g.segments()) for g in parts]


def test_waits_that_were_told_by_themselves_are_no_events(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    recording = Recording(path)
    for number in range(30):
        recording.recorder.step(number)
        recording.pass_ms(50)
        recording.recorder.heartbeat()
        with recording.recorder.activity(Activity.DATA):
            recording.pass_ms(10)
    recording.end()
    events = read_journal(path, path.read_bytes()).events
    assert sum(event.activity is Activity.DATA for event in events) > 20
    life = Life("a", events[0].time, [])
    life.add(events)
    assert sum(event.activity is Activity.DATA for event in life.events) <= 1  # after the last step
    assert len(life.steps.wait_starts) >= 29 and len(life.steps.alive) == 30


@pytest.mark.parametrize("seed", range(20))
def test_a_column_holds_what_is_put_in(seed: int) -> None:
    rng = Random(seed)
    values: array[int] | range = array("q")
    known: list[int] = []
    for _ in range(8):
        if rng.random() < 0.7:
            first, count = rng.choice([0, 5, len(known), known[-1] + 1 if known else 3]), rng.randrange(4)
            values = counted_on(values, first, count)
            known += range(first, first + count)
        else:
            values = extended(values, [UNKNOWN] * rng.randrange(3))
            known += [UNKNOWN] * (len(values) - len(known))
        assert list(values) == known
    assert ascends(values) == (sorted(known) == known)
    assert packed(known).tolist() == known
