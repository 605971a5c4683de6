"""A report in two halves is the same report, and only a command of its own forks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from recording import START, Recording

from goodput_plugins.core.events import Activity

PREAMBLE = """
import os, sys
from goodput_plugins.cli import halves, main
halves.BIG = 0
has_idle_processor, halves.has_idle_processor = halves.has_idle_processor, lambda: True
real, forks = os.fork, []
def fork():
    forks.append(1)
    return real()
os.fork = fork
"""


def run(script: str, *arguments: str) -> tuple[str, str]:
    """What a script of its own says on stdout and stderr."""
    command = [sys.executable, "-c", PREAMBLE + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five attempts, and a file that is no journal."""
    folder = tmp_path_factory.mktemp("run")
    clock = None
    for attempt in range(5):
        recording = Recording(folder / f"attempt-{attempt}.jsonl")
        clock = recording.clock if clock is None else clock
        recording.recorder.now = clock  # type: ignore[method-assign]
        for number in range(8 * attempt, 8 * attempt + 10):
            with recording.recorder.activity(Activity.DATA):
                clock.advance(0.02)
            recording.recorder.device_done(recording.recorder.step(number), clock() + 90_000_000)
            clock.advance(0.1)
        with recording.recorder.activity(Activity.SAVE, step=number):
            clock.advance(0.5)
        recording.recorder.committed(number)
        recording.journal.close()
        clock.advance(30)
    (folder / "attempt-3b.jsonl").write_text("nothing\n")
    return folder


COMMAND = "code = main(); print(len(forks), file=sys.stderr); sys.exit(code)"


@pytest.mark.parametrize("as_of", [None, 5, 70])
def test_a_report_in_two_halves_is_that_of_one_process(folder: Path, as_of: float | None) -> None:
    query = [] if as_of is None else ["--as-of", str(START / 1e9 + as_of)]
    halved, forks = run(COMMAND, "report", str(folder), "--json", *query)
    whole, none = run("halves.BIG = 10**9\n" + COMMAND, "report", str(folder), "--json", *query)
    assert halved == whole and '"unusable-journal"' in whole
    assert int(forks) > 0 and int(none) == 0


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two attempts, some pieces long."""
    path = tmp_path_factory.mktemp("export") / "entries.json"
    told = [
        {"job_name": "big", key: 1_780_000_000 + 4_000 * attempt + at, **number}
        for attempt in range(2)
        for at in range(3_000)
        for key, number in (("job_start_time", {}), ("step_start_time", {"step_count": 2_000 * attempt + at}))
        if number or not at
    ]
    path.write_text(json.dumps([{"insertId": str(at), "jsonPayload": one} for at, one in enumerate(told)], indent=2))
    return path


def test_an_export_in_two_halves_is_that_of_one_process(export: Path) -> None:
    halved, forks = run(COMMAND, "report", str(export), "--json")
    whole, none = run("halves.BIG = 10**9\n" + COMMAND, "report", str(export), "--json")
    assert halved == whole and '"wasted-progress"' in whole
    assert int(forks) > 0 and int(none) == 0


@pytest.mark.parametrize(
    "fails",
    [
        "halves.pickle.dumps = lambda *rest: os._exit(3)",
        "halves.pickle.dumps = lambda *rest: b'nonsense'",
        "halves.pickle.dumps = lambda *rest: 1 / 0",
    ],
    ids=["dies", "says nonsense", "fails"],
)
def test_whatever_becomes_of_the_other_process_the_report_is_made(folder: Path, fails: str) -> None:
    whole, _ = run("halves.BIG = 10**9\n" + COMMAND, "report", str(folder), "--json")
    assert run(fails + "\n" + COMMAND, "report", str(folder), "--json")[0] == whole


def test_where_no_process_can_be_made_the_report_is_made(folder: Path) -> None:
    whole, _ = run("halves.BIG = 10**9\n" + COMMAND, "report", str(folder), "--json")
    refused = "def fork(): raise BlockingIOError('no more processes')\nos.fork = fork\n"
    assert run(refused + COMMAND, "report", str(folder), "--json")[0] == whole


def test_a_process_that_only_calls_the_command_is_never_forked(folder: Path) -> None:
    _, forks = run("main(sys.argv[1:]); print(len(forks), file=sys.stderr)", "report", str(folder), "--json")
    assert int(forks) == 0


def test_a_process_with_threads_is_never_forked(folder: Path) -> None:
    threads = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    _, forks = run(threads + COMMAND, "report", str(folder), "--json")
    assert int(forks) == 0


@pytest.mark.parametrize(
    "machine", ["os.sched_getaffinity = lambda process: set()", "del os.sched_getaffinity", "Path.read_text = str"]
)
def test_where_no_processor_is_idle_or_nothing_tells_nothing_is_forked(folder: Path, machine: str) -> None:
    script = f"from pathlib import Path\nhalves.has_idle_processor = has_idle_processor\n{machine}\n"
    _, forks = run(script + COMMAND, "report", str(folder), "--json")
    assert int(forks) == 0


def test_an_idle_processor_is_known() -> None:
    told, _ = run("os.sched_getaffinity = lambda process: range(10**6)\nprint(has_idle_processor())")
    assert told == "True\n"


def test_results_come_in_order_and_no_process_is_left() -> None:
    told, _ = run(
        "print([halves.each(lambda n: n * n, range(count)) for count in range(5)])\n"
        "try: halves.each(lambda n: 1 // n, [1, 2, 0, 3])\n"
        "except ZeroDivisionError: print('told')\n"
        "try: os.wait()\n"
        "except ChildProcessError: print('none')"
    )
    assert told.split("\n") == [str([[n * n for n in range(count)] for count in range(5)]), "told", "none", ""]
