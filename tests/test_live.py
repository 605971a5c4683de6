"""A live report says at each poll what a report of the whole log says, whatever was put aside before."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from goodput_plugins.core.attribution import ideal, ledger
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import SCHEMA, encode
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.live import Live, freeze
from goodput_plugins.core.live.entries import Entries
from goodput_plugins.core.live.journals import Journals
from goodput_plugins.core.reading import read

SECOND = 1_000_000_000
KEEP = 8


def _load(name: str) -> Any:
    home = Path(__file__).with_name(name)
    spec = importlib.util.spec_from_file_location(name, home / "__init__.py", submodule_search_locations=[str(home)])
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


simulation = sys.modules.get("simulation") or _load("simulation")


@pytest.fixture(autouse=True)
def short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Played jobs are short: let an attempt's ideal be frozen after 24 steps."""
    for module in (ideal, ledger, freeze):
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


def check(live: Live, log: Any, now: int, told: str) -> None:
    """The live report is that of the whole log."""
    try:
        expected = calculate(log, now=now)
    except UnusableData:
        with pytest.raises(UnusableData):
            live.report(now)
        return
    report = live.report(now)
    assert report == expected, told


@pytest.mark.parametrize("asynchronous", [False, True], ids=["host", "device"])
@pytest.mark.parametrize("seed", range(25))
def test_a_live_report_of_growing_journals_is_that_of_the_whole_log(
    seed: int, asynchronous: bool, tmp_path: Path
) -> None:
    job, rng = simulation.play(seed, asynchronous=asynchronous), Random(seed)
    state = tmp_path / "state.json"
    live = Live(Journals(tmp_path), state=state, keep=KEEP)
    for at, part in enumerate(polls(list(lines(job)), rng)):
        for _, name, line in part:
            with (tmp_path / name).open("ab") as file:
                file.write(line)
        now = part[-1][0] + rng.randrange(40 * SECOND)
        check(live, read(tmp_path)[0], now, f"seed {seed}, poll {at}, {job.fates}")
        if rng.random() < 0.2:
            live.save()
            live = Live(Journals(tmp_path), state=state, keep=KEEP)
            assert live.notes == []


@pytest.mark.parametrize("seed", range(25))
def test_a_live_report_of_entries_is_that_of_the_whole_log(seed: int, tmp_path: Path) -> None:
    job, rng = simulation.play(seed), Random(seed)
    told: list[Any] = simulation.entries(job, hosts=rng.choice([1, 1, 2]))
    so_far: list[Any] = []
    state = tmp_path / "state.json"
    source = Entries("played", so_far.copy)
    live = Live(source, state=state, keep=KEEP)
    for at, part in enumerate(polls(told, rng)):
        so_far += part
        source.add(part)
        if rng.random() < 0.2:
            source.add(rng.choices(so_far[-200:], k=3))
        moment = max(v for v in part[-1]["jsonPayload"].values() if isinstance(v, float))
        now = round((moment + rng.random() * 100) * SECOND)
        check(live, next(iter(read_entries(so_far))), now, f"seed {seed}, poll {at}, {job.fates}")
        if rng.random() < 0.1:
            live.save()
            source = Entries("played", so_far.copy)
            live = Live(source, state=state, keep=KEEP)
            assert live.notes == []
