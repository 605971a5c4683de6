"""Many processes: children stay silent, one process of a job is counted, two jobs of one name stay apart."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import Runner, reported

from goodput_plugins.core.events import Kind
from goodput_plugins.core.name_lock import NameLock

BEGIN = """
import os, signal, sys, threading, time
from goodput_plugins.core.events import Activity
from goodput_plugins.core.session import current
recorder = current().recorder
"""
FORKS = "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n"
"""Python 3.12 warns where a process with threads forks; the heartbeat is one, as those of JAX, PyTorch or BLAS are."""
TRAIN = BEGIN + "for number in range(3): recorder.step(number)\n"


def here(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def of_runs(run: Runner) -> dict[str, int]:
    """How many journals each run has."""
    return {folder.name: len(list(folder.glob("*.jsonl"))) for folder in sorted(run.runs.iterdir())}


def start(run: Runner, source: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    script = run.folder / f"train{time.monotonic_ns()}.py"
    script.write_text(source)
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env=run.environ(**variables),
        cwd=run.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return int(server.getsockname()[1])


# --- children --------------------------------------------------------------------------------------


def test_children_that_are_forked_in_the_middle_of_everything_are_silent_and_end(run: Runner) -> None:
    """Every lock of ours may be held by another thread at the fork; a child must not wait for it."""
    done = run(
        FORKS
        + BEGIN
        + """
sys.setswitchinterval(1e-5)
recorder.step(0)
stop = False
def work():
    while not stop:
        with recorder.activity(Activity.CUSTOM, name="x"): pass
        recorder.heartbeat()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for number in range(25):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        recorder.step(1000 + number)
        with recorder.activity(Activity.SAVE, step=number): pass
        current().recorder.heartbeat()
        sys.exit(number % 7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == number % 7
    recorder.step(number + 1)
stop = True
for thread in threads: thread.join()
"""
    )
    assert done.stderr == ""
    _, told = run.recorded()
    assert [event.step for event in told if event.kind is Kind.STEP] == list(range(26))
    assert not [event for event in told if event.activity and event.activity.value == "save"]
    assert told[-1].kind is Kind.END


@pytest.mark.parametrize(
    "way", ["os._exit(0)", "os.kill(os.getpid(), 9)", "sys.exit()", "os.execv('/bin/true', ['true'])"]
)
def test_a_child_does_not_let_go_of_what_its_parent_holds(run: Runner, way: str) -> None:
    source = TRAIN + f"pid = os.fork()\nif pid == 0: {way}\nos.waitpid(pid, 0)\nprint('up', flush=True)\ninput()\n"
    first = start(run, source, GOODPUT_RUN_NAME="r")
    assert first.stdout is not None and first.stdout.readline() == "up\n"
    run(TRAIN, GOODPUT_RUN_NAME="r")
    first.communicate("\n")
    assert of_runs(run) == {"r": 1, "r-2": 1}


def test_a_child_that_outlives_its_parent_holds_nothing(run: Runner) -> None:
    source = TRAIN + "if os.fork() == 0: time.sleep(30); os._exit(0)\nos.kill(os.getpid(), 9)\n"
    orphan = start(run, source, GOODPUT_RUN_NAME="r")
    assert orphan.wait() == -signal.SIGKILL
    run(TRAIN, GOODPUT_RUN_NAME="r")
    assert of_runs(run) == {"r": 2}


@pytest.mark.skipif(not here("torch"), reason="torch is not installed here")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_data_loader_are_silent(run: Runner, method: str) -> None:
    done = run(
        f"""
import torch
from goodput_plugins.core.events import Activity
from goodput_plugins.core.session import current
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, at):
        if at == 3:  # as if a transformation used the accelerator
            with current().recorder.activity(Activity.DEVICE_INIT): pass
        return torch.tensor([float(at)])
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1, multiprocessing_context={method!r})
    recorder = current().recorder
    recorder.step(0)
    assert torch.cat(list(loader)).flatten().tolist() == list(range(8))
    recorder.step(1)
