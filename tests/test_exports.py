"""Exports of any form and size are read: wrapped or bare, in any order, twice, torn, of several jobs."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from goodput_plugins.core import exports
from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.compact import Stretch
from goodput_plugins.core.compact import entries as compact_entries
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import SCHEMA, Event, Kind, encode
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.reading import read
from goodput_plugins.core.report import Report
from goodput_plugins.core.runlog import Life, RunLog

LATER = 4_000_000_000_000_000_000
CASES = Path(__file__).with_name("cases")
CASE: list[dict[str, Any]] = json.loads((CASES / "rollback.json").read_text())


def report_on(log: RunLog) -> Report:
    return calculate(log, now=LATER)


EXPECTED = report_on(read_entries(CASE)[0])


@pytest.fixture(params=["msgspec", "json"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each parser, in pieces so small that every entry is cut somewhere."""
    if request.param == "msgspec":
        fast = pytest.importorskip("goodput_plugins.core.fast_exports")
        monkeypatch.setattr(exports, "_reader", fast.read)
    else:
        monkeypatch.setattr(exports, "_reader", exports._standard)
    monkeypatch.setattr(exports, "PIECE", 1_000)
    return str(request.param)


def as_list(entries: list[Any]) -> str:
    return json.dumps(entries, indent=2)


