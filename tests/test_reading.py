"""Whatever lies at a path: it is read, or told in one sentence why it cannot be."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from goodput_plugins.cli import main
from goodput_plugins.core import journal_reading
from goodput_plugins.core.errors import UnusableData
from goodput_plugins.core.events import SCHEMA, Kind
from goodput_plugins.core.reading import read, read_journal
from goodput_plugins.core.runlog import RunLog

T = 1_780_000_000_000_000_000
SECOND = 1_000_000_000


@pytest.fixture(autouse=True, params=["msgspec", "json"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parser of lines, however few they are."""
    monkeypatch.setattr(journal_reading, "MANY", 0 if request.param == "msgspec" else 1 << 60)


def header(**fields: Any) -> str:
    return json.dumps({"schema": SCHEMA, "run": "r", "attempt": "a", "start": T, "segment": 0} | fields)


def journal(*lines: str, start: str | None = None) -> str:
    return "\n".join([header() if start is None else start, *lines]) + "\n"


STEPS = [f'["s",{T + n * SECOND},0,{n}]' for n in range(1, 6)]
END = f'["end",{T + 6 * SECOND},0,null,null,"completed"]'


def one(path: Path) -> RunLog:
    (log,) = read(path)
    return log


def numbers(log: RunLog) -> list[list[int]]:
    return [list(life.steps.numbers) for life in log.lives]


def notes(log: RunLog) -> list[str]:
    return [slug for slug, _ in log.notes]


# --- what is no journal ----------------------------------------------------------------------------


def binary() -> bytes:
    return bytes(range(256)) * 100


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (binary(), "binary file"),
        (gzip.compress(binary()), "binary file"),
        (b"", "neither a journal nor log entries"),
        (b"\0" * 5000, "neither a journal nor log entries"),
        (b"hello\n", "neither a journal nor log entries"),
        (b"[" * 100_000, "neither a journal nor log entries"),
        (b"[]", "neither a journal nor log entries"),
        (b"{}", "holds no goodput events"),
        (b"9" * 5000, "neither a journal nor log entries"),
        (b'[{"jsonPayload": {"x": 1}}]', "holds no goodput events"),
        (journal(*STEPS, start=header(schema="goodput-journal/2")).encode(), "another version of goodput-plugins"),
        (journal(*STEPS, start=header(start="now")).encode(), "tells no run or no start"),
        (journal(*STEPS, start=header(run=None)).encode(), "tells no run or no start"),
        (journal(*STEPS, start=header(start=-1)).encode(), "tells no run or no start"),
        (journal(*STEPS, start=header(start=2**70)).encode(), "tells no run or no start"),
        (journal(STEPS[4], STEPS[0]).encode(), "its times go backwards by 4.0 s"),
        (journal(END).encode(), "no attempt has begun"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value.replace(" ", "-"),
)
def test_what_cannot_be_used_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, says: str
) -> None:
    path = tmp_path / "given.jsonl"
    path.write_bytes(data)
    for target in (path, tmp_path):
        assert main(["report", str(target)]) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("goodput: ") and err.count("\n") == 1
        assert says in err or target is tmp_path


