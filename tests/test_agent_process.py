"""The agent as a process: nothing lost and nothing twice, whoever is killed; the script never notices it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.logging_v2")

import grpc
from cloud import Cloud, fails
from followed import Followed
from running import Runner, reported

from goodput_plugins.core.foreign import read_entries

RUN = "r"
TRAIN = """
import multiprocessing, os, signal, subprocess, sys, time
from goodput_plugins.core.session import current
recorder = current().recorder
def train(steps, first=0, each=0.02):
    for number in range(first, first + steps):
        recorder.step(number)
        time.sleep(each)
"""


class Job(Followed):
    """A job that is recorded under one name and sent to one log.

    Attributes:
        run: runs its scripts.
        cloud: where they are sent to.
    """

    def __init__(self, folder: Path, cloud: Cloud) -> None:
        folder.mkdir(exist_ok=True)
        self.run = Runner(folder)
        self.cloud = cloud
        self.variables = {**cloud.environ, "GOODPUT_RUN_NAME": RUN}

    @property
    def folder(self) -> Path:
        return self.run.runs / RUN

    def __call__(self, source: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.run(TRAIN + source, **{**self.variables, **more})

    def start(self, source: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.run.command(TRAIN + source),
            env=self.run.environ(**{**self.variables, **more}),
            cwd=self.run.folder,
            stdout=subprocess.PIPE,
            text=True,
        )

    def kill_agent(self) -> None:
        os.kill(self.status["pid"], signal.SIGKILL)

    def steps_sent(self) -> list[int]:
        """The numbers of all steps that a reader of the log sees."""
        logs = read_entries(self.cloud.entries(RUN))
        return [number for log in logs for life in log.lives for number in life.steps.numbers]

    def report_of_log(self) -> dict[str, Any]:
        exported = self.run.folder / "entries.json"
        exported.write_text(json.dumps(self.cloud.entries(RUN)))
        return reported(exported)

    def end(self) -> None:
        if self.status.get("state") in ("shipping", "failing", "waiting"):
            with suppress(ProcessLookupError):
                self.kill_agent()


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to be so"
        time.sleep(0.1)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as server:
        yield server


@pytest.fixture
def job(tmp_path: Path, cloud: Cloud) -> Iterator[Job]:
    made = Job(tmp_path / "machine", cloud)
    yield made
    made.end()


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two reports agree; the findings tell of the files that each was read from."""
    return {**one, "findings": ()} == {**other, "findings": ()}


# --- the script never notices ------------------------------------------------------------------------