def as_lines(entries: list[Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def as_objects(entries: list[Any]) -> str:
    """As ``jq '.[]'`` prints them."""
    return "\n".join(json.dumps(entry, indent=2) for entry in entries)


def bare(entries: list[Any]) -> list[Any]:
    return [entry["jsonPayload"] for entry in entries]


FORMS: dict[str, Callable[[list[Any]], str]] = {
    "list": as_list,
    "compact list": json.dumps,
    "lines": as_lines,
    "objects": as_objects,
    "list with BOM": lambda entries: "\ufeff" + as_list(entries),
    "bare list": lambda entries: as_list(bare(entries)),
    "bare lines": lambda entries: as_lines(bare(entries)),
    "bare and wrapped": lambda entries: as_list(bare(entries[::2]) + entries[1::2]),
    "newest first": lambda entries: as_list(entries[::-1]),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_an_export_gives_the_same_report(form: str, parser: str, tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(FORMS[form](CASE))
    (log,) = read(path)
    assert report_on(log) == EXPECTED


def test_order_and_duplicates_change_nothing(parser: str, tmp_path: Path) -> None:
    rng = Random(7)
    entries = CASE + [{**entry, "insertId": f"again-{at}"} for at, entry in enumerate(rng.sample(CASE, 100))]
    rng.shuffle(entries)
    path = tmp_path / "export.json"
    path.write_text(as_list(entries))
    (log,) = read(path)
    assert report_on(log) == EXPECTED


@pytest.mark.parametrize("form", ["list", "lines", "objects"])
def test_wherever_a_piece_ends_what_it_cuts_is_read_in_whole(
    form: str, parser: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {"a": [None, True, False, -1.5e-3, 0.25, 1e300], "b": '\u00e9\U0001f600\\ "}, {'}
    payload = {"job_name": "r", "step_count": 0, "step_start_time": 1.5e9}
    path = tmp_path / "export.json"
    path.write_text(FORMS[form]([{"labels": odd, "jsonPayload": payload, "more": odd}] * 3))
    for piece in (1, 2, 5):
        monkeypatch.setattr(exports, "PIECE", piece)
        (log,) = read(path)
        assert not log.notes
        assert [life.steps.times.tolist() for life in log.lives] == [[1_500_000_000_000_000_000]]


@pytest.mark.parametrize("form", ["list", "lines", "objects"])
def test_what_is_torn_is_counted_and_the_rest_is_read(form: str, parser: str, tmp_path: Path) -> None:
    text = FORMS[form](CASE)
    path = tmp_path / "torn.json"
    path.write_text(text[: text.rindex('"severity"')])
    (log,) = read(path)
    assert ("not-understood-entries", "1 entries were not understood (1 x no JSON).") in log.notes
    assert report_on(log).breakdown == report_on(read_entries(CASE[:-1])[0]).breakdown


@pytest.mark.parametrize("form", ["list", "lines", "objects"])
def test_reading_goes_on_behind_what_is_no_json(form: str, parser: str, tmp_path: Path) -> None:
    text = FORMS[form](CASE)
    middle = text.index('"insertId"', len(text) // 2)
    path = tmp_path / "holed.json"
    path.write_text(text[:middle] + "<<<<" + text[middle:])
    (log,) = read(path)
    assert report_on(log).breakdown.elapsed == EXPECTED.breakdown.elapsed
    assert any(slug == "not-understood-entries" for slug, _ in log.notes)


def test_what_cannot_be_understood_is_counted_and_named(parser: str, tmp_path: Path) -> None:
    strange = [
        7,
        {"textPayload": "hello", "timestamp": "2026-05-28T20:00:00Z"},
        {"jsonPayload": {"job_name": CASE[0]["jsonPayload"]["job_name"], "step_count": 3, "step_start_time": "soon"}},
        {"jsonPayload": {"job_name": CASE[0]["jsonPayload"]["job_name"], "step_count": 3, "step_start_time": 1e300}},
        {"jsonPayload": {"event_type": "save", "step": 3}},
    ]
    path = tmp_path / "strange.json"
    path.write_text(as_list(CASE + strange))
    (log,) = read(path)
    assert report_on(log).breakdown == EXPECTED.breakdown
    assert dict(log.notes)["not-understood-entries"] == (
        "5 entries were not understood (1 x a checkpoint event without a time, 1 x a time that is no number, "
        "1 x a time that no clock shows, 1 x no payload, 1 x unknown payload)."
    )


def test_a_job_of_which_nothing_is_understood_is_no_run(parser: str, tmp_path: Path) -> None:
    nothing = [{"jsonPayload": {"job_name": "empty", "hello": at}} for at in range(3)]
    path = tmp_path / "strange.json"
    path.write_text(as_list(CASE + nothing))
    assert [log.run for log in read(path)] == [EXPECTED.run]
    path.write_text(as_list(nothing))
    with pytest.raises(UnusableData, match="holds no goodput events"):
        read(path)


def test_several_jobs_in_one_export_are_kept_apart(parser: str, tmp_path: Path) -> None:
    other = [{**entry, "jsonPayload": {**entry["jsonPayload"], "job_name": "other"}} for entry in CASE]
    mixed = [entry for pair in zip(CASE, other, strict=True) for entry in pair]
    path = tmp_path / "both.json"
    path.write_text(as_list(mixed))
    logs = read(path)
    assert [log.run for log in logs] == sorted(["other", EXPECTED.run])
    assert [report_on(log).breakdown for log in logs] == [EXPECTED.breakdown] * 2


def test_an_entry_that_holds_lists_of_objects_is_cut_nowhere(parser: str, tmp_path: Path) -> None:
    nested = [{**entry, "labels": {"a": [{"b": 1}, {"c": "},\n{"}, {"d": [{}, {}]}]}} for entry in CASE]
    path = tmp_path / "nested.json"
    for text in (as_list(nested), json.dumps(nested), as_objects(nested)):
        path.write_text(text)
        (log,) = read(path)
        assert log.notes == []
        assert report_on(log) == EXPECTED


@pytest.mark.parametrize("text", ["", " \n", "[]", "[", "{", "null", "prose, no JSON", "[1, 2, 3]"])
def test_what_holds_no_entries_is_said_so(text: str, parser: str, tmp_path: Path) -> None:
    path = tmp_path / "nothing.json"
    path.write_text(text)
    with pytest.raises(UnusableData, match=r"nothing\.json: "):
        read(path)


def test_an_export_may_be_packed_with_gzip(parser: str, tmp_path: Path) -> None:
    whole, packed = tmp_path / "entries.json", tmp_path / "entries.json.gz"
    whole.write_text(FORMS["list"](CASE))
    packed.write_bytes(gzip.compress(whole.read_bytes()))
    assert [report_on(log) for log in read(packed)] == [EXPECTED]
    packed.write_bytes(packed.read_bytes()[:-50])
    with pytest.raises(UnusableData, match="damaged or cut off"):
        read(packed)


def test_an_export_is_never_held_in_whole() -> None:
    rows = [
        {"timestamp": "2026-05-28T20:26:40Z", "insertId": f"{step:012}", "jsonPayload": {"job_name": "big"} | told}
        for step in range(20_000)
        for told in ({"step_count": step, "step_start_time": 1.78e9 + step},)
    ]
    data = json.dumps(rows, indent=2).encode()
    rows.clear()
    few = len(data) // 40
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exports, "PIECE", few)
        tracemalloc.start()
        count = 0
        for piece in exports.pieces(io.BytesIO(data)):
            count += len(piece.entries) + sum(len(column.times) for column in piece.columns)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count == 20_000
    assert peak < len(data) / 3


# --- entries of ours ----------------------------------------------------------------------------------

SECOND = 1_000_000_000
RESTART = EXPECTED.end + 60 * SECOND
OURS = [
    Event(Kind.START, RESTART),
    *(Event(Kind.STEP, RESTART + (10 + at) * SECOND, 0, EXPECTED.steps.last + at + 1) for at in range(50)),
    Event(Kind.END, RESTART + 60 * SECOND, name="completed"),
]


def compact(events: list[Event], start: int = RESTART) -> list[dict[str, Any]]:
    header = {"schema": SCHEMA, "run": EXPECTED.run, "attempt": f"attempt-{start}", "start": start}
    data = json.dumps(header).encode() + b"\n" + b"".join(map(encode, events))
    return list(compact_entries(Stretch(EXPECTED.run, header["attempt"], start, 0, 0, data)))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few lines go into one entry."""
    monkeypatch.setattr("goodput_plugins.core.compact.LARGEST", 200)


def test_entries_of_ours_are_put_together_again(short: None) -> None:
    entries = compact(OURS)
    assert len(entries) > 5
    Random(3).shuffle(entries)
    (log,) = read_entries([*entries, *entries[:5]])
    life = Life(f"attempt-{RESTART}", RESTART, [])
    life.add(OURS)
    assert report_on(log) == report_on(RunLog(EXPECTED.run, [life]))


def test_a_job_may_have_attempts_of_the_library_and_of_ours(short: None) -> None:
    entries = CASE + compact(OURS)
    Random(5).shuffle(entries)
    report = report_on(read_entries(entries)[0])
    assert len(report.attempts) == len(EXPECTED.attempts) + 1
    assert report.steps.last == EXPECTED.steps.last + 50
    assert report.end == RESTART + 60 * SECOND


def test_what_both_told_of_an_attempt_counts_once() -> None:
    theirs = [{"job_name": EXPECTED.run, "job_start_time": RESTART / 1e9 + 1}]
    theirs += [
        {"job_name": EXPECTED.run, "step_count": event.step, "step_start_time": event.time / 1e9 + 0.01}
        for event in OURS
        if event.kind is Kind.STEP
    ]
    assert report_on(read_entries(CASE + compact(OURS) + theirs)[0]) == report_on(read_entries(CASE + compact(OURS))[0])


def test_entries_of_another_version_and_torn_lines_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goodput_plugins.core.compact._packed", lambda part: {"lines": part.decode()})
    entries = compact(OURS)
    entries[-1]["jsonPayload"]["lines"] += "[torn\n"
    newer = {"jsonPayload": {**entries[0]["jsonPayload"], "schema": "goodput-journal/9"}}
    (log,) = read_entries([*entries, newer])
    assert dict(log.notes) == {
        "torn-lines": "1 line could not be read and left out; a crash can tear a journal's last one.",
        "not-understood-entries": "1 entries were not understood (1 x another version of our entries).",
    }


def test_other_processes_than_the_primary_are_left_out() -> None:
    other = [Event(Kind.RANK, RESTART, 0, 3), *OURS]
    (log,) = read_entries(compact(OURS) + compact(other, RESTART + 1))
    assert len(log.lives) == 1
