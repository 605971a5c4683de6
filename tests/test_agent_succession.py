"""A trainer that is started again with other variables is served with these; whoever was started by hand stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.monitoring_v3", reason="google-cloud-monitoring is not installed here")
pytest.importorskip("tensorboardX", reason="tensorboardX is not installed here")
pytest.importorskip("tensorboard", reason="tensorboard is not installed here")
pytest.importorskip("prometheus_client", reason="prometheus-client is not installed here")

from cloud import Cloud
from metric_service import Metrics as Service
from metric_service import serving
from running import reported
from sending import Job, answers, board, free_port, until

from goodput_plugins.agent.door import Door
from goodput_plugins.agent.loop import LEAVE
from goodput_plugins.agent.succession import DEAF, GO, STAY, Candidate, Succession, digests, standing_by
from goodput_plugins.core.foreign import read_entries
from goodput_plugins.core.reading import read
from goodput_plugins.core.runlog import RunLog
from goodput_plugins.core.shipper import NOTHING_WANTED, _tell_nothing_is_wanted
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.uploads import succession

KILLED = "train(40); os.kill(os.getpid(), 9)"


def is_gone(pid: int) -> bool:
    """Whether a process has ended; who made the agent is gone, so nobody is left to wait for it."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_a_restart_with_other_variables_is_served_with_these(job: Job) -> None:
    """Nothing is refused, lost or sent twice over the change, and the old port is free."""
    first, second = free_port(), free_port()
    with serving(Service()) as service, Cloud() as cloud:
        job.variables = {
            **cloud.environ,
            "GOODPUT_EXPORTERS": "cloud-logging,cloud-monitoring,tensorboard,prometheus",
            "GOODPUT_UPLOAD_INTERVAL": "1",
            "GOODPUT_MONITORING_ENDPOINT": f"127.0.0.1:{service.port}",
            "GOODPUT_PROMETHEUS_ADDRESS": f"127.0.0.1:{first}",
        }
        job.start("train(60); os.kill(os.getpid(), 9)").communicate(timeout=100)
        until(lambda: answers(first))
        old = job.status["pid"]
        job.variables |= {"GOODPUT_PROMETHEUS_ADDRESS": f"127.0.0.1:{second}", "GOODPUT_TENSORBOARD_DIR": "tb"}
        training = job.start("train(240, 40)")
        try:
            until(lambda: answers(second))
            assert is_gone(old) and not answers(first)
            assert job.status["pid"] != old
            _, err = training.communicate(timeout=100)
            assert err == ""
            until(lambda: job.status.get("state") == "done", 100)
        finally:
            training.kill()
        assert service.refused == []
        told = reported(job.folder)
        assert service.last("goodput_time") == pytest.approx(told["goodput_seconds"], abs=1e-6)
        assert sorted(steps_of(cloud)) == sorted([*range(60), *range(40, 280)])
        ids = [entry.insert_id for entry in cloud.written]
        assert len(ids) == len(set(ids))
    assert "with another GOODPUT_PROMETHEUS_ADDRESS, GOODPUT_TENSORBOARD_DIR: its agent takes over" in job.log
    assert job.log.count("serving the run") == 2
    assert job.log.count("another agent serves the run; this one stands by") == 1
    before, after = (board(folder)["goodput/goodput"] for folder in (job.folder / "tensorboard", job.run.folder / "tb"))
    assert before[-1][0] < after[0][0] and after[-1][1] == 279


def test_an_agent_that_cannot_send_keeps_no_port_after_the_run_and_leaves_the_rest_to_the_next(job: Job) -> None:
    port = free_port()
    with Cloud() as cloud:
        job.variables = {
            **cloud.environ,
            "GOODPUT_EXPORTERS": "cloud-logging,prometheus",
            "GOODPUT_UPLOAD_INTERVAL": "1",
            "GOODPUT_FLUSH_TIMEOUT": "1",
            "GOODPUT_PROMETHEUS_ADDRESS": f"127.0.0.1:{port}",
        }
        cloud.go_down()
        job.start("train(100)").communicate(timeout=100)
        until(lambda: job.status.get("state") == "failing" and answers(port))
        old = job.status["pid"]
        until(lambda: not answers(port))
        assert not is_gone(old)  # it goes on trying to send the log
        training = job.start("train(2000)")
        try:
            until(lambda: answers(port))
            assert is_gone(old)
            cloud.come_back()
            until(lambda: len(steps_of(cloud)) > 100)
        finally:
            training.kill()
            training.communicate()
        until(lambda: steps_of(cloud) == steps_in(read(job.folder)))
    assert " bytes are left to the next agent" in job.log


