"""A run whose process was killed is lost at once for a reader beside it, for any other one after 30 s of silence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Runner, reported

from goodput_plugins.core.calculator import calculate
from goodput_plugins.core.journal_reading import first_line
from goodput_plugins.core.live import Live
from goodput_plugins.core.live.journals import Journals
from goodput_plugins.core.processes import identity, is_gone, told_of
from goodput_plugins.core.reading import read

TRAINS = """
import time
from goodput_plugins.core.session import current
for number in range(10**6):
    current().recorder.step(number)
    if number == 2: print("up", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def training(run: Runner) -> Iterator[subprocess.Popen[str]]:
    """A process that takes steps as the run ``r`` until it is killed."""
    environ = run.environ(GOODPUT_RUN_NAME="r")
    with subprocess.Popen(
        run.command(TRAINS), env=environ, cwd=run.folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        yield process
        process.kill()


def header(folder: Path) -> dict[str, Any]:
    (journal,) = folder.glob("*.jsonl")
    found = first_line(journal.read_bytes())
    assert found is not None
    return dict(found)


def test_a_killed_run_is_lost_at_once_also_while_nobody_has_waited_for_the_process(
    run: Runner, training: subprocess.Popen[str]
) -> None:
    folder = run.runs / "r"
    (journal,) = folder.glob("*.jsonl")
    live = Live(Journals(folder))
    assert reported(folder)["status"] == reported(journal)["status"] == live.report().status == "running"

    training.kill()
    while told_of(training.pid).state != b"Z":
        time.sleep(0.01)
    report = reported(folder)
    assert (report["status"], report["attempts"][-1]["exit"]) == ("lost", "lost")
    assert report["down_since"] == report["end_time"]
    assert reported(journal) == report
    assert live.report().to_json() == Live(Journals(folder)).report().to_json() == report

    training.wait()
    assert reported(folder) == report
    (log,) = read(folder)
    assert calculate(log, now=time.time_ns() + 10**12).to_json() == report  # the same that time would have told
    assert calculate(log, now=time.time_ns(), as_of=log.lives[0].steps.times[-1]).status == "running"  # it was, then


def test_a_process_that_stands_still_is_there(run: Runner, training: subprocess.Popen[str]) -> None:
    training.send_signal(signal.SIGSTOP)
    assert reported(run.runs / "r")["status"] == "running"


def test_a_number_that_another_process_has_by_now_is_that_of_one_that_is_gone() -> None:
    system, began = identity() or ("", 0)
    assert not is_gone({"pid": os.getpid(), "process": [system, began]})
    assert is_gone({"pid": os.getpid(), "process": [system, int(str(began)) - 1]})
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_gone({"pid": ended.pid, "process": [system, began]})


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"pid": 2**31 - 1},
        {"pid": 2**31 - 1, "process": None},
        {"pid": 2**31 - 1, "process": ["another boot pid:[1]", 1]},
        {"pid": 2**31 - 1, "process": [[], {}]},
        {"pid": 2**31 - 1, "process": "ab"},
        {"pid": 2**80, "process": identity()},
        {"pid": -1, "process": identity()},
        {"pid": 0, "process": identity()},
        {"pid": True, "process": identity()},
        {"pid": "1", "process": identity()},
        {"pid": 1, "process": [(identity() or [""])[0], told_of(1).began]},
    ],
)
def test_of_a_process_of_another_system_nothing_is_said(told: dict[str, Any]) -> None:
    assert not is_gone(told)


def test_where_proc_tells_nothing_only_silence_does(
    run: Runner, training: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = header(run.runs / "r")
    training.kill()
    training.wait()
    assert is_gone(told)
    monkeypatch.setattr(os, "readlink", lambda path: "1")
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: 2**31 - 2)  # what is known of this process is known by its number
        assert identity() is None and not is_gone(told)
