"""``goodput report`` as a person or a script calls it: what it finds, what it says, how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goodput_plugins.cli import main
from goodput_plugins.core import rundir
from goodput_plugins.core.events import SCHEMA, Event, Kind, encode

CASES = Path(__file__).parent / "cases"
CLEAN = CASES / "clean.json"
SECOND = 1_000_000_000
COMMAND = [sys.executable, "-m", "goodput_plugins", "report"]


def journal(run: str, *, start: int, steps: int = 30) -> bytes:
    """A journal of ``steps`` steps of a second, five seconds after the start, that completed."""
    times = [start + (5 + n) * SECOND for n in range(steps + 1)]
    events = [
        Event(Kind.START, start),
        *(Event(Kind.STEP, at, 0, n) for n, at in enumerate(times[:-1])),
        Event(Kind.END, times[-1], name="completed"),
    ]
    header = {"schema": SCHEMA, "run": run, "attempt": f"{run}-{start}", "start": start}
    return json.dumps(header).encode() + b"\n" + b"".join(map(encode, events))


def record(below: Path, run: str, *, ago: int) -> Path:
    """A run below a folder, begun ``ago`` seconds ago."""
    start = time.time_ns() - ago * SECOND
    folder = rundir.run_dir(run, below)
    folder.mkdir(parents=True)
    (folder / rundir.journal_name(start)).write_bytes(journal(run, start=start))
    return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty ``$GOODPUT_DIR``."""
    below = tmp_path / "runs"
    below.mkdir()
    monkeypatch.setenv("GOODPUT_DIR", str(below))
    monkeypatch.delenv("GOODPUT_DEBUG", raising=False)
    yield below


def report(*words: str) -> int:
    return main(["report", *words])


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert report(*words, "--json") == 0
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return parsed