def steps_of(cloud: Cloud) -> list[int]:
    """The numbers of all steps that a reader of the log sees, those that were sent twice twice."""
    return steps_in(read_entries(cloud.entries("r")))


def steps_in(logs: list[RunLog]) -> list[int]:
    return [number for log in logs for life in log.lives for number in life.steps.numbers]


def test_a_restart_that_wants_nothing_sent_is_not_sent(job: Job) -> None:
    job.variables = {"GOODPUT_EXPORTERS": "tensorboard", "GOODPUT_UPLOAD_INTERVAL": "1"}
    job.start(KILLED).communicate(timeout=100)
    until(lambda: job.exporters.get("tensorboard", {}).get("sent"))
    old = job.status["pid"]
    job.variables["GOODPUT_EXPORTERS"] = "off"
    training = job.start("train(2000)")
    try:
        until(lambda: is_gone(old))
        assert training.poll() is None
    finally:
        training.kill()
        training.communicate()
    assert "with nothing to send" in job.log


def test_the_same_variables_keep_the_agent_and_leave_one_that_stands_by(job: Job) -> None:
    job.variables = {"GOODPUT_EXPORTERS": "tensorboard", "GOODPUT_UPLOAD_INTERVAL": "1"}
    job.start(KILLED).communicate(timeout=100)
    until(lambda: job.status.get("state") == "shipping")
    old = job.status["pid"]
    for _ in range(2):
        job.start(KILLED).communicate(timeout=100)
    training = job.start("train(2000)")
    try:
        until(lambda: len(agents(job)) == 2)  # of the three that stood by the newest is left
        assert job.status["pid"] == old
        os.kill(old, signal.SIGKILL)
        until(lambda: job.status["pid"] != old and job.status.get("state") == "shipping")
        assert training.poll() is None
    finally:
        training.kill()
        training.communicate()


