"""The thread of the agent that hands reports to exporters: faults, ports, pauses, the last word."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.cloud.monitoring_v3", reason="google-cloud-monitoring is not installed here")
pytest.importorskip("tensorboardX", reason="tensorboardX is not installed here")
pytest.importorskip("tensorboard", reason="tensorboard is not installed here")
pytest.importorskip("prometheus_client", reason="prometheus-client is not installed here")

from sending import answers, free_port, scrape, until

from goodput_plugins.agent import reports
from goodput_plugins.agent.making import LAST, Last, Maker
from goodput_plugins.agent.metrics import Metrics
from goodput_plugins.agent.reports import Reports
from goodput_plugins.agent.settings import Settings, settings
from goodput_plugins.agent.slot import AGAIN, Slot
from goodput_plugins.agent.status import Status, log
from goodput_plugins.core.live import Live
from goodput_plugins.core.report import Report
from goodput_plugins.exporters import Snapshot
from goodput_plugins.exporters.prometheus import Prometheus


class Memory:
    """An exporter that remembers, or fails."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.snapshots: list[Snapshot] = []
        self.fault = fault
        self.closed = False

    name = "memory"

    def export(self, snapshot: Snapshot) -> None:
        if self.fault is not None:
            raise self.fault
        self.snapshots.append(snapshot)

    def status(self) -> Mapping[str, object]:
        return {"sent": len(self.snapshots)}

    def close(self) -> None:
        self.closed = True


def recorded(folder: Path) -> Path:
    """A run of 100 steps that ended a moment ago."""
    start = time.time_ns() - 60 * 10**9
    lines = [{"schema": "goodput-journal/1", "run": "r", "attempt": "a", "start": start}, ["start", start]]
    lines += [["s", start + (1 + number) * 500_000_000, 0, number] for number in range(100)]
    lines += [["end", start + 52 * 10**9, 0, None, None, "completed"]]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_fault_of_one_exporter_is_told_once_and_keeps_nothing_from_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, status = Memory(), Memory(OSError("no space")), Status()
    plan = {"bad": (1, lambda: bad), "good": (1, lambda: good)}
    sending = Metrics(recorded(tmp_path), lambda: Settings(interval=0.2), lambda _: plan, status)
    sending.start()
    until(lambda: bad.fault is None or status.exporters.get("bad", {}).get("faults", 0) not in (0, 1))
    sending.ask()
    until(lambda: sending.is_kept() and sending.is_sent())
    sending.finish()
    until(sending.is_over)
    assert len(good.snapshots) >= 2 and good.snapshots[-1].report.steps.last == 99
    assert good.closed and bad.closed
    assert capsys.readouterr().out.count("bad: OSError: no space") == 1
    assert "no space" in str(json.loads((tmp_path / "agent.json").read_text())["exporters"]["bad"]["last_error"])