def test_without_a_word_the_newest_run_is_reported(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(runs, "older", ago=500)
    record(runs, "newer", ago=100)
    assert as_json(capsys)["run"] == "newer"


def test_a_run_is_found_by_its_name_directory_or_journal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record(runs, "llama/7b run", ago=500)
    record(runs, "newer", ago=100)
    (file,) = folder.iterdir()
    for target in ("llama/7b run", str(folder), str(file)):
        assert as_json(capsys, target)["run"] == "llama/7b run"


def test_exported_entries_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    got, truth = as_json(capsys, str(CLEAN)), json.loads((CASES / "clean.answer.json").read_text())
    assert got["elapsed_seconds"] == pytest.approx(truth["elapsed_seconds"], rel=0.001)


def test_the_screen_says_what_the_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(capsys, str(CLEAN))
    assert report(str(CLEAN)) == 0
    screen = capsys.readouterr().out
    assert f"{data['goodput_percent']:.1f} % goodput" in screen
    assert f"{data['steps']['ideal_seconds']:.2f} s" in screen
    assert all(finding["id"] in screen for finding in data["findings"])


def test_times_select_a_window(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(runs, "r", ago=100)
    assert as_json(capsys, "--from", "-90s", "--to", "-80s")["elapsed_seconds"] == pytest.approx(10)
    up_to, since = as_json(capsys, "--to", "-80s"), as_json(capsys, "--from", "-80s")
    assert up_to["elapsed_seconds"] == pytest.approx(20, abs=2)
    assert up_to["elapsed_seconds"] + since["elapsed_seconds"] == pytest.approx(35, abs=2)
    assert as_json(capsys, "--as-of", "-80s")["end_time"] < as_json(capsys)["end_time"]
    assert since["end_time"] == as_json(capsys)["end_time"]  # the run was done before now
    before = as_json(capsys, "--to", "2020-01-01")
    assert before["elapsed_seconds"] == 0 and before["start_time"] == before["end_time"] == "2020-01-01T00:00:00Z"


def test_a_configured_ideal_is_the_ideal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(runs, "r", ago=100)
    assert as_json(capsys, "--ideal", "0.75")["steps"]["ideal_seconds"] == 0.75


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Entries of two jobs in one file."""
    path = tmp_path / "both.json"
    both = [entry for name in ("clean", "teardown") for entry in json.loads((CASES / f"{name}.json").read_text())]
    path.write_text(json.dumps(both))
    return path


def test_several_jobs_are_listed_and_one_is_chosen(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(str(export)) == 0
    listed = capsys.readouterr()
    assert len(listed.out.splitlines()) == 2
    assert "clean" in listed.out and "teardown" in listed.out and "--run NAME" in listed.err
    assert as_json(capsys, str(export), "--run", "teardown")["run"] == "teardown"
    assert report(str(export), "--run", "other") == 1
    assert "holds no run 'other'; there are: clean, teardown." in capsys.readouterr().err


def test_json_of_several_jobs_is_refused_as_usage(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(str(export), "--json") == 2
    out = capsys.readouterr()
    assert out.out == "" and "holds 2 jobs (clean, teardown); choose one with --run NAME" in out.err


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("goodput: ") and out.err.count("\n") == 1
    assert "Traceback" not in out.err
    return out.err


def test_a_missing_path_is_told(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("no/such/path.json") == 1
    assert "no/such/path.json does not exist" in one_sentence(capsys)


def test_a_misspelt_run_is_told_with_those_that_are_close(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(runs, "digits-3f2a", ago=100)
    assert report("digit-3f2a") == 1
    assert f"no run digit-3f2a below {runs} (there is digits-3f2a)" in one_sentence(capsys)


@pytest.mark.parametrize("words", [["report", "--json"], ["report"], ["doctor", "--json"], ["doctor"], ["export"]])
def test_every_command_tells_of_a_run_that_is_not_there_in_one_sentence(
    words: list[str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "no-such-run"]) == 1
    assert "no run no-such-run below" in one_sentence(capsys)


def test_an_empty_directory_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(str(tmp_path)) == 1
    assert str(tmp_path) in one_sentence(capsys)


def test_no_run_yet_is_told_with_what_to_do(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert report() == 1
    assert f"{runs} holds no run; start training with GOODPUT_PLUGINS=auto" in one_sentence(capsys)
    monkeypatch.setenv("GOODPUT_DIR", str(runs / "nowhere"))
    assert report() == 1
    assert f"{runs / 'nowhere'} does not exist; start training" in one_sentence(capsys)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\x01\xff\xfe" * 100, b"[]", b"null", b'{"schema": "goodput-journal/99"}\n', b"hello\n", b"[" * 100_000],
    ids=["empty", "binary", "no-entries", "null", "future", "prose", "deep"],
)
def test_data_that_cannot_be_used_is_one_sentence(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    assert report(str(path)) == 1
    assert "fault of goodput-plugins" not in one_sentence(capsys)


def test_a_generation_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(str(CLEAN), "--generation", "7") == 1
    assert "7" in one_sentence(capsys)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", "2026-11-29T09:00", "--to", "2026-11-29T08:00"], "--from lies after --to"),
        (["--from", "2099-01-01"], "--from lies in the future"),
        (["--from", "-1h", "--as-of", "-2h"], "--from lies after --as-of"),
        (["--from", "noon"], "'noon' is no time"),
        (["--from", "-1x"], "'-1x' is no time"),
        (["--generation", "-1"], "'-1' is no whole number"),
        (["--ideal", "0"], "'0' is no number of seconds above 0"),
        (["--ideal", "nan"], "'nan' is no number of seconds above 0"),
        (["--frmo", "1"], "unrecognized arguments: --frmo"),
        (["a", "b"], "unrecognized arguments: b"),
        ([""], "RUN_OR_PATH: is empty; is a variable unset?"),
    ],
)
def test_a_wrong_usage_is_told_and_ends_with_2(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(*words) == 2
    out = capsys.readouterr()
    assert out.out == "" and told in out.err


def test_no_command_is_a_wrong_usage_and_help_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["--help"]) == main(["report", "--help"]) == 0
    assert "RUN_OR_PATH" in capsys.readouterr().out


def test_a_fault_of_ours_is_one_sentence_and_a_hint(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("goodput_plugins.cli.report.calculate", fails)
    record(runs, "r", ago=100)
    assert report() == 1
    told = one_sentence(capsys)
    assert "ZeroDivisionError: planted" in told and "GOODPUT_DEBUG=1" in told
    monkeypatch.setenv("GOODPUT_DEBUG", "1")
    assert report() == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_pipe_gets_plain_text(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, str(CLEAN)], capture_output=True, check=True, env=_environment())
    assert b"\x1b" not in done.stdout and "█".encode() in done.stdout and done.stderr == b""


def test_a_pipe_that_cannot_take_blocks_gets_ascii() -> None:
    done = subprocess.run(
        [*COMMAND, str(CLEAN)], capture_output=True, check=True, env=_environment(PYTHONIOENCODING="ascii")
    )
    assert done.stdout.isascii() and b"###" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    with subprocess.Popen(
        [*COMMAND, str(CLEAN)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    fifo = tmp_path / "slow.json"
    os.mkfifo(fifo)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*COMMAND, str(fifo)], env=_environment(), **pipes) as process, open(fifo, "wb"):
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == (b"", b"", 130)


def test_long_work_shows_on_the_terminal_of_stderr_and_only_there(tmp_path: Path) -> None:
    fifo = tmp_path / "slow.json"
    os.mkfifo(fifo)
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, str(fifo)], stdout=subprocess.PIPE, stderr=theirs, env=_environment()) as process:
        os.close(theirs)
        with open(fifo, "wb") as slow:
            shown = b""
            while b"reading" not in shown:
                shown += os.read(ours, 1000)
            slow.write(CLEAN.read_bytes())
        out, _ = process.communicate(timeout=30)
    os.close(ours)
    assert b"goodput" in out and b"\x1b" not in out


def test_json_needs_no_rich() -> None:
    code = (
        "import sys; from goodput_plugins.cli import main; "
        f"main(['report', {str(CLEAN)!r}, '--json']); sys.exit('rich' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=_environment())


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONIOENCODING": "utf-8", **more}


@pytest.mark.parametrize("columns", ["0", "1", "15"])
def test_a_terminal_that_says_it_has_no_columns_gets_a_report(columns: str, tmp_path: Path) -> None:
    export = Path(__file__).parent / "cases" / "rollback.json"
    done = subprocess.run(
        [sys.executable, "-m", "goodput_plugins", "report", str(export)],
        env={**os.environ, "COLUMNS": columns},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "goodput" in done.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_told_in_a_sentence(unbuffered: str, tmp_path: Path) -> None:
    export = Path(__file__).parent / "cases" / "rollback.json"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "goodput_plugins", "report", str(export)],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr and "Traceback" not in done.stderr
