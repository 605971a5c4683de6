"""The agent's parts: reading journals as they grow, remembering the place, going round, standing by."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from goodput_plugins.agent import duties, loop, shipping, tail
from goodput_plugins.agent.door import Door
from goodput_plugins.agent.loop import Agent
from goodput_plugins.agent.position import NAME, Position, Positions
from goodput_plugins.agent.shipping import Shipping
from goodput_plugins.agent.status import Status
from goodput_plugins.agent.tail import Tail
from goodput_plugins.core import compact, files
from goodput_plugins.core.compact import Stretch
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.journal import Journal
from goodput_plugins.core.reading import dropped_by_agent, read
from goodput_plugins.core.runlog import RunLog
from goodput_plugins.core.runs import Run
from goodput_plugins.core.shipper import _ask
from goodput_plugins.exporters.errors import Unreached

SECOND = 1_000_000_000
START = 1_780_000_000 * SECOND


class Recorder:
    """Writes a journal as a recording process does: growing runs of steps, heartbeats, segments."""

    def __init__(self, folder: Path, attempt: str = "20260528T202640.000000000Z-1a2b3c4d", **more: Any) -> None:
        header = {"schema": "goodput-journal/1", "run": "r", "attempt": attempt, "start": START}
        self.journal = Journal(folder / f"{attempt}.jsonl", header, **more)
        self.journal.write(b'["start",%d]\n' % START)
        self.now = START
        self.steps = 0
        self.run: Run | None = None

    def step(self) -> None:
        self.now += 20_000_000
        if self.run is None or not self.run.step(self.now, self.steps):
            self.run = Run(self.journal, 0, self.now, self.steps, self.steps)
        self.steps += 1

    def heartbeat(self) -> None:
        self.journal.write(b'["h",%d]\n' % self.now)
        self.run = None

    def end(self) -> None:
        self.journal.write(b'["end",%d,0,null,null,"completed"]\n' % self.now)
        self.journal.close()


class Memory:
    """A destination that remembers, and may fail."""

    def __init__(self) -> None:
        self.entries: list[Mapping[str, Any]] = []
        self.fault: Exception | None = None
        self.tries = 0
        self.refuses = 0

    def write(self, entries: Sequence[Mapping[str, Any]]) -> int:
        self.tries += 1
        if self.fault is not None:
            raise self.fault
        self.entries += entries[self.refuses :]
        return self.refuses

    def log(self) -> RunLog:
        (log,) = read_entries(self.entries)
        return log


class Sender(Agent):
    """An agent with that one duty, which can be told to do it."""

    def __init__(self, folder: Path, memory: Memory, door: Door | None = None, **more: Any) -> None:
        positions, status = Positions(folder, "memory"), Status()
        more.setdefault("trainer_lives", lambda: False)
        clock = more.get("clock", time.monotonic)
        self.shipping = Shipping(Tail(folder, positions), positions, compact.entries, memory, status, clock)
        super().__init__(folder, [self.shipping], door or Door(), status, **more)

    def ship(self) -> None:
        self.shipping()
        self.round()


agent = Sender


def told(log: RunLog) -> list[Any]:
    return [(life.id, life.start, sorted(life.events), life.steps) for life in log.lives]


def on_disk(folder: Path) -> list[Any]:
    (log,) = read(folder)
    return told(log)


# --- reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_what_is_sent_in_parts_is_what_lies_on_disk(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks fall anywhere: between the steps of a line that grows, before and after a segment's turn."""
    monkeypatch.setattr(files, "CHUNK", 4096)
    monkeypatch.setattr(compact, "LARGEST", 300)
    random, memory = Random(seed), Memory()
    recorder = Recorder(tmp_path, segment=4_000)
    sender = agent(tmp_path, memory)
    for _ in range(6_000):
        recorder.step()
        if random.random() < 0.01:
            recorder.heartbeat()
        if random.random() < 0.05:
            sender.ship()
        if random.random() < 0.005:
            sender = agent(tmp_path, memory)  # another one, from the place on disk
    recorder.end()
    sender.ship()
    assert len(list(tmp_path.glob("*.jsonl"))) > 3
    assert told(memory.log()) == on_disk(tmp_path)
    assert memory.log().notes == []


def test_steps_of_an_open_line_are_sent_before_it_ends(tmp_path: Path) -> None:
    recorder, memory = Recorder(tmp_path), Memory()
    sender = agent(tmp_path, memory)
    for _ in range(10):
        recorder.step()
    sender.ship()
    assert len(memory.log().lives[0].steps.times) == 10
    recorder.step()
    sender.ship()
    assert len(memory.log().lives[0].steps.times) == 11