@pytest.mark.parametrize("name", ["nothing", "nothing/there", "empty", "a file/below", "looped"])
def test_a_path_that_leads_nowhere_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a file").touch()
    (tmp_path / "looped").symlink_to(tmp_path / "looped")
    assert main(["report", str(tmp_path / name)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("goodput: ") and err.count("\n") == 1


def test_an_unusable_journal_beside_good_ones_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(journal(*STEPS, END))
    (tmp_path / "b.jsonl").write_bytes(binary())
    (tmp_path / "c.jsonl").mkdir()
    os.mkfifo(tmp_path / "d.jsonl")  # nobody writes into it: to open it would wait for ever
    log = one(tmp_path)
    assert numbers(log) == [[1, 2, 3, 4, 5]]
    assert notes(log) == ["unusable-journal"] * 2


# --- what is a journal all the same ----------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        journal(*STEPS).replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + journal(*STEPS).encode(),
        journal(*STEPS).encode() + bytes(100_000),
        journal(*STEPS).encode().rstrip(b"\n"),
        journal(*STEPS, "", "").encode(),
        journal(*STEPS, start=header(run="x" * 200_000)).encode(),
        journal(*STEPS, start=header(other=[1])).encode(),
        journal(*STEPS, start=json.dumps({"schema": SCHEMA, "run": "r", "start": T})).encode(),
        journal(*STEPS, start=header(run="\ud800\0\x1b[31m")).encode(),
    ],
    ids=["crlf", "bom", "nul tail", "no newline", "empty lines", "long run", "new key", "few keys", "odd run"],
)
def test_a_journal_in_odd_clothes_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    log = one(path)
    assert numbers(log) == [[1, 2, 3, 4, 5]] and notes(log) == []
    assert main(["report", str(path)]) == 0
    assert main(["report", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out.rpartition("\n{")[2].join(["{", ""]))["steps"]["count"] == 5


@pytest.mark.parametrize(
    "torn",
    [
        '["s",17800',
        "[",
        "\x00\x01",
        '["s"]',
        '["s",1.5,0,9]',
        '["s",-1,0,9]',
        f'["s",{2**63},0,9]',
        f'["s",{T},0,{"9" * 5000}]',
        f'["s",{T},0,NaN]',
        f'["s",{T},"0",9]',
        f'["nonsense",{T}]',
        f'["b",{T},0,9,"nonsense"]',
        f'["b",{T},0,9,["save"]]',
        f'["b",{T},0,9,"save",7]',
        f'["x",{T},0,9,"save",null,-5]',
        f'["x",{T},0,9,"save",null,{2**62}]',
        f'["r",{T},0,9,null,null,null,[]]',
        f'["r",{T},0,9,null,null,null,[1,2.5]]',
        f'["r",{T},0,9,null,null,null,[1,{2**62}]]',
        f'["r",{T},0,9,null,null,null,{{}}]',
        f'["a",{T},0,9,null,null,null,[0,{10**9},1,0,0,0]]',
        f'["a",{T},0,9,null,null,null,[0,1,1,1,1,0]]',
        f'["a",{T},0,9,null,null,null,[0,1]]',
        f'["s",{T},0,9,null,null,null,null,null]',
        "[" * 50_000,
        '{"schema": "goodput-journal/1"}',
        '"s"',
        "7",
        "null",
    ],
    ids=lambda line: ascii(line)[:50],
)
def test_a_line_that_is_none_is_left_out_and_counted(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(journal(*STEPS[:3], torn, *STEPS[3:], END))
    log = one(path)
    assert numbers(log) == [[1, 2, 3, 4, 5]] and notes(log) == ["torn-lines"]
    assert log.notes[0][1].startswith("1 line ") or "1 lines" in log.notes[0][1]


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_run_cut_anywhere_tells_what_was_whole(tmp_path: Path, cut: int) -> None:
    told = f'["r",{T},0,1,null,null,null,[0,0,0,1000000,5,70,2000000,'
    data = (journal() + told).encode()[:-cut] + bytes(1000)
    whole = [n for n in (1000000, 2000000) if f"{n},".encode() in data.rpartition(b"[0,")[2]]
    read = read_journal(tmp_path, data)
    assert read.torn == 0 or b"[0," not in data
    if b"[0," in data:
        (run,) = read.events
        assert run.kind is Kind.RUN
        assert [n for n in run.data if n >= 1_000_000] == whole


@pytest.mark.parametrize("more", ["5", "5,70", "5,70,-1", "-1"])
def test_a_run_that_breaks_off_in_a_wait_tells_the_others(tmp_path: Path, more: str) -> None:
    path = tmp_path / "a.jsonl"
    run = f'["r",{T},0,1,null,null,null,[0,10,60,1000000,20,50,2000000,{more}]]'
    path.write_text(journal(run, f'["r",{T + SECOND},0,4,null,null,null,[3,1,2,500]]', END))
    log = one(path)
    steps = log.lives[0].steps
    broken = [T + 3000005] if more.startswith("5,70") else []
    assert numbers(log) == [[1, 2, 3, 4, 5]] and notes(log) == []
    assert [start - T for start in steps.wait_starts] == [10, 1000020, *(n - T for n in broken), SECOND + 1]
    assert [end - start for start, end in zip(steps.wait_starts, steps.wait_ends, strict=True)][-1] == 2
    assert main(["report", str(path)]) == 0


# --- attempts, segments, processes -----------------------------------------------------------------


def write(folder: Path, name: str, *lines: str, **fields: Any) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text(journal(*lines, start=header(**{"attempt": name.partition(".")[0]} | fields)))
    return path


def test_segments_are_joined_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for segment in range(12):
        name = "x" if segment == 0 else f"x.{segment:03}"
        write(tmp_path, name, f'["s",{T + segment * SECOND},0,null]', segment=segment)
    write(tmp_path, "y", *STEPS, start=T + 100 * SECOND)
    log = one(tmp_path)
    assert [life.id for life in log.lives] == ["x", "y"]
    assert list(log.lives[0].steps.times) == [T + segment * SECOND for segment in range(12)]
    assert list(log.lives[0].steps.ordinals) == list(range(12))
    assert notes(log) == []
    assert [life.id for life in one(tmp_path / "x.004.jsonl").lives] == ["x"]


def test_an_attempt_may_be_called_a_number(tmp_path: Path) -> None:
    for name in ("9", "10"):
        write(tmp_path, name, *STEPS, start=T + int(name))
    assert [life.id for life in one(tmp_path).lives] == ["9", "10"]
    assert [life.id for life in one(tmp_path / "10.jsonl").lives] == ["10"]


def test_one_attempt_under_two_names_is_one(tmp_path: Path) -> None:
    write(tmp_path, "x", *STEPS[:3])
    write(tmp_path, "y", *STEPS[3:], attempt="x", segment=1)
    log = one(tmp_path)
    assert numbers(log) == [[1, 2, 3, 4, 5]] and notes(log) == []


def test_missing_segments_are_told(tmp_path: Path) -> None:
    write(tmp_path, "x.001", STEPS[0], segment=1)
    write(tmp_path, "x.004", STEPS[1], segment=4)
    log = one(tmp_path)
    assert numbers(log) == [[1, 2]] and log.notes[0][0] == "missing-segments" and "3 segments" in log.notes[0][1]


@pytest.mark.parametrize("segment", [-1, 10**30, None, "1", 1.5, [1]])
def test_a_segment_number_that_is_none_is_nothing(tmp_path: Path, segment: Any) -> None:
    assert notes(one(write(tmp_path, "x", *STEPS, segment=segment))) == []


def test_no_segment_of_another_rank_counts(tmp_path: Path) -> None:
    write(tmp_path, "x", *STEPS)
    write(tmp_path, "y", f'["rank",{T},0,1,null,null,null,2]', STEPS[0], segment=0)
    write(tmp_path, "y.001", *STEPS[1:], segment=1)
    assert [life.id for life in one(tmp_path).lives] == ["x"]


def test_word_of_what_was_lost_is_a_note(tmp_path: Path) -> None:
    log = one(write(tmp_path, "x", STEPS[0], '["lost",0,0,7]', STEPS[1], '["lost",0,0,5]', STEPS[2]))
    assert numbers(log) == [[1, 2, 3]] and log.notes[0][0] == "lost-lines" and "12 pieces" in log.notes[0][1]


def test_a_run_left_open_in_the_middle_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(journal(f'["r",{T},0,1,null,null,null,[0,0,0,1000000,', END))
    with pytest.raises(UnusableData):
        read(tmp_path / "b.jsonl")
    assert numbers(one(path)) == [[1, 2]] and notes(one(path)) == []