def test_a_run_that_has_ended_is_told_of_once_by_an_agent_that_stays(tmp_path: Path) -> None:
    one, windows, late = Memory(), Memory(), Memory(OSError("no space"))
    folder, every = recorded(tmp_path), Settings(interval=0.05)

    def told(at: Memory, wanted: Settings) -> Metrics:
        sending = Metrics(folder, lambda: wanted, lambda _: {"memory": (1, lambda: at)}, Status())
        sending.start()
        return sending

    sending = [told(one, every), told(windows, replace(every, windows=(60,))), told(late, every)]
    until(lambda: len(windows.snapshots) > 3)
    assert len(one.snapshots) == 1  # it changes no more; the last 60 s do
    late.fault = None
    until(lambda: late.snapshots)
    seen = len(windows.snapshots)
    until(lambda: len(windows.snapshots) > seen + 3)
    assert len(one.snapshots) == len(late.snapshots) == 1

    start = time.time_ns()
    lines = [{"schema": "goodput-journal/1", "run": "r", "attempt": "b", "start": start}, ["s", start, 0, 100]]
    (folder / "b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    until(lambda: len(one.snapshots) > 3)  # it has been started again
    for each in sending:
        each.finish()
    until(lambda: all(each.is_over() for each in sending))


def test_an_exporter_is_made_anew_when_what_it_depends_on_changes(tmp_path: Path) -> None:
    made: list[Memory] = []
    depends = [1]

    def make() -> Memory:
        made.append(Memory())
        return made[-1]

    sending = Metrics(
        recorded(tmp_path), lambda: Settings(interval=600), lambda _: {"one": (depends[0], make)}, Status()
    )
    sending.start()
    until(lambda: made and made[0].snapshots)
    depends[0] = 2
    until(lambda: len(made) == 2 and made[1].snapshots)
    sending.finish()
    until(sending.is_over)
    assert made[0].closed and made[1].closed


def put_aside(*_: object) -> dict[int, Report]:
    """What can be told of windows that were put aside."""
    return {}


def test_what_reads_the_whole_history_is_done_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = Reports(recorded(tmp_path)), Settings(windows=(30, 3600))
    by_ideal = Settings(windows=(30, 3600), ideal=400_000_000)

    def told(wanted: Settings, *, final: bool = False) -> tuple[set[int], int] | None:
        found = made.snapshot(time.time_ns(), wanted, final=final)
        return found and (set(found.windows), round((found.report.steps.ideal or 0) / 1e8))

    assert told(by_ideal) == ({30, 3600}, 4)
    monkeypatch.setattr(reports, "SELDOM", 1e9)
    assert told(asked) == ({30, 3600}, 5) and told(by_ideal) is None
    monkeypatch.setattr(Live, "rolling", put_aside)
    assert told(asked) == (set(), 5)
    assert told(asked, final=True) == ({30, 3600}, 5)
    assert told(by_ideal, final=True) == ({30, 3600}, 4)


def test_when_points_were_written_last_is_kept_for_each_workload(tmp_path: Path) -> None:
    one, other = Last(tmp_path, "p/l/0"), Last(tmp_path, "p/l/1")
    assert one.read() == 0
    one.save(7)
    other.save(8)
    assert (one.read(), other.read()) == (7, 8)
    assert (Last(tmp_path, "p/l/0").read(), Last(tmp_path, "p/l/1").read()) == (7, 8)  # by the next agent
    (tmp_path / LAST).write_text("[")
    assert Last(tmp_path, "p/l/0").read() == 0
    Last(tmp_path / "gone", "w").save(7)  # a disk that takes nothing


def test_a_port_that_is_taken_is_tried_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = settings(["prometheus"], tmp_path, {"GOODPUT_PROMETHEUS_ADDRESS": f"127.0.0.1:{port}"})
        slot = Slot("prometheus", *Maker("r", tmp_path, {}).plan(wanted)["prometheus"])
        snapshot = Reports(recorded(tmp_path)).snapshot(time.time_ns(), wanted, final=False)
        assert snapshot is not None
        slot.export(snapshot)
        assert "in use" in str(slot.status()["last_error"])
    slot.export(snapshot)
    assert scrape(port) and "last_error" not in slot.status()
    slot.close()


def test_a_port_that_comes_free_is_answered_at_soon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Long before the next round; both are said."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        wanted = replace(
            settings(["prometheus"], tmp_path, {"GOODPUT_PROMETHEUS_ADDRESS": f"127.0.0.1:{port}"}), interval=3600
        )
        sending = Metrics(recorded(tmp_path), lambda: wanted, Maker("r", tmp_path, {}).plan, Status())
        sending.start()
        time.sleep(2 * AGAIN)
    until(lambda: answers(port))
    sending.finish()
    until(sending.is_over)
    said = capsys.readouterr().out
    assert said.count(f"Address already in use: '127.0.0.1:{port}'") == 1
    assert said.count("prometheus: works, after") == 1


class Hangs(Memory):
    """A network that does not answer until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()

    def export(self, snapshot: Snapshot) -> None:
        self.asked.set()
        self.answers.wait(60)


def test_a_port_is_free_while_a_network_is_still_waited_for(tmp_path: Path) -> None:
    port, hangs = free_port(), Hangs()
    plan: dict[str, tuple[object, Any]] = {
        "prometheus": (1, lambda: Prometheus(f"127.0.0.1:{port}")),
        "cloud-monitoring": (1, lambda: hangs),
    }
    sending = Metrics(recorded(tmp_path), lambda: Settings(interval=600), lambda _: plan, Status())
    sending.finish()
    sending.start()
    assert hangs.asked.wait(60)
    socket.create_server(("127.0.0.1", port)).close()
    assert not sending.is_over()
    hangs.answers.set()
    until(sending.is_over)


def test_what_the_agent_says_at_last_has_what_was_not_sent(tmp_path: Path) -> None:
    exporters: dict[str, dict[str, object]] = {
        "cloud-monitoring": {"sent": 40, "refused": 3, "failed": 20},
        "tensorboard": {"sent": 0, "faults": 2, "fails": True, "last_error": "full"},
        "prometheus": {"faults": 0},
    }
    assert Status(entries=5, dropped=1, unsent=70, exporters=exporters).sums() == [
        "5 entries were sent",
        "1 of the run were refused",
        "70 bytes are left to the next agent",
        "cloud-monitoring: 40 values sent, 3 refused, 20 not taken",
        "tensorboard: 2 failed tries, the last values among them (full)",
        "prometheus: nothing failed",
    ]


def test_a_full_disk_under_the_agents_own_log_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        log("something")
        with suppress(OSError):
            full.close()


def test_without_credentials_it_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    environ = {"GOODPUT_PROJECT": "p", "GOODPUT_LOCATION": "l", "GCE_METADATA_HOST": "127.0.0.1:9"}
    wanted = settings(["cloud-monitoring"], tmp_path, environ)
    sending = Metrics(recorded(tmp_path), lambda: wanted, Maker("r", tmp_path, environ).plan, Status())
    sending.start()
    sending.ask()
    until(sending.is_sent)
    sending.finish()
    until(sending.is_over)
    told = json.loads((tmp_path / "agent.json").read_text())["exporters"]["cloud-monitoring"]
    assert "there are no credentials" in told["last_error"] and told["faults"] >= 1
