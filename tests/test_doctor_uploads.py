"""What the doctor makes of what the run's agent wrote, each with its fault planted."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from examining import S, diagnoses, is_wrong, told_by_agent, write

from goodput_plugins.agent.position import Positions
from goodput_plugins.core.name_lock import AGENT, NameLock
from goodput_plugins.doctor.diagnosis import Level

pytestmark = pytest.mark.usefixtures("one_interpreter_for_all", "no_network")


def test_uploads(tmp_path: Path) -> None:
    run = write(tmp_path)
    is_wrong(diagnoses(run, GOODPUT_EXPORTERS="prometheus")["uploads"], "no agent", level=Level.UNKNOWN)
    told_by_agent(run, state="failing", error="503 try again", unsent=5000)
    is_wrong(diagnoses(run)["uploads"], "503 try again", "5000 bytes wait", "agent.log")
    told_by_agent(run, entries=12, destination="the log goodput_digits")
    assert "12 entries were sent to the log goodput_digits" in diagnoses(run)["uploads"].text
    told_by_agent(run)
    assert "has sent nothing yet" in diagnoses(run)["uploads"].text
    told_by_agent(run, state="done", unsent=70)
    is_wrong(diagnoses(run)["uploads"], "70 bytes unsent", "goodput agent", level=Level.WARNING)
    told_by_agent(run, age=1000)
    trainer, agent = NameLock(), NameLock(AGENT)
    assert trainer.take(run)
    try:
        is_wrong(diagnoses(run)["uploads"], "its agent has gone", "16 minutes ago", "goodput agent RUN")
        assert agent.take(run)
        is_wrong(diagnoses(run)["uploads"], "has sent nothing for")
    finally:
        trainer.release()
        agent.release()


def test_an_agent_with_other_variables_than_the_training(tmp_path: Path) -> None:
    """A real one is in test_agent_succession."""
    run = told_by_agent(write(tmp_path), differing=["GOODPUT_PROJECT"])
    assert "succession" not in diagnoses(run)
    trainer, agent = NameLock(), NameLock(AGENT)
    assert trainer.take(run) and agent.take(run)
    try:
        found = diagnoses(run)["succession"]
        is_wrong(found, "GOODPUT_PROJECT", "stands by", f"kill {os.getpid()}", level=Level.WARNING)
    finally:
        trainer.release()
        agent.release()


def test_when_values_went_out_last(tmp_path: Path) -> None:
    now = time.time_ns()
    run = told_by_agent(write(tmp_path), exporters={"tensorboard": {"last_success": now - 5 * 10**9}})
    found = diagnoses(run)
    assert found["values"].level is Level.OK and "tensorboard: the last values went out 5 s ago" in found["values"].text
    assert "uploads" not in found
    for last in (None, now - 1000 * 10**9):
        told_by_agent(run, exporters={"cloud-monitoring": {"last_success": last, "last_error": "no credentials"}})
        is_wrong(diagnoses(run)["values"], "cloud-monitoring gets nothing: no credentials", "agent.log")


def test_values_of_a_run_that_ended_without_its_last_ones(tmp_path: Path) -> None:
    run = write(tmp_path)  # it ended 65 s ago
    went = time.time_ns() - 80 * S
    told_by_agent(run, exporters={"cloud-monitoring": {"last_success": went}})
    is_wrong(diagnoses(run)["values"], "before the run ended", "final ones", "goodput agent RUN")
    agent = NameLock(AGENT)
    assert agent.take(run)
    try:
        assert diagnoses(run)["values"].level is Level.OK  # it may still send them
    finally:
        agent.release()
    told_by_agent(run, exporters={"prometheus": {"last_success": went}})
    assert diagnoses(run)["values"].level is Level.OK


def test_what_keeps_an_exporter_on_this_machine_from_its_values(tmp_path: Path) -> None:
    taken = {"prometheus": {"faults": 3, "last_error": "OSError: [Errno 98] Address already in use"}}
    found = diagnoses(told_by_agent(write(tmp_path), exporters=taken))["values"]
    is_wrong(found, "Address already in use", "GOODPUT_PROMETHEUS_ADDRESS")
    full = {"tensorboard": {"faults": 3, "last_error": "OSError: [Errno 28] No space left on device"}}
    found = diagnoses(told_by_agent(write(tmp_path), exporters=full))["values"]
    is_wrong(found, "No space left", "GOODPUT_TENSORBOARD_DIR")


def test_points_that_were_refused(tmp_path: Path) -> None:
    points = {"cloud-monitoring": {"refused": 3, "last_error": "order"}}
    run = told_by_agent(write(tmp_path), dropped=2, exporters=points)
    found = diagnoses(run)["refused"]
    is_wrong(found, "2 entries", "3 points of cloud-monitoring", "order", "GOODPUT_REPLICA_ID", level=Level.WARNING)
    assert diagnoses(told_by_agent(run))["refused"].level is Level.OK


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"moment": "x", "entries": null, "exporters": 3, "state": 7}'])
def test_an_agents_status_that_is_none(tmp_path: Path, text: str) -> None:
    """Not a word of what was sent or refused, but that it is not known."""
    run = write(tmp_path)
    (run / "agent.json").write_text(text)
    found = diagnoses(run, GOODPUT_EXPORTERS="prometheus")
    is_wrong(found["notes"], "agent.json is damaged", "is not known", "goodput agent RUN", level=Level.UNKNOWN)
    assert not {"refused", "uploads", "values"} & set(found)
    assert all("fault of ours" not in diagnosis.text for diagnosis in found.values())


@pytest.mark.parametrize(
    ("name", "bad", "good", "level", "words"),
    [
        ("monitor.json", '{"exporters": ["tensorboard"]}', '{"asked": {}}', Level.WRONG, "is not sent"),
        ("monitor.json", "\0\0\0", "{}", Level.WRONG, "next start of the training"),
        ("agent.points.json", '{"p/l/0": "x"}', '{"p/l/0": 7}', Level.WARNING, "too soon"),
        (
            "agent.position.json",
            '{"schema": "goodput-agent-position/1", "destinations": {"log": {"sent": {"a": "zz"}}}}',
            '{"schema": "goodput-agent-position/1", "destinations": {"log": {"sent": {"a": [0, 1]}}}}',
            Level.WARNING,
            "Readers take each entry once",
        ),
    ],
)
def test_a_note_that_is_damaged(tmp_path: Path, name: str, bad: str, good: str, level: Level, words: str) -> None:
    run = write(tmp_path)
    (run / name).write_text(bad)
    is_wrong(diagnoses(run)["notes"], f"{name} is damaged", words, level=level)
    assert Positions(run, "log")["a"] == (0, 0)  # and nobody stumbles
    (run / name).write_text(good)
    assert "notes" not in diagnoses(run)


# --- places on this machine ---------------------------------------------------------------------------


def test_a_port_that_another_process_holds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        environ = {"GOODPUT_EXPORTERS": "prometheus", "GOODPUT_PROMETHEUS_ADDRESS": f"127.0.0.1:{port}"}
        found = diagnoses(write(tmp_path), **environ)["prometheus"]
        is_wrong(found, f"127.0.0.1:{port}", "in use", "every 2 s", "GOODPUT_PROMETHEUS_ADDRESS")
        other, agent = write(tmp_path, name="other"), NameLock(AGENT)
        told_by_agent(other, exporters={"prometheus": {"port": port}})
        assert agent.take(other)
        try:
            environ["GOODPUT_DIR"] = str(tmp_path)
            is_wrong(diagnoses(**environ)["prometheus"], "the agent of the run other does")
            assert "prometheus" not in diagnoses(other, **environ)  # its own agent: nothing is tried
        finally:
            agent.release()
    assert diagnoses(**environ)["prometheus"].level is Level.OK
    socket.create_server(("127.0.0.1", port)).close()  # it was let go of


def test_an_address_that_is_none_of_this_machines() -> None:
    environ = {"GOODPUT_EXPORTERS": "prometheus", "GOODPUT_PROMETHEUS_ADDRESS": "192.0.2.1:9464"}
    found = diagnoses(**environ)["prometheus"]
    is_wrong(found, "192.0.2.1:9464 (Cannot assign requested address)", "address of this machine")
    assert "prometheus" not in diagnoses(GOODPUT_EXPORTERS="off", GOODPUT_PROMETHEUS_ADDRESS="192.0.2.1:9464")


def test_a_folder_that_takes_no_event_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"GOODPUT_EXPORTERS": "tensorboard"}
    for place, words in ((tmp_path / "file", "is no folder"), (Path("/proc/tb"), "cannot be written")):
        found = diagnoses(**environ, GOODPUT_TENSORBOARD_DIR=str(place))["tensorboard"]
        is_wrong(found, str(place), words, "GOODPUT_TENSORBOARD_DIR")
    away = diagnoses(**environ, GOODPUT_TENSORBOARD_DIR="gs://bucket/tb")["tensorboard"]
    is_wrong(away, "gs://bucket/tb", "is not tried", level=Level.UNKNOWN)
    good = diagnoses(**environ, GOODPUT_TENSORBOARD_DIR=str(tmp_path / "a" / "tb"))["tensorboard"]
    assert good.level is Level.OK and list(tmp_path.iterdir()) == [tmp_path / "file"]
    run = write(tmp_path)
    assert diagnoses(run, **environ)["tensorboard"].level is Level.OK
    (run / "tensorboard").write_text("")
    is_wrong(diagnoses(run, **environ)["tensorboard"], "is no folder")
