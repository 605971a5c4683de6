"""However an export is read (fast or not, in pieces, in two halves, in whole), its report is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from goodput_plugins.core import exports
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.fast_exports import read as fast
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.orbax_payloads import checkpoint
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import iso
from goodput_plugins.core.runlog import RunLog

LATER = 4_000_000_000_000_000_000
BEGAN = 1_780_000_000.0


def payloads(rng: Random) -> Iterator[tuple[float, dict[str, Any]]]:
    """What a job tells, and when: some attempts, each with steps, waits, saves and evaluations."""
    at, first = BEGAN + rng.random(), 0
    for _ in range(rng.randint(1, 4)):
        at += 30
        yield at, {"job_start_time": at}
        yield at, {"tpu_init_start_time": at}
        yield at + 2, {"tpu_init_end_time": at + 2}
        at += 3
        for step in range(first, first + rng.randint(1, 60)):
            yield at, {"data_loading_start_time": at}
            yield at + 0.01, {"data_loading_end_time": at + 0.01}
            at += 0.01
            yield at, {"step_count": step, "step_start_time": at}
            at += rng.choice([0.1, 0.1, 0.1 + rng.random() / 100])
            if rng.random() < 0.05:
                yield at, {"custom_badput_event_type": "eval", "custom_badput_event_start_time": at}
                yield at + 1, {"custom_badput_event_type": "eval", "custom_badput_event_end_time": at + 1}
                at += 1
            if rng.random() < 0.05:
                yield at + 0.5, checkpoint("save", step, int(at * 1e9), int((at + 0.5) * 1e9))
                at += 0.5
        first = max(0, step - rng.randint(-1, 10))
    if rng.random() < 0.7:
        yield at, {"job_end_time": at}
    for odd in rng.sample(ODD, rng.randint(0, 3)):
        yield at, odd


ODD: list[Any] = [
    {"step_count": 3.0, "step_start_time": BEGAN + 50},
    {"step_count": "3", "step_start_time": BEGAN + 50},
    {"step_count": 3, "step_start_time": None, "data_loading_start_time": BEGAN + 50},
    {"step_count": 3, "step_start_time": True},
    {"step_count": 3, "step_start_time": int(BEGAN) + 50},
    {"step_count": 3, "step_start_time": -1.5},
    {"step_count": 2**70, "step_start_time": BEGAN + 51},
    {"step_start_time": BEGAN + 52, "data_loading_end_time": BEGAN + 52},
    {"event_type": "save", "step_start_time": BEGAN + 53},
    {"event_type": None, "data_loading_start_time": BEGAN + 53},
    {"data_loading_start_time": [BEGAN], "note": '},\n{"'},
    {"data_loading_end_time": {"a": [{}, {"jsonPayload": {}}]}},
    {"schema": "goodput-journal/9", "step_start_time": BEGAN},
    {},
]


def entries(rng: Random) -> list[Any]:
    """An export: one or two jobs, one or two hosts, in order or not, some told twice, all wrapped or not."""
    told: list[tuple[float, dict[str, Any]]] = []
    for name in ["big", "other"][: rng.randint(1, 2)]:
        told += [(at, {"job_name": name, **payload}) for at, payload in payloads(rng)]
    if rng.random() < 0.3:
        told += [(at + 0.004, payload) for at, payload in told]
    clock_was_set = rng.choice([0, 0, -900, 900])
    moment = rng.choice(told)[0]
    told.sort(key=lambda one: one[0], reverse=rng.random() < 0.5)
    if rng.random() < 0.3:
        told += rng.sample(told, len(told) // 10)
    if rng.random() < 0.3:
        rng.shuffle(told)
    told = [(at, ahead_by(clock_was_set if at > moment else 0, payload)) for at, payload in told]
    return [wrapped(rng, at, at_ns, payload) for at_ns, (at, payload) in enumerate(told)]


def ahead_by(seconds: float, payload: dict[str, Any]) -> dict[str, Any]:
    """What is told by a clock that is so much ahead."""
    return {
        key: value + seconds if key.endswith("_time") and type(value) in (int, float) else value
        for key, value in payload.items()
    }


def wrapped(rng: Random, at: float, number: int, payload: dict[str, Any]) -> Any:
    entry = {
        "insertId": f"{number:x}",
        "jsonPayload": payload,
        "labels": {"a": "jsonPayload"},
        "timestamp": iso(int(at * 1e9)),
    }
    chance = rng.random()
    if chance < 0.001:
        return payload
    if chance < 0.002:
        return rng.choice([7, None, {"textPayload": "hello"}, {"jsonPayload": "hello"}, {"jsonPayload": None}])
    if chance < 0.004:
        entry["timestamp"] = rng.choice(["", None, "2026-05-28T20:27:40", "2026-05-28T20:27:40.123456789Z", 7])
    return entry


FORMS = {
    "list": lambda entries: json.dumps(entries, indent=2),
    "compact list": lambda entries: json.dumps(entries, separators=(",", ":")),
    "lines": lambda entries: "".join(json.dumps(entry) + "\n" for entry in entries),
    "objects": lambda entries: "\n".join(json.dumps(entry, indent=2) for entry in entries),
}


def told_by(logs: list[RunLog]) -> list[tuple[Any, ...]]:
    """All that the logs tell."""
    return [
        (
            log.run,
            sorted(log.notes),
            [(life.id, life.start, sorted(map(repr, life.events)), repr(life.steps)) for life in log.lives],
        )
        for log in logs
    ]


def reports(logs: list[RunLog]) -> list[Any]:
    return [calculate(log, now=LATER).to_json() for log in logs]


def one_by_one(function: Any, items: Any) -> list[Any]:
    """What does halves one after the other."""
    return [function(item) for item in items]


@pytest.mark.parametrize("seed", range(25))
def test_each_way_to_read_an_export_tells_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    export = entries(rng)
    text = rng.choice(list(FORMS.values()))(export)
    path = tmp_path / "export.json"
    path.write_text(text)
    expected = told_by(read_entries(export))
    for reader in (fast, exports._standard):
        monkeypatch.setattr(exports, "_reader", reader)
        for piece in (1_000, 10_000_000):
            monkeypatch.setattr(exports, "PIECE", piece)
            for each in (map, one_by_one):
                assert told_by(read(path, each)) == expected
    assert reports(read(path)) == reports(read_entries(export))


@pytest.mark.parametrize("seed", range(15))
def test_of_a_torn_export_both_halves_tell_what_the_whole_tells(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    text = rng.choice(list(FORMS.values()))(entries(rng))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(["", "<<<<", "\0\0", "},\n{", '"', "]"]) + text[at + rng.randint(0, 300) :]
    path = tmp_path / "torn.json"
    path.write_text(text)
    monkeypatch.setattr(exports, "PIECE", 1_000)
    try:
        expected = told_by(read(path))
    except UnusableData:
        with pytest.raises(UnusableData):
            read(path, one_by_one)
    else:
        assert told_by(read(path, one_by_one)) == expected