def agents(job: Job) -> list[int]:
    """The living agents of a job, by the environment that the trainer gave them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            is_agent = b"\0agent\0" in path.with_name("cmdline").read_bytes()
            if is_agent and f"GOODPUT_DIR={job.run.runs}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_an_agent_by_hand_stays_and_says_so(job: Job) -> None:
    job.variables = {"GOODPUT_EXPORTERS": "tensorboard", "GOODPUT_UPLOAD_INTERVAL": "1"}
    by_hand = job.agent_by_hand("--stay")
    until(lambda: job.status.get("state") == "shipping")
    job.variables["GOODPUT_UPLOAD_INTERVAL"] = "2"
    training = job.start("train(2000)")
    try:
        until(lambda: "another GOODPUT_UPLOAD_INTERVAL than this agent" in job.log)
        until(lambda: job.status.get("differing"))
        (told,) = succession(Case(job.folder, {}, now=time.time_ns()))
        assert told.level == "warning" and "GOODPUT_UPLOAD_INTERVAL" in told.text and "kill" in told.cure
        assert job.status["pid"] == by_hand.pid and by_hand.poll() is None
        by_hand.terminate()  # as it is told to be: then the training's own takes over, at once
        until(lambda: job.status["pid"] != by_hand.pid and job.status.get("state") == "shipping", LEAVE - 2)
        assert list(succession(Case(job.folder, {}, now=time.time_ns()))) == []
    finally:
        training.kill()
        training.communicate()
        by_hand.kill()
        by_hand.wait()


def test_an_agent_by_hand_says_what_it_waits_for(job: Job) -> None:
    command = [sys.executable, "-m", "goodput_plugins", "agent", "of-nobody"]
    job.variables = {"GOODPUT_EXPORTERS": "tensorbord"}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    waits = subprocess.Popen(command, env=job.environ(), cwd=job.run.folder, **pipes)
    assert waits.stdout is not None
    assert "GOODPUT_EXPORTERS=tensorbord is not known" in waits.stdout.readline()
    assert f"there is no run in {job.run.runs / 'of-nobody'} yet" in waits.stdout.readline()
    waits.terminate()
    assert waits.wait(60) == 0 and waits.stdout.read() == ""
    waits.stdout.close()


# --- one after the other ------------------------------------------------------------------------------


class Told:
    """What an agent that serves did."""

    def __init__(self, began: int | None, environ: dict[str, str]) -> None:
        self.left = 0
        self.differing: list[list[str]] = []
        self.now = 0.0
        self.succession = Succession(began, environ, self._leave, self.differing.append, lambda: self.now)

    def _leave(self) -> None:
        self.left += 1

    def hear(self, began: int, **environ: str) -> bytes:
        return self.succession.hear(standing_by(began, environ))


def test_only_a_newer_trainers_agent_takes_over() -> None:
    told = Told(100, {"GOODPUT_EXPORTERS": "tensorboard,prometheus"})
    assert told.hear(90, GOODPUT_EXPORTERS="tensorboard") == GO and told.left == 0
    assert told.hear(110, GOODPUT_EXPORTERS="prometheus, tensorboard") == STAY and told.left == 0
    assert told.hear(120, GOODPUT_EXPORTERS="tensorboard,prometheus") == STAY and told.left == 0
    assert told.hear(110, GOODPUT_EXPORTERS="tensorboard") == GO and told.left == 0  # there is a newer one
    told.now += 60
    assert told.hear(110, GOODPUT_EXPORTERS="tensorboard") == STAY and told.left == 1  # that has gone
    assert told.hear(130) == STAY and told.left == 1
    assert told.differing == []


def test_what_no_trainer_started_never_goes() -> None:
    told = Told(None, {"GOODPUT_PROJECT": "mine"})
    assert told.hear(1, GOODPUT_PROJECT="theirs") == told.hear(2, GOODPUT_PROJECT="theirs") == STAY
    assert told.succession.hear(NOTHING_WANTED + b"[3, {}]") == STAY
    assert told.left == 0 and told.differing == [["GOODPUT_PROJECT"], []]


@pytest.mark.parametrize("message", [b"stands-by ", b"stands-by [1]", b"stands-by {", b"nothing-wanted [null, 3]"])
def test_a_message_that_is_none_changes_nothing(message: bytes) -> None:
    told = Told(100, {})
    assert told.succession.hear(message) == GO and told.left == 0


def test_values_are_not_told_and_paths_are_compared_where_they_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = {"GOODPUT_PROJECT": "my-project", "HTTPS_PROXY": "http://user:pass@proxy"}
    message = standing_by(1, secret).decode()
    assert "my-project" not in message and "pass" not in message and len(message) < 4096
    monkeypatch.chdir(tmp_path)
    relative, absolute = ({"GOODPUT_TENSORBOARD_DIR": where} for where in ("tb", str(tmp_path / "tb")))
    assert digests(relative) == digests(absolute)
    assert digests({}) == digests({"GOODPUT_UPLOAD_INTERVAL": "30", "GOODPUT_EXPORTERS": ""})


def test_one_that_hangs_is_told_of_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    serves, now = Door(), [0.0]
    assert serves.take(tmp_path)
    candidate, door = Candidate(7, {}, lambda: now[0]), Door()
    for _ in range(5):
        assert candidate.is_needed(door, tmp_path)
        now[0] += 0.6 * DEAF
    assert capsys.readouterr().out.count("does not answer; if it hangs, kill it") == 1
    serves.close()
    assert Candidate(None, {}).is_needed(Door(), tmp_path)  # by hand: it waits without a word


def test_who_stands_by_is_answered_through_the_door(tmp_path: Path) -> None:
    door, other, heard = Door(), Door(), []

    def hear(message: bytes) -> bytes:
        heard.append(message)
        return STAY

    door.hear = hear
    assert door.take(tmp_path)
    assert other.knock(tmp_path, standing_by(7, {})) == b""
    _tell_nothing_is_wanted(tmp_path)
    door.wait(5)
    assert json.loads(heard[0].partition(b" ")[2])[0] == 7 and len(heard) == 2
    assert other.knock(tmp_path, standing_by(7, {})) == STAY and door.knocks == 1
    door.close()
    assert other.take(tmp_path)
    other.close()
    with pytest.raises(OSError):
        _tell_nothing_is_wanted(tmp_path)
