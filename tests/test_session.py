"""The recording of a process: nothing before it trains, everything once it does, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from running import Runner

from goodput_plugins.core.events import Kind
from goodput_plugins.core.held import Held

RECORD = """
import atexit, os, sys, time
from goodput_plugins.core.events import Activity
from goodput_plugins.core import session
from goodput_plugins.core.session import current
recorder = current().recorder
"""
TRAIN = RECORD + "for number in range(3): recorder.step(number)\n"


def kinds(run: Runner) -> list[Kind]:
    return [event.kind for event in run.recorded()[1]]


# --- when it records -------------------------------------------------------------------------------


def test_a_process_that_never_trains_leaves_no_trace(run: Runner) -> None:
    run(RECORD + "with recorder.activity(Activity.DATA): pass\n")
    assert not run.runs.exists()


def test_what_was_told_before_training_comes_first(run: Runner) -> None:
    run(RECORD + "with recorder.activity(Activity.PREPARATION): pass\nrecorder.step(7)\n")
    header, events = run.recorded()
    assert [event.kind for event in events] == [Kind.START, Kind.BEGIN, Kind.FINISH, Kind.STEP, Kind.END]
    assert events[3].step == 7
    assert header["run"].startswith("train-") and header["start"] == events[0].time
    assert header["attempt"] == run.journals[0].stem and header["pid"] > 0 and header["script"].endswith("train.py")
    assert run.journals[0].parent.name == header["run"]


def test_device_initialisation_is_a_sign_of_training(run: Runner) -> None:
    run(RECORD + "recorder.begin(Activity.DEVICE_INIT); os.kill(os.getpid(), 9)\n", code=-signal.SIGKILL)
    assert kinds(run) == [Kind.START, Kind.BEGIN]


def test_a_device_check_that_ends_well_is_no_attempt(run: Runner) -> None:
    run(RECORD + "with recorder.activity(Activity.DEVICE_INIT): pass\n")
    assert not run.runs.exists()


def test_a_folder_that_was_there_stays(run: Runner) -> None:
    run.runs.mkdir()
    run(RECORD + "with recorder.activity(Activity.DEVICE_INIT): pass\n")
    assert list(run.runs.iterdir()) == []


def test_a_process_that_took_no_step_is_kept_if_it_saved_or_failed(run: Runner) -> None:
    run(RECORD + "recorder.training_begins()\nwith recorder.activity(Activity.SAVE, step=3): pass\n")
    assert run.ending() == "completed"
    run.journals[0].unlink()
    run(RECORD + "recorder.training_begins()\nraise ValueError\n", code=1)
    assert run.ending() == "exception:ValueError"


def test_no_line_is_lost_while_the_journal_is_being_opened(run: Runner) -> None:
    run(
        RECORD
        + """
import threading
sys.setswitchinterval(1e-6)
def work():
    for number in range(3000): recorder.committed(number)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
