"""A live report says at each poll what a report of the whole log says, whatever was put aside before."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import simulation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from goodput_plugins.core import files
from goodput_plugins.core.attribution import ideal, ledger, watch
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import SCHEMA, Activity, Event, Kind, encode
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.live import Live, cuts, freeze
from goodput_plugins.core.live.entries import Entries
from goodput_plugins.core.live.journals import Journals
from goodput_plugins.core.reading import read
from goodput_plugins.core.recorder import Recorder
from goodput_plugins.core.runlog import RunLog
from goodput_plugins.testing import FakeClock

SECOND = 1_000_000_000
KEEP = 8


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Played jobs are short: let an attempt's ideal be frozen after 24 steps."""
    for module in (ideal, ledger, cuts):
        monkeypatch.setattr(module, "JUDGED", 24)


def lines(job: Any) -> Iterator[tuple[int, str, bytes]]:
    """The lines of a job's journals in the order in which they were written: when, in which file, what."""
    told = []
    for number, attempt in enumerate(job.attempts):
        name = f"{attempt.start:020}-{number}.jsonl"
        head = {"schema": SCHEMA, "run": "played", "attempt": name, "start": attempt.start}
        told.append((attempt.start, name, json.dumps(head).encode() + b"\n"))
        told += [(written, name, encode(event)) for written, event in attempt.told]
    yield from sorted(told, key=lambda line: line[0])


def polls(told: list[Any], rng: Random) -> Iterator[list[Any]]:
    """A list in parts of random size."""
    at = 0
    while at < len(told):
        size = rng.choice([1, 2, 5, 10, 30, 60])
        yield told[at : at + size]
        at += size


def check(live: Live, whole: Callable[[], RunLog], now: int, told: str) -> None:
    """The live report is that of the whole log."""
    try:
        expected = calculate(whole(), now=now)
    except UnusableData:
        with pytest.raises(UnusableData):
            live.report(now)
        return
    report = live.report(now)
    assert report == expected, told
    if live.span:
        check_rolling(live, whole, now, told)