def test_entries_sent_twice_in_other_parts_are_read_once(tmp_path: Path) -> None:
    recorder, memory = Recorder(tmp_path), Memory()
    for at in range(500):
        recorder.step()
        if at % 7 == 0:
            agent(tmp_path, memory).ship()
        if at % 50 == 0:
            (tmp_path / NAME).unlink(missing_ok=True)  # the place is lost: all is sent again
    recorder.end()
    agent(tmp_path, memory).ship()
    assert len({entry["insertId"] for entry in memory.entries}) > 60
    assert told(memory.log()) == on_disk(tmp_path)


def test_equal_bytes_give_equal_entries(tmp_path: Path) -> None:
    stretch = Stretch("r", "a", START, 0, 100, b'["h",%d]\n' % START * 20_000)
    assert list(compact.entries(stretch)) == list(compact.entries(stretch))
    assert all(len(entry["jsonPayload"]["packed"]) <= compact.LARGEST for entry in compact.entries(stretch))


@pytest.mark.parametrize("packed", ["", "=", "x", 7, None, "////", "A" * 10])
def test_what_cannot_be_unpacked_is_no_entry_of_ours(packed: Any) -> None:
    (entry,) = compact.entries(Stretch("r", "a", START, 0, 0, b'["h",1]\n' * 100))
    attempts = compact.Attempts()
    assert not attempts.add({**entry["jsonPayload"], "packed": packed}) or packed == ""
    assert attempts.add(entry["jsonPayload"])


def test_a_missing_entry_costs_what_it_held_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "LARGEST", 300)
    recorder, memory = Recorder(tmp_path), Memory()
    for at in range(200):
        recorder.step()
        if at % 10 == 9:
            recorder.heartbeat()
    recorder.end()
    agent(tmp_path, memory).ship()
    whole = memory.log().lives[0].steps.times
    del memory.entries[5]
    (log,) = read_entries(memory.entries)
    assert [slug for slug, _ in log.notes] == ["missing-entries"]
    assert set(log.lives[0].steps.times) < set(whole)
    assert len(log.lives[0].steps.times) > len(whole) - 40
    del memory.entries[0]
    (log,) = read_entries(memory.entries)  # the journal's header is gone
    assert log.lives[0].start == START and len(log.lives[0].steps.times) > len(whole) - 80


def test_a_journal_that_may_be_deleted_yet_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, memory = Recorder(tmp_path), Memory()
    recorder.journal.write(b'["b",%d,0,null,"device-init"]\n' % START)
    following = Tail(tmp_path, Positions(tmp_path, "memory"))
    assert list(following.stretches(0.0)) == []
    assert list(following.stretches(tail.SILENT - 1)) == []
    assert list(following.stretches(tail.SILENT + 1)) != []  # its process died before its first step
    agent(tmp_path, memory).ship()
    assert memory.entries == []
    recorder.step()
    agent(tmp_path, memory).ship()
    assert len(memory.entries) == 1