def test_a_script_ends_with_everything_sent_and_its_pipe_closed(job: Job) -> None:
    command = " ".join(job.run.command(TRAIN + "print('hello'); train(100)"))
    variables = {**job.variables, "GOODPUT_PLUGINS": "jax"}
    begun = time.monotonic()
    done = subprocess.run(
        f"{command} 3>&1 | cat",
        shell=True,
        env=job.run.environ(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "hello\n" and done.stderr == ""
    assert time.monotonic() - begun < 40  # the agent lives on; cat does not wait for it
    assert job.steps_sent() == list(range(100))
    pid = job.status["pid"]
    environ = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    assert not [one for one in environ if one.startswith("GOODPUT_PLUGINS")]
    open_files = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    assert not [one for one in open_files if one.startswith("pipe:")]
    assert str(job.folder / "agent.log") in open_files
    assert os.getsid(pid) != os.getsid(0)
    assert RUN in Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    assert same(job.report_of_log(), reported(job.folder))


def test_a_script_that_makes_processes_and_waits_for_any(job: Job) -> None:
    """A thousand children, forks, ``os.wait``: none of them meets the agent, and nothing of gRPC is in the script."""
    done = job(
        """
train(5)
for _ in range(1000):
    subprocess.run(["/bin/true"], check=True)
workers = multiprocessing.get_context("fork").Pool(2)  # as a DataLoader's
assert workers.map(abs, range(10)) == list(range(10))
workers.close()
workers.join()
pids = [os.fork() for _ in range(3)]
if 0 in pids:
    os._exit(0)
train(5, 5)
ended = []
while True:
    try:
        ended.append(os.wait()[0])
    except ChildProcessError:
        break
assert sorted(ended) == sorted(pids), (ended, pids)
foreign = [name for name in sys.modules if name.split(".")[0] in ("grpc", "google") or "goodput_plugins.agent" in name]
assert not foreign, foreign
print("well")
"""
    )
    assert done.stdout == "well\n" and done.stderr == ""
    assert job.steps_sent() == list(range(10))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed here")
def test_a_data_loader_forks_its_workers_beside_the_agent(job: Job) -> None:
    done = job(
        """
import torch.utils.data
train(3)
numbers = list(range(40))
for _ in range(2):
    loader = torch.utils.data.DataLoader(numbers, batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert sum(int(batch.sum()) for batch in loader) == sum(numbers)
train(3, 3)
print("well")
"""
    )
    assert done.stdout == "well\n" and "goodput" not in done.stderr
    assert job.steps_sent() == list(range(6))


def test_an_exit_waits_for_a_dead_endpoint_no_longer_than_it_was_told(job: Job) -> None:
    job.cloud.go_down()
    begun = time.monotonic()
    done = job("train(5); begun = time.monotonic()", GOODPUT_FLUSH_TIMEOUT="1")
    assert done.stderr == "" and time.monotonic() - begun < 20
    until(lambda: job.status.get("state") == "failing")
    assert "cannot send now" in job.log and job.status["unsent"] > 0
    spent = cpu_of(job.status["pid"])
    time.sleep(5)
    assert cpu_of(job.status["pid"]) - spent < 0.5  # a busy loop would have taken all of it
    job.cloud.come_back()
    until(lambda: len(job.steps_sent()) == 5, 100)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_agent_that_may_not_write_does_not_hold_up_the_exit(job: Job) -> None:
    job.cloud.always = fails(grpc.StatusCode.PERMISSION_DENIED, "logging.logEntries.create is missing")
    job.variables["GOODPUT_FLUSH_TIMEOUT"] = "60"
    begun = time.monotonic()
    job("train(150)")
    assert time.monotonic() - begun < 40
    assert "logging.logEntries.create is missing" in job.log


@pytest.mark.parametrize("broken", ["a shell", "an interpreter"])
def test_an_agent_that_cannot_be_started_is_told_once(job: Job, broken: str) -> None:
    attribute = "shipper._SHELL" if broken == "a shell" else "shipper.sys.executable"
    value = "/nowhere/sh" if broken == "a shell" else ""
    done = job(f"from goodput_plugins.core import shipper\n{attribute} = {value!r}\ntrain(5)")
    assert done.stderr.count("the agent that sends what is recorded could not be started") == 1
    assert done.stderr.count("\n") == 1
    assert reported(job.folder)["steps"]["count"] == 5


def test_a_fault_of_ours_while_starting_it_leaves_training_alone(job: Job) -> None:
    done = job(
        "from goodput_plugins.core.shipper import Shipper\n"
        "def fail(*args): raise ZeroDivisionError\n"
        "Shipper.start = fail\ntrain(5); print('trained')"
    )
    assert done.stdout == "trained\n" and done.stderr.count("the plugin 'agent' failed") == 1
    assert reported(job.folder)["steps"]["count"] == 5


@pytest.mark.parametrize("source", ["", "from goodput_plugins import goodput as g; g.GoodputRecorder('r', 'l', 1)\n"])
def test_without_a_project_or_credentials_the_agent_says_so_and_goes(job: Job, source: str) -> None:
    """The environment asks for the log, or a recorder of the script's does."""
    del job.variables["GOODPUT_PROJECT"], job.variables["GOODPUT_LOGGING_ENDPOINT"]
    if source:
        del job.variables["GOODPUT_EXPORTERS"]
    key = job.run.folder / "key.json"
    key.write_text("{}")
    done = job(source + "train(100)", GOOGLE_APPLICATION_CREDENTIALS=str(key), GOOGLE_CLOUD_PROJECT="")
    assert done.stderr == ""
    until(lambda: job.status.get("state") == "unavailable")
    assert "set GOODPUT_PROJECT" in job.log


def test_without_the_library_the_script_is_told_what_to_install(job: Job) -> None:
    done = job("from goodput_plugins.core import shipper\nshipper._is_installed = lambda package: False\ntrain(5)")
    assert done.stderr.count("pip install 'goodput-plugins[gcp]'") == 1
    assert not (job.folder / "agent.log").exists()


def test_googles_payloads_are_sent_an_entry_for_each_event(job: Job) -> None:
    training = job.start("train(400); recorder.flush()", GOODPUT_LOG_FORMAT="ml-goodput")
    until(lambda: job.status.get("state") == "shipping")
    job.kill_agent()
    job.variables["GOODPUT_LOG_FORMAT"] = "ml-goodput"
    by_hand(job)
    assert training.wait(60) == 0
    until(lambda: len([one for one in job.cloud.entries(RUN) if "step_count" in one["jsonPayload"]]) == 400)
    sent, local = job.report_of_log(), reported(job.folder)
    assert sent["steps"]["count"] == local["steps"]["count"] == 400
    assert abs(sent["elapsed_seconds"] - local["elapsed_seconds"]) < 0.1
    assert abs(sent["goodput_seconds"] - local["goodput_seconds"]) < 1


# --- nothing lost, nothing twice ---------------------------------------------------------------------


def test_a_killed_trainer_and_its_restart_are_sent_whole(job: Job) -> None:
    job("train(60); os.kill(os.getpid(), 9)", code=-9)
    job("train(60, 40)")
    assert sorted(job.steps_sent()) == sorted([*range(60), *range(40, 100)])
    assert same(job.report_of_log(), reported(job.folder))


def test_agents_killed_again_and_again_lose_nothing_and_repeat_nothing(job: Job) -> None:
    """Each next one has stood by; the last one sends the rest, and goes."""
    training = job.start("train(700)")
    until(lambda: job.status.get("state") == "shipping")
    for _ in range(2):
        pid, following = job.status["pid"], by_hand(job)
        time.sleep(2)
        assert job.status["pid"] == pid and following.poll() is None
        job.kill_agent()
        until(lambda following=following: job.status["pid"] == following.pid)
    assert training.wait(60) == 0
    assert job.steps_sent() == list(range(700))
    assert same(job.report_of_log(), reported(job.folder))
    assert following.wait(60) == 0 and job.status["state"] == "done"


def by_hand(job: Job) -> subprocess.Popen[bytes]:
    """``goodput agent RUN``."""
    with (job.run.folder / "by-hand.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "goodput_plugins", "agent", RUN],
            env=job.run.environ(**job.variables),
            stdout=log,
            stderr=log,
        )


def test_both_killed_the_next_start_sends_what_was_left(job: Job) -> None:
    training = job.start("train(10_000)")
    until(lambda: job.status.get("state") == "shipping")
    job.kill_agent()
    time.sleep(1)
    training.kill()
    training.wait()
    job("train(20, 10)")
    (first, _) = read_entries(job.cloud.entries(RUN))[0].lives
    assert list(first.steps.numbers) == list(range(len(first.steps.numbers))) and len(first.steps.numbers) > 50
    assert same(job.report_of_log(), reported(job.folder))


def test_a_trainer_that_is_pid_1_of_its_namespace_takes_its_agent_along(job: Job) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody make a PID namespace")
    command = job.run.command(TRAIN + "assert os.getpid() == 1; train(100)")
    done = subprocess.run(
        [*unshare, *command],
        env=job.run.environ(**job.variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == ""
    assert job.steps_sent() == list(range(100))


# --- other machines ----------------------------------------------------------------------------------


def test_three_attempts_on_three_machines_are_one_report(tmp_path: Path, cloud: Cloud) -> None:
    machines = [Job(tmp_path / f"machine-{number}", cloud) for number in range(3)]
    try:
        machines[0]("train(30); os.kill(os.getpid(), 9)", code=-9)
        until(lambda: len(machines[0].steps_sent()) == 30)
        machines[1]("train(30, 20); raise ValueError", code=1)
        training = machines[2].start("train(30, 40); time.sleep(8); train(30, 70)")
        assert training.wait(60) == 0
        here = tmp_path / "one-disk" / RUN
        here.mkdir(parents=True)
        for machine in machines:
            for path in machine.folder.glob("*.jsonl"):
                shutil.copy(path, here)
        told = reported(here)
        assert [attempt["exit"] for attempt in told["attempts"]] == ["lost", "exception:ValueError", "completed"]
        assert same(machines[2].report_of_log(), told)
        until(lambda: "attempts that other machines recorded were fetched" in machines[2].log)
        assert same(reported(machines[2].folder), told)  # the last machine's own disk knows it all, too
        assert machines[2].report_of_log() == machines[0].report_of_log()
    finally:
        for machine in machines:
            machine.end()


# --- what is said at the start -----------------------------------------------------------------------


def test_a_recorder_of_the_script_asks_for_the_log_that_it_names(job: Job) -> None:
    del job.variables["GOODPUT_EXPORTERS"], job.variables["GOODPUT_RUN_NAME"]
    done = job(
        "from goodput_plugins import measurement\n"
        "recorder = measurement.GoodputRecorder('r', 'a_log', logging_enabled=True)\n"
        "for number in range(5): recorder.record_step_start_time(number)",
        GOODPUT_FLUSH_TIMEOUT="60",
    )
    assert done.stderr == ""
    assert {entry["logName"] for entry in job.cloud.entries(RUN)} == {"projects/a-project/logs/a_log"}


def test_an_agent_that_a_monitor_started_sends_the_log_that_a_recorder_asks_for_later(job: Job) -> None:
    del job.variables["GOODPUT_EXPORTERS"], job.variables["GOODPUT_RUN_NAME"]
    done = job(
        "from goodput_plugins import measurement, monitoring\n"
        "monitor = monitoring.GoodputMonitor('r', 'a_log', '', 30, monitoring_enabled=True)\n"
        "monitor.start_goodput_uploader()\n"
        "train(5)\n"
        f"while not os.path.exists({str(job.folder / 'agent.json')!r}): time.sleep(0.1)\n"
        "recorder = measurement.GoodputRecorder('r', 'a_log', logging_enabled=True)\n"
        "for number in range(5, 10): recorder.record_step_start_time(number)",
        GOODPUT_FLUSH_TIMEOUT="60",
    )
    assert done.stderr == "" and job.log.count("the script asks for cloud-logging") == 1
    assert {entry["logName"] for entry in job.cloud.entries(RUN)} == {"projects/a-project/logs/a_log"}
    assert job.steps_sent() == list(range(10))  # also those from before it asked


@pytest.mark.parametrize("said", ["nothing of Google", "off", "a logger of its own"])
def test_a_recorder_of_the_script_that_cannot_or_may_not_send_is_quiet(job: Job, said: str) -> None:
    del job.variables["GOODPUT_EXPORTERS"]
    if said == "off":
        job.variables["GOODPUT_EXPORTERS"] = "off"
    if said == "nothing of Google":
        for name in ("GOODPUT_PROJECT", "GOODPUT_LOGGING_ENDPOINT"):
            del job.variables[name]
    own = "print" if said == "a logger of its own" else "None"
    done = job(
        "from goodput_plugins import measurement\nfrom goodput_plugins.core import shipper\n"
        f"recorder = measurement.GoodputRecorder('r', 'a_log', logging_enabled=True, cloud_logger={own})\n"
        "for number in range(5): recorder.record_step_start_time(number)",
        GOOGLE_CLOUD_PROJECT="",
        GOOGLE_APPLICATION_CREDENTIALS="",
    )
    assert done.stderr == "" and not (job.folder / "agent.log").exists()


def test_a_disk_that_ends_with_the_container_is_told_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    del job.variables["GOODPUT_EXPORTERS"]
    kind = "from goodput_plugins.core import shipper\nshipper.file_system = lambda fd: 'overlay'\n"
    assert job(kind + "train(2)").stderr == ""
    told = job(kind + "train(2)", KUBERNETES_SERVICE_HOST="10.0.0.1").stderr
    assert told.count("on the disk of this container, which ends with it") == 1
    assert job("train(2)", KUBERNETES_SERVICE_HOST="10.0.0.1", GOODPUT_EXPORTERS="off").stderr == ""
