"""What the doctor says of a run and of the disk below it, each with its fault planted."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from examining import ARMED, diagnoses, is_wrong, write
from running import Runner, reported

from goodput_plugins.core.events import Event, Kind
from goodput_plugins.core.name_lock import NameLock
from goodput_plugins.doctor import disk
from goodput_plugins.doctor.diagnosis import Level

pytestmark = pytest.mark.usefixtures("one_interpreter_for_all", "no_network")


def test_no_run() -> None:
    is_wrong(diagnoses()["run"], "no run below /nowhere", level=Level.UNKNOWN)


def test_a_journal_that_cannot_be_read_or_lacks_something(tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "x.jsonl").write_text("no journal\n")
    is_wrong(diagnoses(torn)["journal"], "is no goodput journal")
    lossy = write(tmp_path, Event(Kind.LOST, 0, step=7))
    is_wrong(diagnoses(lossy)["journal"], "7 pieces", level=Level.WARNING)


def test_a_process_that_lives_and_writes_nothing(tmp_path: Path) -> None:
    run, lock = write(tmp_path, end=None), NameLock()
    assert lock.take(run)
    try:
        is_wrong(diagnoses(run)["journal"], "has written nothing for")
    finally:
        lock.release()
    assert diagnoses(run)["journal"].level is Level.OK


def test_only_other_processes(tmp_path: Path) -> None:
    found = diagnoses(write(tmp_path, Event(Kind.RANK, 0, step=1, data=2)))
    is_wrong(found["primary"], "only processes other than the primary")
    assert diagnoses(write(tmp_path / "first", Event(Kind.RANK, 0, step=0, data=2)))["primary"].level is Level.OK


def test_no_step(tmp_path: Path) -> None:
    is_wrong(diagnoses(write(tmp_path / "bad", steps=0))["steps"], "no training step")
    is_wrong(diagnoses(write(tmp_path / "killed", steps=0, end="signal:SIGTERM"))["steps"], "no training step")
    assert "30 steps" in diagnoses(write(tmp_path / "good"))["steps"].text


def test_no_plugin_and_no_checkpoint_library(tmp_path: Path) -> None:
    bare = diagnoses(write(tmp_path))
    is_wrong(bare["armed"], "no plugin", level=Level.WARNING)
    is_wrong(bare["checkpoints"], "no checkpoint library was hooked", level=Level.WARNING)
    assert "so all its steps are kept" in bare["checkpoints"].meaning  # as the report says of it
    killed = diagnoses(write(tmp_path / "killed", end="signal:SIGTERM"))["checkpoints"]
    is_wrong(killed, "What a crash would take is not known", level=Level.WARNING)
    assert "kept" not in killed.meaning
    later = write(tmp_path / "later")
    (begun,) = later.iterdir()
    begun.write_text(begun.read_text().replace('"start":', '"segment": 1, "start":', 1))
    is_wrong(diagnoses(later)["armed"], "was deleted", level=Level.UNKNOWN)
    armed = diagnoses(write(tmp_path / "armed", ARMED))
    assert "orbax 0.12" in armed["armed"].text and armed["checkpoints"].level is Level.OK


def test_a_plugin_that_failed(run: Runner) -> None:
    done = run(
        "from goodput_plugins.core.guard import guard_of\n"
        "from goodput_plugins.core.session import current\n"
        "for step in range(3): current().recorder.step(step)\n"
        "for _ in range(2): guard_of('orbax')(lambda: 1 / 0)\n"
    )
    assert done.stderr.count("the plugin 'orbax' failed and is off") == 1
    (folder,) = run.runs.iterdir()
    is_wrong(diagnoses(folder)["armed"], "switched off: orbax", "traceback")
    assert [one["id"] for one in reported(folder)["findings"]].count("plugin-failed") == 1


def test_a_name_that_was_used_again(tmp_path: Path) -> None:
    assert diagnoses(write(tmp_path))["run-name"].level is Level.OK
    run = write(tmp_path, ago=5000, script="/b/train.py")
    found = diagnoses(run)["run-name"]
    is_wrong(found, "2 jobs", "2 scripts", "GOODPUT_RUN_NAME", level=Level.WARNING)
    assert "digits-2" not in found.text


def test_a_name_that_two_processes_wanted_at_the_same_time(run: Runner) -> None:
    """The second one records under a name of its own, which is a series of its own."""
    source = (
        "from goodput_plugins.core.session import current\n"
        "for step in range(3): current().recorder.step(step)\n"
        "print('trains', flush=True); input()\n"
    )
    environ = run.environ(GOODPUT_RUN_NAME="w")
    pipe, both = subprocess.PIPE, []
    for _ in range(2):
        made = subprocess.Popen(run.command(source), env=environ, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
        both.append(made)
        assert both[-1].stdout is not None and both[-1].stdout.readline() == "trains\n"
    assert "'w-2'" in both[1].communicate("\n", timeout=60)[1] and both[0].communicate("\n", timeout=60)[1] == ""
    told = diagnoses(run.runs / "w")["run-name"]
    is_wrong(told, "they are w-2", "series of its own", "GOODPUT_RUN_NAME", level=Level.WARNING)
    assert "mix" not in told.meaning
    told = diagnoses(run.runs / "w-2")["run-name"]
    is_wrong(told, "wanted the name w,", "series of its own", level=Level.WARNING)
    own = write(run.runs, name="w-3")  # called so by its user
    assert diagnoses(own)["run-name"].level is Level.OK
    assert "w-3" not in diagnoses(run.runs / "w")["run-name"].text


def test_a_disk_that_will_be_gone(tmp_path: Path) -> None:
    is_wrong(diagnoses(GOODPUT_DIR="/dev/shm/goodput")["disk"], "is memory", level=Level.WARNING)
    is_wrong(diagnoses(GOODPUT_DIR="/tmp/goodput-of-nobody")["disk"], "GOODPUT_DIR", level=Level.WARNING)
    is_wrong(diagnoses(GOODPUT_DIR="/proc/goodput")["disk"], "cannot be written")
    (tmp_path / "file").write_text("")
    is_wrong(diagnoses(GOODPUT_DIR=str(tmp_path / "file" / "runs"))["disk"], "is no folder")


@pytest.mark.parametrize(
    ("kind", "words"),
    [("overlay", "container's own layer"), ("tmpfs", "is memory"), ("fuse.gcsfuse", "is a FUSE mount")],
)
def test_a_disk_of_a_kind_that_loses_something(monkeypatch: pytest.MonkeyPatch, kind: str, words: str) -> None:
    monkeypatch.setattr(disk, "file_system", lambda fd: kind)
    is_wrong(diagnoses(GOODPUT_DIR="/usr")["disk"], words, "GOODPUT_DIR", level=Level.WARNING)
    if not kind.startswith("fuse"):
        sent = diagnoses(GOODPUT_DIR="/usr", GOODPUT_EXPORTERS="cloud-logging", GCE_METADATA_HOST="127.0.0.1:9")
        assert sent["disk"].level is Level.OK and "The log has what would go with it" in sent["disk"].meaning
    monkeypatch.setattr(disk, "file_system", lambda fd: "nfs4")
    assert "a nfs4 disk, a remote one" in diagnoses(GOODPUT_DIR="/usr")["disk"].text


def test_a_disk_that_is_nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda folder: SimpleNamespace(free=12_000_000))
    found = diagnoses(GOODPUT_DIR="/usr")["disk"]
    is_wrong(found, "12 MB left", "Make room", level=Level.WARNING)


def test_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gcsfs", reason="gcsfs is not installed here")
    environ = {"GOODPUT_DIR": "gs://my-bucket/runs", "XDG_CACHE_HOME": str(tmp_path)}
    found = diagnoses(**environ)
    assert found["disk"].level is Level.OK and "kept in gs://my-bucket/runs" in found["disk"].text
    assert "gs://my-bucket/runs" in found["run"].text
    is_wrong(diagnoses(**{**environ, "GOODPUT_DIR": "nowhere://x/y"})["disk"], "nowhere", "pip install")


def test_flags_that_were_passed_before_anything_was_recorded(run: Runner) -> None:
    run(
        "from goodput_plugins import monitoring\n"
        "options = monitoring.GCPOptions(enable_gcp_goodput_metrics=False)\n"
        "monitoring.GoodputMonitor('r', 'log', 'd', 30, monitoring_enabled=False, gcp_options=options)\n"
        "from goodput_plugins.core.session import current\n"
        "for step in range(3): current().recorder.step(step)\n"
    )
    (folder,) = run.runs.iterdir()
    assert {"monitoring-enabled", "gcp-metrics"} <= diagnoses(folder).keys()


@pytest.mark.parametrize(
    ("recorder", "monitor", "metrics", "ids"),
    [
        ("True", "True", "True", {}),
        ("False", "False", "False", {"logging-enabled", "monitoring-enabled", "gcp-metrics"}),
    ],
)
def test_flags_of_googles_api(recorder: str, monitor: str, metrics: str, ids: set[str], run: Runner) -> None:
    """The script records by hand or, as with hooks, without it; what it passed is in the journal."""
    run(
        "from goodput_plugins import measurement, monitoring\n"
        "from goodput_plugins.core.session import current\n"
        "session = current()\n"
        f"measurement.GoodputRecorder('r', 'log', {recorder})\n"
        f"options = monitoring.GCPOptions(enable_gcp_goodput_metrics={metrics})\n"
        f"monitoring.GoodputMonitor('r', 'log', 'd', 30, monitoring_enabled={monitor}, gcp_options=options)\n"
        "for step in range(3): session.recorder.step(step)\n"
    )
    (folder,) = run.runs.iterdir()
    found = diagnoses(folder)
    for id, argument in (
        ("logging-enabled", "logging_enabled"),
        ("monitoring-enabled", "monitoring_enabled"),
        ("gcp-metrics", "enable_gcp_goodput_metrics"),
    ):
        if id in ids:
            is_wrong(found[id], f"{argument}=False", "process 0", level=Level.WARNING)
        else:
            assert found[id].level is Level.OK and f"{argument}=True" in found[id].text