def test_lines_are_taken_whole_where_that_is_asked_for(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    following = Tail(tmp_path, Positions(tmp_path, "memory"), whole_lines=True)
    for _ in range(5):
        recorder.step()
    (found,) = following.stretches(0.0)
    assert found[0].data.endswith(b"\n") and b'["r"' not in found[0].data
    recorder.heartbeat()
    (found,) = following.stretches(0.0)
    assert b'["r"' in found[0].data and found[0].data.endswith(b"]\n")


def test_a_journal_that_was_deleted_goes_on_in_its_next_segment(tmp_path: Path) -> None:
    recorder, memory = Recorder(tmp_path), Memory()
    sender = agent(tmp_path, memory)
    recorder.step()
    sender.ship()
    recorder.journal.path.unlink()
    recorder.journal.tend()
    recorder.run = None
    recorder.step()
    sender.ship()
    assert len(memory.log().lives[0].steps.times) == 2


# --- the place ---------------------------------------------------------------------------------------


def test_places_are_kept_for_each_destination_and_readers_ignore_them(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.step()
    recorder.end()
    one, other = Positions(tmp_path, "one"), Positions(tmp_path, "other")
    one["a"] = Position(2, 17)
    other["a"] = Position(0, 5)
    one.received.add("b")
    one.save()
    other.save()
    again = Positions(tmp_path, "one")
    assert again["a"] == (2, 17) and again["x"] == (0, 0) and again.received == {"b"}
    assert Positions(tmp_path, "other")["a"] == (0, 5)
    assert len(read(tmp_path)[0].lives) == 1


@pytest.mark.parametrize("held", [b"", b"[1,", b"[]", b'{"schema": "goodput-agent-position/9"}', b"\xff"])
def test_a_place_that_cannot_be_read_is_none(tmp_path: Path, held: bytes) -> None:
    (tmp_path / NAME).write_bytes(held)
    assert Positions(tmp_path, "one")["a"] == (0, 0)


# --- going round -------------------------------------------------------------------------------------


def test_what_cannot_be_sent_is_sent_later_and_costs_ever_fewer_tries(tmp_path: Path) -> None:
    recorder, memory, now = Recorder(tmp_path), Memory(), [0.0]
    waits: list[float] = []

    class Sleeper(Door):
        def wait(self, seconds: float) -> None:
            waits.append(seconds)
            now[0] += seconds
            if now[0] < 700:
                recorder.step()
            if now[0] > 600:
                memory.fault = None  # the outage is over after ten minutes

    memory.fault = Unreached("no network")
    recorder.step()
    door = Sleeper()
    sender = agent(tmp_path, memory, door, trainer_lives=lambda: now[0] < 700, clock=lambda: now[0])
    sender.run()
    assert told(memory.log()) == on_disk(tmp_path)
    assert sum(waits[:40]) > 600 or memory.tries < 60
    failed = [wait for wait in waits if wait > shipping.INTERVAL]
    assert max(failed) <= duties.LONGEST_PAUSE and len(set(failed)) > 3


class StillRunning:
    """Reports that tell that the run goes on: its trainer was killed a moment ago."""

    def start(self) -> None: ...
    def ask(self) -> None: ...
    def finish(self, *, last: bool) -> None: ...
    def cut_short(self) -> None: ...
    def is_kept(self) -> bool:
        return True

    is_sent = is_running = is_over = is_kept


def test_an_agent_with_nothing_left_to_do_goes(tmp_path: Path) -> None:
    recorder, now = Recorder(tmp_path), [0.0]
    recorder.step()

    class Sleeper(Door):
        def wait(self, seconds: float) -> None:
            now[0] += seconds

    def run(memory: Memory, **more: Any) -> float:
        now[0] = 0.0
        agent(tmp_path, memory, Sleeper(), clock=lambda: now[0], **more).run()
        return now[0]

    assert loop.SILENT <= run(Memory()) < loop.LOST
    assert loop.LOST <= run(Memory(), reports=StillRunning()) <= 2 * loop.LOST
    recorder.step()
    dead = Memory()
    dead.fault = Unreached("no network")
    assert loop.GIVE_UP <= run(dead) <= 2 * loop.GIVE_UP
    status = json.loads((tmp_path / "agent.json").read_text())
    assert status["state"] == "done" and status["unsent"] > 0 and status["error"] == "no network"


def test_reports_end_with_the_run_though_a_log_cannot_be_sent(tmp_path: Path) -> None:
    """They may hold a port; the next training's agent takes over at once."""
    recorder, now, memory, finished = Recorder(tmp_path), [0.0], Memory(), []
    recorder.step()
    memory.fault = Unreached("no network")

    class Ended(StillRunning):
        def is_running(self) -> bool:
            return False

        def finish(self, *, last: bool) -> None:
            finished.append(now[0])

    class Sleeper(Door):
        def wait(self, seconds: float) -> None:
            now[0] += seconds
            if now[0] > 1000:
                self.knocks += 1

    agent(tmp_path, memory, Sleeper(), clock=lambda: now[0], reports=Ended()).run()
    assert len(finished) == 1 and loop.SILENT <= finished[0] < 3 * loop.SILENT + duties.LONGEST_PAUSE
    assert 1000 < now[0] < 1000 + 2 * duties.LONGEST_PAUSE


def test_told_to_go_it_goes_when_the_trainer_has_or_soon(tmp_path: Path) -> None:
    recorder, now = Recorder(tmp_path), [0.0]
    recorder.step()

    class Sleeper(Door):
        def wait(self, seconds: float) -> None:
            now[0] += seconds

    memory = Memory()
    sender = agent(tmp_path, memory, Sleeper(), clock=lambda: now[0], trainer_lives=lambda: True)
    sender.leave()
    sender.run()
    assert now[0] <= loop.LEAVE + 1 and memory.entries


def test_an_agent_that_hands_over_does_not_wait_for_a_network(tmp_path: Path) -> None:
    recorder, memory = Recorder(tmp_path), Memory()
    memory.fault = Unreached("no network")
    recorder.step()

    class Sleeper(Door):
        def wait(self, seconds: float) -> None:
            if memory.tries:
                sender.hand_over()

    sender = agent(tmp_path, memory, Sleeper(), trainer_lives=lambda: True)
    sender.run()
    assert memory.tries == 1 and json.loads((tmp_path / "agent.json").read_text())["unsent"] > 0


def test_what_is_refused_is_counted_over_all_agents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder, memory = Recorder(tmp_path), Memory()
    recorder.step()
    memory.refuses = 1
    sender = agent(tmp_path, memory)
    sender.ship()
    assert "1 entries were refused and are dropped" in capsys.readouterr().out
    assert dropped_by_agent(tmp_path) == 1
    assert [slug for slug, _ in read(tmp_path)[0].notes] == ["dropped-entries"]


@pytest.mark.parametrize(
    "held", ["", "{", "[" * 100_000, "[]", "{}", '{"dropped": "2"}', '{"dropped": -1}', "a folder"]
)
def test_a_count_of_what_was_refused_that_cannot_be_read_is_not_known(tmp_path: Path, held: str) -> None:
    Recorder(tmp_path).step()
    assert dropped_by_agent(tmp_path) == 0 and not read(tmp_path)[0].notes  # no agent has been at work
    (tmp_path / "agent.json").mkdir() if held == "a folder" else (tmp_path / "agent.json").write_text(held)
    assert dropped_by_agent(tmp_path) is None
    assert [slug for slug, _ in read(tmp_path)[0].notes] == ["damaged-note"]


def test_a_large_backlog_is_sent_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "BATCH", 10_000)
    monkeypatch.setattr(tail, "AT_ONCE", 3_000)
    recorder, memory = Recorder(tmp_path), Memory()
    for _ in range(20_000):
        recorder.step()
    recorder.end()
    agent(tmp_path, memory).ship()
    assert memory.tries > 15
    assert told(memory.log()) == on_disk(tmp_path)


@pytest.mark.parametrize("hands_over", [False, True])
def test_while_a_backlog_is_sent_the_agent_hears_that_another_stands_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hands_over: bool
) -> None:
    monkeypatch.setattr(shipping, "BATCH", 10_000)
    monkeypatch.setattr(tail, "AT_ONCE", 3_000)
    recorder, now = Recorder(tmp_path), [0.0]
    for _ in range(20_000):
        recorder.step()
    recorder.end()

    class Slow(Memory):
        def write(self, entries: Sequence[Mapping[str, Any]]) -> int:
            now[0] += 2
            return super().write(entries)

    class Waiting(Door):
        def wait(self, seconds: float) -> None:
            now[0] += seconds
            self.knocks += hands_over
            if hands_over:
                sender.hand_over()

    memory = Slow()
    sender = agent(tmp_path, memory, Waiting(), clock=lambda: now[0])
    sender.run()
    left = json.loads((tmp_path / "agent.json").read_text())["unsent"]
    assert (left > 0) == hands_over == (memory.tries < 10)
    if hands_over:
        assert now[0] < 4 * shipping.TURN
        agent(tmp_path, memory).ship()
    assert told(memory.log()) == on_disk(tmp_path)