recorder.step(0)
for thread in threads: thread.join()
"""
    )
    assert kinds(run).count(Kind.COMMIT) == 4 * 3000


def test_what_is_kept_in_memory_is_bounded_and_leaves_nothing_open() -> None:
    held = Held()
    held.keep(b'["b",1,0,null,"data"]\n')
    for _ in range(250_000):
        held.keep(b'["x",1,0,null,"import",null,5]\n')
    for line in (b'["b",2,0,null,"data"]\n', b'["f",2,0,null,"data"]\n', b'["f",3,0,null,"data"]\n', b'["plugin",4]\n'):
        held.keep(line)
    lines: list[bytes] = []
    held.release(lines.append)
    assert len(lines) == 100_000 + 2
    assert [line[:4] for line in lines[-2:]] == [b'["f"', b'["pl']


# --- how it ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_line", "code", "ending"),
    [
        ("", 0, "completed"),
        ("sys.exit(3)", 3, "exception:SystemExit"),
        ("raise ValueError('no')", 1, "exception:ValueError"),
        ("import signal; signal.raise_signal(signal.SIGINT)", -signal.SIGINT, "user"),
        ("os._exit(4)", 4, None),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL, None),
        ("os.abort()", -signal.SIGABRT, None),
    ],
)
def test_the_end_is_recorded_and_the_exit_code_is_the_scripts(
    run: Runner, last_line: str, code: int, ending: str | None
) -> None:
    run(TRAIN + last_line, code=code)
    assert run.ending() == ending
    assert kinds(run).count(Kind.STEP) == 3


def test_an_exception_that_the_script_caught_ended_nothing(run: Runner) -> None:
    run(TRAIN + "try: raise ValueError\nexcept ValueError: pass\n")
    assert run.ending() == "completed"


def test_elapsed_is_from_the_process_start_to_the_scripts_last_exit_function(run: Runner) -> None:
    source = (
        "import atexit, time\n"
        "atexit.register(lambda: (time.sleep(0.3), print(time.time_ns())))\n"
        "time.sleep(0.2)\nimport numpy\n" + TRAIN
    )
    began = time.time_ns()
    done = run(source, GOODPUT_PLUGINS="auto")
    _, events = run.recorded()
    assert events[-1].kind is Kind.END
    assert 0 <= events[-1].time - int(done.stdout) < 250_000_000
    assert -10_000_000 <= events[0].time - began < 180_000_000  # the system counts in ticks of 10 ms


def test_a_closed_journal_has_no_unused_space(run: Runner) -> None:
    run(TRAIN)
    assert b"\0" not in run.journals[0].read_bytes()


def test_the_heart_beats_while_it_records(run: Runner) -> None:
    run("from goodput_plugins.core import heart\nheart.INTERVAL = 0.05\n" + TRAIN + "time.sleep(0.5)\n")
    assert 4 <= kinds(run).count(Kind.HEARTBEAT) <= 10


def test_plugins_are_stopped_before_the_end_is_written(run: Runner) -> None:
    done = run(
        TRAIN
        + "current().at_close += [lambda: recorder.committed(2), lambda: 1 / 0]\n"
        + "atexit.register(lambda: print('the script is done'))\n"
    )
    assert kinds(run)[-2:] == [Kind.COMMIT, Kind.END]
    assert "the script is done" in done.stdout and done.stderr.count("ZeroDivisionError") == 1


def test_a_plugin_that_hangs_holds_up_the_exit_for_two_seconds_at_most(run: Runner) -> None:
    began = time.monotonic()
    done = run(TRAIN + "current().at_close.append(lambda: time.sleep(60))\n")
    assert time.monotonic() - began < 10
    assert "did not stop within 2 s" in done.stderr and run.ending() == "completed"


# --- many processes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "child",
    [
        "recorder.step(9); sys.exit(5)",
        "recorder.step(9); os._exit(5)",
        "current().recorder.begin(Activity.DEVICE_INIT); raise SystemExit(5)",
    ],
)
def test_a_forked_child_writes_nothing_and_harms_nothing(run: Runner, child: str) -> None:
    run(
        TRAIN
        + f"""
pid = os.fork()
if pid == 0:
    {child}
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
recorder.step(3)
"""
    )
    _, events = run.recorded()
    assert [event.step for event in events if event.kind is Kind.STEP] == [0, 1, 2, 3]
    assert run.ending() == "completed"


def test_a_child_forked_before_training_does_not_begin_a_run(run: Runner) -> None:
    run(RECORD + "pid = os.fork()\nif pid == 0:\n    recorder.step(0); sys.exit()\nos.waitpid(pid, 0)\n")
    assert not run.runs.exists()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_write_nothing(run: Runner, method: str) -> None:
    run(
        f"""
import multiprocessing
from goodput_plugins.core.events import Activity
from goodput_plugins.core.session import current

def work(number):
    with current().recorder.activity(Activity.DATA): return number + 1

if __name__ == "__main__":
    current().recorder.step(0)
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert pool.map(work, range(4)) == [1, 2, 3, 4]
    current().recorder.step(1)