def check_rolling(live: Live, whole: Callable[[], RunLog], now: int, told: str) -> None:
    """The rolling windows of a live report are those of the whole log."""
    rolling = live.rolling((live.span, live.span // 7), now)
    assert len(rolling) == 2
    for length, report in rolling.items():
        assert report == calculate(whole(), now=now, window=(now - length, now)), told


@pytest.mark.parametrize("asynchronous", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("seed", range(14))
def test_a_live_report_of_growing_journals_is_that_of_the_whole_log(
    seed: int, asynchronous: bool, tmp_path: Path
) -> None:
    job, rng = simulation.play(seed, asynchronous=asynchronous), Random(seed)
    state = tmp_path / "state.json"
    live = Live(Journals(tmp_path), state=state, keep=KEEP)
    span = live.span = rng.choice([0, 5, 20, 90]) * SECOND
    now = 0
    for at, part in enumerate(polls(list(lines(job)), rng)):
        for _, name, line in part:
            with (tmp_path / name).open("ab") as file:
                file.write(line)
        now = max(now if span else 0, part[-1][0] + rng.randrange(40 * SECOND))
        check(live, lambda: read(tmp_path)[0], now, f"seed {seed}, poll {at}, {job.fates}")
        if rng.random() < 0.2:
            live.save()
            live = Live(Journals(tmp_path), state=state, keep=KEEP)
            live.span = span
            assert live.notes == []


@pytest.mark.parametrize("seed", range(16))
def test_a_live_report_of_entries_is_that_of_the_whole_log(seed: int, tmp_path: Path) -> None:
    job, rng = simulation.play(seed), Random(seed)
    told: list[Any] = simulation.entries(job, hosts=rng.choice([1, 1, 2]))
    so_far: list[Any] = []
    state = tmp_path / "state.json"
    source = Entries("played", so_far.copy)
    live = Live(source, state=state, keep=KEEP)
    span = live.span = rng.choice([0, 5, 20, 90]) * SECOND
    now = 0
    for at, part in enumerate(polls(told, rng)):
        so_far += part
        source.add(part)
        if rng.random() < 0.2:
            source.add(rng.choices(so_far[-200:], k=3))
        moment = max(v for v in part[-1]["jsonPayload"].values() if isinstance(v, float))
        now = max(now if span else 0, round((moment + rng.random() * 100) * SECOND))
        check(live, lambda told=tuple(so_far): read_entries(told)[0], now, f"seed {seed}, poll {at}")
        if rng.random() < 0.1:
            live.save()
            source = Entries("played", so_far.copy)
            live = Live(source, state=state, keep=KEEP)
            live.span = span
            assert live.notes == []


def short_lives(seed: int) -> list[dict[str, Any]]:
    """A job that is killed, or done, again and again after fewer steps than make an attempt's ideal."""
    rng, at, step = Random(seed), 1_780_000_000.0, 0
    told: list[dict[str, Any]] = []
    for _ in range(40):
        told.append({"job_name": "j", "job_start_time": at})
        at += 5 * rng.random()
        if rng.random() < 0.3:
            told.append({"event_type": "restore", "job_name": "j", "step": step - 1, **_span("checkpointer", at, 1.0)})
            at += 1
        for _ in range(rng.choice([0, 1, 6, 15, 23, 24])):
            told.append({"job_name": "j", "step_count": step, "step_start_time": at})
            at, step = at + 1 + rng.random() / 10, step + 1
        took = _span("checkpointer_blocking", at, 0.5)
        told.append({"event_type": "save", "job_name": "j", "step": step - 1, **took})
        at += 1
        fate = rng.random()
        if fate < 0.3:
            told.append({"job_name": "j", "job_end_time": at})
        step = 0 if fate < 0.1 else step
        at += 20
    return told


def _span(name: str, at: float, seconds: float) -> dict[str, float]:
    return {f"{name}_start_time": at, f"{name}_duration_secs": seconds}


@pytest.mark.parametrize("seed", range(6))
def test_attempts_that_are_shorter_than_what_makes_an_ideal_cost_a_poll_no_history(seed: int) -> None:
    told, so_far = short_lives(seed), []
    source = Entries("j", so_far.copy)
    live = Live(source, keep=KEEP)
    for at in range(0, len(told), 7):
        part = told[at : at + 7]
        so_far += part
        source.add(part)
        moment = max(value for value in part[-1].values() if isinstance(value, float))
        now = round(moment * SECOND) + SECOND
        check(live, lambda told=tuple(so_far): read_entries(told)[0], now, f"seed {seed}, poll {at}")
        if live.rebuilds == 0:
            assert sum(len(life.steps.times) for life in source.log().lives) < 150
    assert live.rebuilds <= 2


def test_a_cut_that_fails_its_trial_changes_nothing(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    live, rng = Live(Journals(training.folder), keep=KEEP), Random(1)
    tried = freeze._is_same
    monkeypatch.setattr(freeze, "_is_same", lambda *asked: rng.random() < 0.3 and tried(*asked))
    for part in range(40):
        training.train(7, save=part % 3 == 2)
        training.recorder.span(Activity.COMPILE, training.clock() - 1000, 500, name=f"f{part}")
        check(live, lambda: read(training.folder)[0], training.clock(), f"part {part}")
    assert live.rebuilds == 0


# Absurd events in a steady run

STEPS = 70
DAWN = 1_780_000_000 * SECOND
moments = st.integers(0, STEPS * 10).map(lambda tenths: DAWN + tenths * SECOND // 10)
threads = st.sampled_from([0, 0, 0, 1])
activities = st.sampled_from([Activity.DATA, Activity.SAVE, Activity.CUSTOM, Activity.COMPILE, Activity.RESTORE])
names = st.sampled_from([None, "eval", "f"])
labels = st.none() | st.integers(0, STEPS)


def _event(kind: Kind, **fields: Any) -> st.SearchStrategy[Event]:
    return st.builds(lambda time, **rest: Event(kind, time, **rest), moments, **fields)


absurd = st.one_of(
    *[_event(Kind.BEGIN, thread=threads, step=labels, activity=activities, name=names)] * 3,
    *[_event(Kind.FINISH, thread=threads, step=labels, activity=activities, name=names)] * 3,
    _event(Kind.SPAN, thread=threads, activity=activities, name=names, duration=st.integers(0, 9 * SECOND)),
    _event(Kind.STEP, thread=threads, step=labels),
    _event(Kind.DEVICE, step=st.integers(0, STEPS)),
    _event(Kind.IDLE, duration=st.integers(0, 9 * SECOND)),
    _event(Kind.NUMBER, step=labels),
    _event(Kind.COMMIT, step=labels, duration=st.integers(0, 9 * SECOND)),
    _event(Kind.FACT, name=st.just("cache-miss"), data=names),
    _event(Kind.PLUGIN, name=st.just("torch"), data=st.just({"version": "1", "device": "host", "sees": ["OTHER"]})),
    _event(Kind.NOTICE, name=st.just("preemption")),
    _event(Kind.END, name=st.just("completed")),
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(absurd, st.sampled_from([0, 0, 0, 3, 15])), max_size=12), st.integers(0, 99), st.booleans())
def test_whatever_is_told_a_live_report_is_that_of_the_whole_log(
    told: list[tuple[Event, int]], seed: int, device: bool
) -> None:
    rng = Random(seed)
    steady = [Event(Kind.STEP, DAWN + at * SECOND + rng.randrange(SECOND // 10), 0, at) for at in range(STEPS)]
    done = [Event(Kind.DEVICE, step.time + SECOND * 9 // 10, 0, at) for at, step in enumerate(steady) if device]
    written = [(event.time, event) for event in [*steady, *done]]
    written += [(event.time + late * SECOND, event) for event, late in told]
    written.sort(key=lambda one: one[0])
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "0.jsonl")
        file.write_text(json.dumps({"schema": SCHEMA, "run": "r", "attempt": "0", "start": DAWN}) + "\n")
        live = Live(Journals(Path(place)), keep=KEEP)
        for part in polls(written, rng):
            with file.open("ab") as opened:
                opened.writelines(encode(event) for _, event in part)
            check(live, lambda: read(Path(place))[0], part[-1][0], f"seed {seed}")


# What a poll costs, and what makes all be read again


class Training:
    """A job on a clock of its own, its journal written as the real recorder writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.step = 0
        self.rng = Random(0)

    def start(self) -> None:
        """A process begins."""
        name = f"{self.clock():020}"
        header = {"schema": SCHEMA, "run": "r", "attempt": name, "start": self.clock()}
        self.journal = Journal(self.folder / f"{name}.jsonl", header, segment=2_000)
        self.journal.write(encode(Event(Kind.START, self.clock())))
        self.recorder = Recorder(self.journal.write, self.clock)
        self.recorder.write_to(self.journal)

    def train(self, steps: int, *, save: bool = False) -> None:
        """Steps of about 0.1 s, with waits and what the device tells; then perhaps a save."""
        for _ in range(steps):
            self.recorder.begin(Activity.DATA)
            self.clock.advance(0.01)
            self.recorder.finish(Activity.DATA)
            ordinal = self.recorder.step(self.step)
            self.clock.advance(self.rng.uniform(0.05, 0.06))
            self.recorder.device_idle(self.clock() - 10_000_000, 10_000_000)
            self.clock.advance(self.rng.uniform(0.04, 0.05))
            self.recorder.device_done(ordinal, self.clock())
            if self.step % 20 == 0:
                self.recorder.heartbeat()
            self.step += 1
        if save:
            self.recorder.begin(Activity.SAVE, step=self.step - 1)
            self.clock.advance(0.5)
            self.recorder.finish(Activity.SAVE, step=self.step - 1)
            self.recorder.committed(self.step - 1)


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Training]:
    monkeypatch.setattr(files, "CHUNK", 4096)  # a segment ends where a chunk does
    job = Training(tmp_path)
    job.start()
    yield job
    job.journal.close()


def test_lines_that_grow_segments_and_restarts_cost_only_what_is_new(training: Training) -> None:
    source = Journals(training.folder)
    live = Live(source, keep=KEEP)
    for attempt in range(3):
        for part in range(12):
            training.train(7 if part else 40, save=part % 3 == 2)
            check(live, lambda: read(training.folder)[0], training.clock(), f"attempt {attempt}, part {part}")
        assert sum(len(life.steps.times) for life in source.log().lives) < 120
        training.train(5)
        training.clock.advance(60)
        training.start()
        training.step -= 12  # the last save but none of what followed
        training.recorder.begin(Activity.RESTORE)
        training.clock.advance(1)
        training.recorder.finish(Activity.RESTORE, step=training.step - 1)
    assert len(list(training.folder.iterdir())) > 6
    assert live.rebuilds == 0


def test_a_restart_from_an_odd_step_makes_all_be_read_once(training: Training) -> None:
    live = Live(Journals(training.folder), keep=KEEP)
    training.train(100, save=True)
    check(live, lambda: read(training.folder)[0], training.clock(), "first")
    training.start()
    training.step = 37
    for part in range(10):
        training.train(10)
        check(live, lambda: read(training.folder)[0], training.clock(), f"part {part}")
    assert live.rebuilds == 1


def test_a_journal_that_was_deleted_or_found_to_be_another_process_is_left_out(training: Training) -> None:
    live = Live(Journals(training.folder), keep=KEEP)
    training.train(100, save=True)
    live.report(training.clock())
    training.start()
    training.train(100)
    check(live, lambda: read(training.folder)[0], training.clock(), "two")
    training.journal.write(encode(Event(Kind.RANK, training.clock(), 0, 1, data=2)))
    check(live, lambda: read(training.folder)[0], training.clock(), "one is not the primary one")
    training.train(100)
    min(training.folder.iterdir()).unlink()
    check(live, lambda: read(training.folder)[0], training.clock(), "the first was deleted")


@pytest.mark.parametrize("fault", ["cut", "flipped", "empty", "no JSON", "other version", "binary"])
def test_a_state_that_cannot_be_used_is_left_aside_and_told(training: Training, tmp_path: Path, fault: str) -> None:
    state = tmp_path / "state"
    training.train(100, save=True)
    live = Live(Journals(training.folder), state=state, keep=KEEP)
    live.report(training.clock())
    live.save()
    text = state.read_text()
    damaged = {
        "cut": text[: len(text) // 2],
        "flipped": text.replace('"steps": ', '"steps": 1', 1),
        "empty": "",
        "no JSON": "goodput",
        "other version": text.replace("goodput-live/4", "goodput-live/2"),
        "binary": "\0" * 100,
    }[fault]
    assert damaged != text
    state.write_text(damaged)
    training.train(10)
    again = Live(Journals(training.folder), state=state, keep=KEEP)
    assert len(again.notes) == 1
    assert str(state) in again.notes[0]
    check(again, lambda: read(training.folder)[0], training.clock(), fault)
    again.save()
    assert Live(Journals(training.folder), state=state).notes == []
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []


def test_entries_that_come_late_make_all_be_read_again_and_duplicates_do_not() -> None:
    so_far: list[dict[str, Any]] = [{"job_name": "j", "job_start_time": 1_780_000_000.0}]
    steps = [{"job_name": "j", "step_count": at, "step_start_time": 1_780_000_010.0 + at} for at in range(200)]
    late = steps.pop(70)
    source = Entries("j", so_far.copy)
    live = Live(source, keep=KEEP)
    for at in range(0, len(steps), 10):
        new = steps[at : at + 10]
        so_far += new
        source.add(new + steps[max(0, at - 30) : at])  # a page that came twice
        whole = RunLog("j", read_entries(so_far)[0].lives)
        assert live.report(DAWN + (at + 20) * SECOND) == calculate(whole, now=DAWN + (at + 20) * SECOND)
    assert live.rebuilds == 0
    so_far.append(late)
    source.add([late])
    assert live.report(DAWN + 300 * SECOND) == calculate(read_entries(so_far)[0], now=DAWN + 300 * SECOND)
    assert live.rebuilds == 1


def test_what_came_before_an_ideal_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of an attempt can be put aside before its ideal is frozen; all the same its events are behind a poll."""
    for module in (ideal, ledger, cuts):
        monkeypatch.setattr(module, "JUDGED", 10_000)
    told: list[dict[str, Any]] = [{"job_name": "j", "job_start_time": 1_780_000_000.0}]
    for step in range(600):
        at = 1_780_000_010.0 + 2 * step
        told.append({"job_name": "j", "step_count": step, "step_start_time": at})
        for edge, moment in (("start", at + 0.5), ("end", at + 0.8)):
            name = f"custom_badput_event_{edge}_time"
            told.append({"job_name": "j", "custom_badput_event_type": "eval", name: moment})
    gone_through: list[Event] = []
    note = watch.Watch.note

    def count(self: watch.Watch, event: Event) -> None:
        gone_through.append(event)
        note(self, event)

    monkeypatch.setattr(watch.Watch, "note", count)
    source = Entries("j", lambda: told[:10])
    live = Live(source, keep=KEEP)
    for at in range(0, len(told), 10):
        source.add(told[at : at + 10])
        gone_through.clear()
        report = live.report(2_000_000_000 * SECOND)
        assert len(gone_through) < 150
    assert report == calculate(read_entries(told)[0], now=2_000_000_000 * SECOND)
    assert live.rebuilds == 0