""",
        GOODPUT_PLUGINS="auto",
        RANK="0",
    )
    _, told = run.recorded()
    assert [event.step for event in told if event.kind is Kind.STEP] == [0, 1]
    assert told[-1].name == "completed" and done.stderr == ""


# --- one job ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not here("torch"), reason="torch is not installed here")
@pytest.mark.parametrize(("processes", "journals"), [("primary", ["-p0"]), ("all", ["-p0", "-p1"])])
def test_torchrun_counts_its_first_process(run: Runner, processes: str, journals: list[str]) -> None:
    script = run.folder / "train.py"
    script.write_text("import os\n" + TRAIN + "print(os.environ['RANK'])\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    variables = run.environ(
        GOODPUT_PLUGINS="auto", GOODPUT_PROCESSES=processes, GOODPUT_RUN_NAME="r", OMP_NUM_THREADS="1"
    )
    done = subprocess.run(
        [*command, str(script)], env=variables, cwd=run.folder, capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.replace("\n", "")) == ["0", "1"]  # both may print at once
    assert sorted(path.stem[-3:] for path in run.journals) == journals
    assert "goodput:" not in done.stderr
    report = reported(run.runs / "r")
    assert len(report["attempts"]) == 1 and report["steps"]["count"] == 3


@pytest.mark.parametrize(
    ("variables", "keeps"),
    [
        ({"LOCAL_RANK": "0"}, True),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, False),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, True),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, False),
    ],
)
def test_a_launcher_that_tells_the_rank_its_own_way_is_understood(
    run: Runner, variables: dict[str, str], keeps: bool
) -> None:
    run(TRAIN, **variables)
    assert run.runs.exists() == keeps


JAX = """
import os, sys, time
number, port = int(sys.argv[1]), sys.argv[2]
if number == int(sys.argv[3]): time.sleep(1)
import jax
jax.distributed.initialize("localhost:" + port, 2, number)
import jax.numpy as jnp, optax
step = jax.jit(lambda p: optax.apply_updates(p, -p))
for _ in range(3): p = step(jnp.ones(3))
print(jax.process_index(), jax.process_count())
"""


@pytest.mark.skipif(not here("jax"), reason="jax is not installed here")
@pytest.mark.parametrize(("processes", "late"), [("primary", "0"), ("primary", "1"), ("all", "1")])
def test_two_processes_of_jax_that_are_told_nothing_are_one_job(run: Runner, processes: str, late: str) -> None:
    """Neither knows its rank when it begins to record; whichever comes first must not take the name."""
    port = str(free_port())
    variables = {
        "GOODPUT_PLUGINS": "auto",
        "GOODPUT_RUN_NAME": "r",
        "GOODPUT_PROCESSES": processes,
        "JAX_PLATFORMS": "cpu",
    }
    pair = [start(run, JAX, str(number), port, late, **variables) for number in range(2)]
    for number, process in enumerate(pair):
        out, err = process.communicate(timeout=100)
        assert (process.returncode, out) == (0, f"{number} 2\n"), err
        assert "goodput:" not in err
    assert of_runs(run) == {"r": 1 if processes == "primary" else 2}
    report = reported(run.runs / "r")
    assert len(report["attempts"]) == 1 and report["steps"]["count"] == 3
    assert report["attempts"][0]["exit"] == "completed"


# --- two jobs --------------------------------------------------------------------------------------

UNTIL_TOLD = TRAIN + "print('up', flush=True)\nwhile line := sys.stdin.readline(): recorder.step(int(line))\n"


def test_a_second_living_primary_is_recorded_under_another_name_and_says_so(run: Runner) -> None:
    jobs = []
    for _ in range(3):
        job = start(run, UNTIL_TOLD, GOODPUT_RUN_NAME="r")
        assert job.stdout is not None and job.stdout.readline() == "up\n"
        jobs.append(job)
    said = [job.communicate("3\n")[1] for job in jobs]
    assert said[0] == ""
    for err, name in zip(said[1:], ("r-2", "r-3"), strict=True):
        assert err.count("\n") == 1 and "'r'" in err and f"'{name}'" in err and "GOODPUT_RUN_NAME" in err
    assert of_runs(run) == {"r": 1, "r-2": 1, "r-3": 1}
    for name in ("r", "r-2", "r-3"):
        report = reported(run.runs / name)
        assert report["run"] == name and report["steps"]["count"] == 4 and report["status"] == "completed"


def test_nothing_that_was_told_before_is_lost_when_the_name_is_taken(run: Runner) -> None:
    first = start(run, UNTIL_TOLD, GOODPUT_RUN_NAME="r")
    assert first.stdout is not None and first.stdout.readline() == "up\n"
    run(
        BEGIN
        + "with recorder.activity(Activity.PREPARATION): pass\nwith recorder.activity(Activity.DEVICE_INIT): pass\n"
        + "recorder.plugin('x', '1', ('OTHER',))\nrecorder.step(5)\nrecorder.step(6)\n",
        GOODPUT_RUN_NAME="r",
    )
    first.communicate("")
    shutil.rmtree(run.runs / "r")
    header, told = run.recorded()
    assert header["run"] == "r-2"
    assert [event.kind for event in told] == [
        *(Kind.START, Kind.BEGIN, Kind.FINISH, Kind.BEGIN, Kind.FINISH, Kind.PLUGIN, Kind.STEP, Kind.STEP, Kind.END)
    ]
    assert [event.step for event in told if event.kind is Kind.STEP] == [5, 6]


def test_a_process_that_does_not_train_takes_no_name(run: Runner) -> None:
    """A worker that looks for devices while its parent trains, an evaluation beside the training."""
    first = start(run, UNTIL_TOLD, GOODPUT_RUN_NAME="r")
    assert first.stdout is not None and first.stdout.readline() == "up\n"
    done = run(
        BEGIN + "with recorder.activity(Activity.DEVICE_INIT): pass\nrecorder.rank(0, 1)\n", GOODPUT_RUN_NAME="r"
    )
    first.communicate("")
    assert done.stderr == "" and of_runs(run) == {"r": 1}


def test_a_helper_that_is_killed_while_its_parent_trains_leaves_nothing(run: Runner) -> None:
    first = start(run, UNTIL_TOLD, GOODPUT_RUN_NAME="r")
    assert first.stdout is not None and first.stdout.readline() == "up\n"
    run(BEGIN + "recorder.begin(Activity.DEVICE_INIT)\nos.kill(os.getpid(), 15)\n", code=-15, GOODPUT_RUN_NAME="r")
    first.communicate("")
    assert of_runs(run) == {"r": 1}


def test_a_second_job_that_fails_before_its_first_step_does_not_end_the_first(run: Runner) -> None:
    first = start(run, UNTIL_TOLD, GOODPUT_RUN_NAME="r")
    assert first.stdout is not None and first.stdout.readline() == "up\n"
    failing = "with recorder.activity(Activity.DEVICE_INIT): raise MemoryError('the device is in use')\n"
    run(BEGIN + failing, code=1, GOODPUT_RUN_NAME="r")
    first.communicate("")
    assert of_runs(run) == {"r": 1, "r-2": 1}
    assert reported(run.runs / "r")["disruptions"] == 0


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "os._exit(3)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_one_attempt_after_the_other_joins_the_run_however_the_first_ended(run: Runner, end: str) -> None:
    for attempt in range(3):
        done = run(TRAIN + end, code=None, GOODPUT_RUN_NAME="r")
        assert "another living process" not in done.stderr
        assert of_runs(run) == {"r": attempt + 1}


def test_a_process_that_begins_itself_again_joins_its_run(run: Runner) -> None:
    again = "if len(sys.argv) < 2: os.execv(sys.executable, [sys.executable, *sys.argv, 'again'])\n"
    run(TRAIN + again, GOODPUT_RUN_NAME="r")
    assert of_runs(run) == {"r": 2}


def test_jobs_in_folders_of_their_own_may_have_one_name(run: Runner) -> None:
    first = start(run, UNTIL_TOLD, GOODPUT_RUN_NAME="r")
    assert first.stdout is not None and first.stdout.readline() == "up\n"
    done = run(TRAIN, GOODPUT_RUN_NAME="r", GOODPUT_DIR=str(run.folder / "elsewhere"))
    first.communicate("")
    assert done.stderr == "" and of_runs(run) == {"r": 1}


def test_a_name_is_held_by_one_until_it_lets_go(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    first, second = NameLock(), NameLock()
    assert first.take(tmp_path)
    assert not second.take(tmp_path / "link")
    first.release()
    first.release()
    assert second.take(tmp_path)
    assert NameLock().take(tmp_path / "absent")  # it cannot tell, so it does not stand in the way
    second.release()
    assert list(tmp_path.iterdir()) == [tmp_path / "link"]


def test_a_folder_that_is_made_after_another_was_deleted_is_not_taken_for_that(tmp_path: Path) -> None:
    first = NameLock()
    (tmp_path / "r").mkdir()
    assert first.take(tmp_path / "r")
    (tmp_path / "r").rmdir()
    for number in range(50):  # file systems like to use again the inode that became free last
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not NameLock().is_taken(folder)
    opened = len(os.listdir("/proc/self/fd"))
    first.release()
    assert len(os.listdir("/proc/self/fd")) == opened - 2