# --- the door ----------------------------------------------------------------------------------------


def test_there_is_one_agent_of_a_run(tmp_path: Path) -> None:
    one, other = Door(), Door()
    assert one.take(tmp_path) and not other.take(tmp_path)
    one.close()
    assert other.take(tmp_path)
    other.close()


def test_who_asks_is_answered_when_everything_is_sent(tmp_path: Path) -> None:
    import threading

    door = Door()
    assert door.take(tmp_path)
    memory = Memory()
    recorder = Recorder(tmp_path)
    recorder.step()

    def serve() -> None:
        door.wait(30)
        agent(tmp_path, memory, door).ship()

    serving = threading.Thread(target=serve)
    serving.start()
    begun = time.monotonic()
    _ask(tmp_path, 30.0, begun)
    assert memory.entries and time.monotonic() - begun < 20
    serving.join()
    door.close()


def test_who_waits_for_an_agent_that_goes_asks_the_next_one(tmp_path: Path) -> None:
    import threading

    first, second, answered = Door(), Door(), threading.Event()
    assert first.take(tmp_path)

    def serve() -> None:
        first.wait(30)
        first.close()
        time.sleep(0.3)  # in which there is none
        assert second.take(tmp_path)
        second.wait(30)
        second.answer(sent=True)
        answered.set()

    serving = threading.Thread(target=serve)
    serving.start()
    _ask(tmp_path, 30.0, time.monotonic())
    assert answered.wait(10)
    serving.join()
    second.close()


def test_nobody_waits_for_an_agent_that_is_not_there(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        _ask(tmp_path, 30.0, begun)
    assert time.monotonic() - begun < 10
    door = Door()  # one that hangs is waited for as long as was asked for
    assert door.take(tmp_path)
    with pytest.raises(TimeoutError):
        _ask(tmp_path, 0.3, begun)
    door.close()


def test_this_process_holds_no_descriptor_of_the_tests(tmp_path: Path) -> None:
    from goodput_plugins.core.shipper import _inherited

    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        assert write_end in _inherited() and read_end not in _inherited()
    finally:
        os.close(read_end)
        os.close(write_end)