""",
        GOODPUT_PLUGINS="auto",
    )
    assert kinds(run) == [Kind.START, Kind.STEP, Kind.STEP, Kind.END]


def test_a_subprocess_that_does_not_train_writes_nothing(run: Runner) -> None:
    run(
        TRAIN + "import subprocess; subprocess.run([sys.executable, '-c', 'import numpy'], check=True)\n",
        GOODPUT_PLUGINS="auto",
    )
    assert run.ending() == "completed"


def test_only_the_primary_process_keeps_a_journal(run: Runner) -> None:
    run(TRAIN, RANK="1", WORLD_SIZE="2")
    assert not run.runs.exists()
    run(TRAIN, SLURM_PROCID="0", SLURM_NTASKS="2")
    _, events = run.recorded()
    assert [(event.step, event.data) for event in events if event.kind is Kind.RANK] == [(0, 2)]
    assert run.journals[0].stem.endswith("-p0")


def test_a_process_that_learns_that_it_is_not_the_primary_takes_its_journal_back(run: Runner) -> None:
    source = TRAIN + "recorder.rank(1, 2); recorder.step(3)\nprint(current().state.name)\n"
    assert run(source).stdout == "OVER\n"
    assert not run.runs.exists()
    assert run(source, GOODPUT_PROCESSES="all").stdout == "RECORDING\n"
    assert kinds(run).count(Kind.STEP) == 4 and run.ending() == "completed"


# --- when it cannot record -------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_one_warning(run: Runner) -> None:
    (run.folder / "file").touch()
    done = run(TRAIN + "print('trained')\n", GOODPUT_DIR=str(run.folder / "file"))
    assert done.stdout == "trained\n"
    assert done.stderr.count("goodput:") == 1 and len(done.stderr.splitlines()) == 1
    assert "no journal can be kept" in done.stderr and "GOODPUT_DIR" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_is_one_warning(run: Runner) -> None:
    run.runs.mkdir(mode=0o555)
    assert run(TRAIN).stderr.count("goodput:") == 1


def test_a_disk_without_room_is_one_warning(run: Runner) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    done = run(limit + RECORD + "for number in range(500): recorder.step(number)\nprint('trained')\n")
    assert done.stdout == "trained\n"
    assert done.stderr.count("goodput:") == 1 and "cannot be written" in done.stderr


def test_a_fault_of_ours_does_not_reach_training(run: Runner) -> None:
    broken = TRAIN.replace("recorder =", "session.rundir.run_name = None\nrecorder =")
    done = run(broken + "print('trained', recorder.steps)\n")
    assert done.stdout == "trained 3\n" and not run.runs.exists()
    assert done.stderr.count("Traceback") == 1 and "'session' failed" in done.stderr


def test_a_working_directory_that_is_gone_is_no_obstacle(run: Runner) -> None:
    gone = run.folder / "gone"
    run(f"import os; os.mkdir({str(gone)!r}); os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})\n" + TRAIN)
    assert run.ending() == "completed"


def test_the_folder_is_found_where_the_process_began(run: Runner) -> None:
    (run.folder / "elsewhere").mkdir()
    run(RECORD + "os.chdir('elsewhere')\nrecorder.step(0)\n", GOODPUT_DIR="mine")
    assert (run.folder / "mine").is_dir() and not list((run.folder / "elsewhere").iterdir())


# --- killed at any moment --------------------------------------------------------------------------


def test_what_was_recorded_before_a_kill_is_in_the_journal(run: Runner) -> None:
    source = RECORD + "number = 0\nwhile True:\n    recorder.step(number); print(number, flush=True); number += 1\n"
    process = subprocess.Popen(
        run.command(source), env=run.environ(), cwd=run.folder, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    timer = threading.Timer(0.5, process.kill)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if len(lines) == 1:
            timer.start()
    process.wait()
    seen = [int(line) for line in lines if line.endswith("\n")]
    steps = [event.step for event in run.recorded()[1] if event.kind is Kind.STEP]
    assert len(seen) > 100 and steps[: len(seen)] == seen


def test_the_same_command_joins_its_run(run: Runner) -> None:
    run(TRAIN + "os.kill(os.getpid(), 9)\n", code=-signal.SIGKILL)
    run(TRAIN + "os.kill(os.getpid(), 9)\n", code=-signal.SIGKILL)
    first, second = run.journals
    assert first.parent == second.parent


def test_a_module_run_with_m_has_its_own_name(run: Runner) -> None:
    package: Path = run.folder / "trainer"
    package.mkdir()
    (package / "__init__.py").write_text(RECORD)
    (package / "__main__.py").write_text("from trainer import recorder\nrecorder.step(0)\n")
    command = [run.command("")[0], "-m", "trainer"]
    subprocess.run(command, env=run.environ(), cwd=run.folder, check=True)
    assert run.recorded()[0]["run"].startswith("trainer-")
