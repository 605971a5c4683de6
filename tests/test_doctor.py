"""The doctor: each line with its fault planted; it never hangs, and never fails."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google_cloud import EMAIL, Cloud, serving
from running import Runner, reported

from goodput_plugins.agent.status import Status
from goodput_plugins.auto.plugins import Plugin
from goodput_plugins.cli import main
from goodput_plugins.core import rundir
from goodput_plugins.core.buckets import Bucket
from goodput_plugins.core.events import SCHEMA, Event, Kind, encode
from goodput_plugins.core.name_lock import AGENT, NameLock
from goodput_plugins.doctor import case as case_module
from goodput_plugins.doctor import disk, examine, examined, frameworks, google
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, Level, ok

S = 1_000_000_000
PACKAGE = Path(case_module.__file__).parent.parent
PROBED: dict[Any, Any] = {}
ARMED = Event(Kind.PLUGIN, 0, name="orbax", data={"version": "0.12", "sees": [Bucket.SAVE.value]})


def write(
    folder: Path,
    *events: Event,
    name: str = "digits",
    ago: int = 100,
    steps: int = 30,
    end: str | None = "completed",
    script: str = "/a/train.py",
) -> Path:
    """A run: a process that began so many seconds ago and took steps of a second."""
    start = time.time_ns() - ago * S
    times = [start + (5 + n) * S for n in range(steps)]
    told = [Event(Kind.START, start), *(event._replace(time=start) for event in events)]
    told += [Event(Kind.STEP, at, 0, n) for n, at in enumerate(times)]
    last = times[-1] + S if times else start + 10 * S
    told += [Event(Kind.END, last, name=end)] if end else []
    run = rundir.run_dir(name, folder)
    run.mkdir(parents=True, exist_ok=True)
    header = {"schema": SCHEMA, "run": name, "attempt": f"a{ago}", "start": start, "script": script}
    (run / rundir.journal_name(start)).write_bytes(json.dumps(header).encode() + b"\n" + b"".join(map(encode, told)))
    return run


def diagnoses(path: Path | None = None, *, now: int | None = None, **environ: str) -> dict[str, Diagnosis]:
    """What the doctor finds, by id; of several of one id the worst."""
    environ = {"PATH": os.environ["PATH"], "GOODPUT_DIR": "/nowhere", **environ}
    case = Case(path, environ, now=time.time_ns() if now is None else now)
    order = [Level.OK, Level.UNKNOWN, Level.WARNING, Level.WRONG]
    found = [diagnosis for _, group in examine(case) for diagnosis in group]
    return {one.id: one for one in sorted(found, key=lambda one: order.index(one.level))}


def is_wrong(diagnosis: Diagnosis, *words: str, level: Level = Level.WRONG) -> None:
    """A diagnosis that says what is, what it means and what to do, in these words among others."""
    assert diagnosis.level is level, diagnosis
    assert diagnosis.meaning and diagnosis.cure
    assert all(word in f"{diagnosis.text} {diagnosis.meaning} {diagnosis.cure}" for word in words), diagnosis


@pytest.fixture(autouse=True)
def one_interpreter_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another interpreter finds is asked once for each interpreter and path, not by each test."""
    ask: Callable[[Case], Any] = vars(Case)["probe"].func

    def probe(self: Case) -> Any:
        key = case_module.sys.executable, self.environ.get("PYTHONPATH")
        return PROBED[key] if key in PROBED else PROBED.setdefault(key, ask(self))

    monkeypatch.setattr(Case, "probe", property(probe))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google is there, as far as a connection tells; addresses of tests are asked."""
    ask = google.unreached
    monkeypatch.setattr(google, "unreached", lambda address: None if "googleapis" in address else ask(address))


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with serving(Cloud()) as served:
        yield served


# --- the switch ---------------------------------------------------------------------------------------


def test_switch(tmp_path: Path) -> None:
    is_wrong(diagnoses()["switch"], "not set", "export GOODPUT_PLUGINS=auto")
    is_wrong(diagnoses(GOODPUT_PLUGINS="off")["switch"], "off")
    is_wrong(diagnoses(write(tmp_path))["switch"], "recorded all the same", level=Level.WARNING)
    assert diagnoses(GOODPUT_PLUGINS="auto")["switch"].level is Level.OK


def test_start_up_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert diagnoses()["start-up"].level is Level.OK
    without_site = tmp_path / "python"
    without_site.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without_site.chmod(0o755)
    monkeypatch.setattr(case_module.sys, "executable", str(without_site))
    is_wrong(diagnoses()["start-up"], "goodput_plugins.pth", "Install")


def test_variables() -> None:
    is_wrong(diagnoses(GOODPUT_PLUGIN="auto")["variables"], "GOODPUT_PLUGIN is not known", "mean GOODPUT_PLUGINS?")
    is_wrong(diagnoses(GOODPUT_PROCESSES="both")["variables"], "primary or all")
    is_wrong(diagnoses(GOODPUT_PLUGINS="jaxx")["variables"], "jaxx", "is no plugin")
    assert diagnoses()["variables"].level is Level.OK


# --- frameworks ---------------------------------------------------------------------------------------


def plugin(name: str, distribution: str, since: str) -> Plugin:
    return Plugin(name, distribution=distribution, library=name, since=since, hooks={}, sees=())


def test_plugins_that_are_missing_or_do_not_know_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (plugin("absent", "no-such-library", "1"), plugin("rich", "rich", "999"), plugin("pytest", "pytest", "1"))
    monkeypatch.setattr(frameworks, "TABLE", table)
    named = diagnoses(GOODPUT_PLUGINS="absent,rich")
    is_wrong(named["plugin-absent"], "not installed", "pip install 'no-such-library>=1'")
    is_wrong(named["plugin-rich"], "stays off", "pip install 'rich>=999'")
    assert "not asked for" in named["plugin-pytest"].text
    found = diagnoses(GOODPUT_PLUGINS="auto")
    assert found["plugin-absent"].level is Level.OK
    assert found["plugin-rich"].level is Level.WARNING
    assert "is armed" in found["plugin-pytest"].text


def test_frameworks_that_resolve_to_our_folders() -> None:
    is_wrong(diagnoses(PYTHONPATH=str(PACKAGE))["frameworks"], "our folder instead of the library", "PYTHONPATH")
    assert diagnoses()["frameworks"].level is Level.OK


# --- the run ------------------------------------------------------------------------------------------


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
    rundir.run_dir("digits-2", tmp_path).mkdir()
    found = diagnoses(run)["run-name"]
    is_wrong(found, "2 jobs", "2 scripts", "digits-2", "GOODPUT_RUN_NAME", level=Level.WARNING)


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


# --- where it is sent ---------------------------------------------------------------------------------


def test_nothing_is_asked_of_google_unless_an_exporter_sends_there() -> None:
    found = diagnoses(GOODPUT_EXPORTERS="tensorboard", GCE_METADATA_HOST="127.0.0.1:9")
    assert not {"metadata-server", "project", "credentials", "permissions", "apis"} & set(found)


def test_an_exporters_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    is_wrong(diagnoses(GOODPUT_EXPORTERS="tensorboard")["exporters"], "pip install 'goodput-plugins[tensorboard]'")


def test_without_googles_libraries_only_their_absence_is_wrong() -> None:
    """In an interpreter where nothing of Google's, gRPC's or other exporters' can be imported."""
    script = (
        "import sys, time\n"
        "for name in ('google', 'grpc', 'grpc_status', 'requests', 'prometheus_client', 'tensorboardX'):\n"
        "    sys.modules[name] = None\n"
        "from goodput_plugins.doctor import examine\n"
        "from goodput_plugins.doctor.case import Case\n"
        "environ = {'GOODPUT_EXPORTERS': 'cloud-logging', 'GCE_METADATA_HOST': '127.0.0.1:9', 'GOODPUT_PROJECT': 'p'}\n"
        "for title, group in examine(Case(None, environ, now=time.time_ns())):\n"
        "    for one in group: print(one.id, one.level, one.text)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    assert "exporters wrong cloud-logging needs google.cloud.logging" in done.stdout
    assert "credentials wrong" in done.stdout and "permissions unknown" in done.stdout
    assert "fault of ours" not in done.stdout


def test_no_metadata_server_no_project_no_location(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    found = diagnoses(GOODPUT_EXPORTERS="cloud-monitoring", GCE_METADATA_HOST="127.0.0.1:9")
    is_wrong(found["metadata-server"], "no metadata server", "GOODPUT_PROJECT", level=Level.WARNING)
    assert "scopes" not in found
    given = {"GOODPUT_PROJECT": "p", "GOODPUT_LOCATION": "l", "GOODPUT_ACCELERATOR_TYPE": "a"}
    told = diagnoses(GOODPUT_EXPORTERS="cloud-monitoring", GCE_METADATA_HOST="127.0.0.1:9", **given)
    assert told["metadata-server"].level is told["location"].level is Level.OK
    is_wrong(found["project"], "GOODPUT_PROJECT")
    is_wrong(found["location"], "location global", "GOODPUT_LOCATION", level=Level.WARNING)
    if google_is_here():
        is_wrong(found["credentials"], "no usable credentials", "Workload Identity")


def google_is_here() -> bool:
    try:
        import google.auth  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.fixture
def here(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """A machine of that cloud, but for credentials: this process has none."""
    pytest.importorskip("google.auth", reason="google-auth is not installed here")
    pytest.importorskip("requests", reason="requests is not installed here")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    return cloud


def test_access_scopes(here: Cloud) -> None:
    here.metadata["instance/service-accounts/default/scopes"] = (
        "https://www.googleapis.com/auth/devstorage.read_only\nhttps://www.googleapis.com/auth/logging.write\n"
    )
    is_wrong(diagnoses(**here.environ)["scopes"], "do not cover cloud-monitoring", "--scopes=cloud-platform")
    del here.metadata["instance/service-accounts/default/scopes"]
    assert diagnoses(**here.environ)["scopes"].level is Level.UNKNOWN


def test_permissions(here: Cloud) -> None:
    here.permissions.remove("monitoring.timeSeries.create")
    found = diagnoses(**here.environ)["permissions"]
    is_wrong(found, "monitoring.timeSeries.create", "lacking in my-project", "roles/monitoring.metricWriter")
    assert "logging" not in f"{found.text} {found.cure}"


def test_a_log_that_cannot_be_read_back(here: Cloud) -> None:
    here.permissions.remove("logging.logEntries.list")
    found = diagnoses(**here.environ)["permissions"]
    is_wrong(found, "logging.logEntries.list", "empty disk", "roles/logging.viewer", level=Level.WARNING)


def test_permissions_on_a_bucket(here: Cloud, tmp_path: Path) -> None:
    environ = {**here.of_bucket, "GOODPUT_DIR": "gs://my-bucket/runs", "XDG_CACHE_HOME": str(tmp_path)}
    found = diagnoses(**environ)
    assert found["permissions"].level is found["reach"].level is Level.OK
    assert "granted in gs://my-bucket" in found["permissions"].text
    assert not {"project", "location", "apis"} & set(found)
    here.permissions.remove("storage.objects.delete")
    found = diagnoses(**environ)
    is_wrong(found["permissions"], "storage.objects.delete", "gs://my-bucket", "roles/storage.objectUser")


def test_an_endpoint_at_which_nothing_answers(here: Cloud) -> None:
    environ = {**here.environ, "GOODPUT_MONITORING_ENDPOINT": "127.0.0.1:9"}
    found = diagnoses(**environ)["reach"]
    is_wrong(found, "127.0.0.1:9 cannot be reached", "refused", "stays on disk", "GOODPUT_MONITORING_ENDPOINT")
    good = {**here.environ, "GOODPUT_MONITORING_ENDPOINT": f"127.0.0.1:{here.port}"}
    assert diagnoses(**good)["reach"].level is Level.OK


def test_a_machine_that_may_not_reach_google(here: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "unreached", lambda address: f"{address} timed out")
    is_wrong(diagnoses(**here.environ)["reach"], "googleapis.com cannot be reached", "timed out", "Private Google")
    assert "reach" not in diagnoses(**here.environ, HTTPS_PROXY="http://proxy:3128")


def test_the_project_that_a_monitor_of_the_script_names(here: Cloud, tmp_path: Path) -> None:
    """Nothing is set: what the run's script asked for is what is looked at."""
    run = write(tmp_path)
    labels = {"project": "my-project", "location": "us-east5-a"}
    asked = {"exporters": ["cloud-monitoring"], "started": ["goodput"], "interval": 30, "windows": [], "ideal": None}
    flags = {"tensorboard": "", "labels": labels, "badput": True, "gcp_goodput": True, "gcp_deviation": True}
    (run / "monitor.json").write_text(json.dumps({**asked, **flags}))
    environ = {**here.environ, "GOODPUT_EXPORTERS": "", "GCE_METADATA_HOST": "127.0.0.1:9"}
    found = diagnoses(run, **environ)
    assert "cloud-monitoring: asked for by the script" in found["exporters"].text
    assert "location us-east5-a" in found["location"].text and "project my-project" in found["project"].text
    here.permissions.remove("monitoring.timeSeries.create")
    is_wrong(diagnoses(run, **environ)["permissions"], "monitoring.timeSeries.create", "my-project")


def test_apis(here: Cloud) -> None:
    here.apis["monitoring.googleapis.com"] = "DISABLED"
    found = diagnoses(**here.environ)["apis"]
    is_wrong(found, "monitoring.googleapis.com is off", "gcloud services enable monitoring.googleapis.com")


def test_an_endpoint_on_the_loopback_interface_needs_no_credentials(here: Cloud) -> None:
    environ = {"GOODPUT_EXPORTERS": "cloud-logging", "GOODPUT_LOGGING_ENDPOINT": "127.0.0.1:9"}
    assert diagnoses(**{**here.environ, **environ})["credentials"].level is Level.OK


def test_services_that_do_not_tell(here: Cloud) -> None:
    here.status = 403
    found = diagnoses(**here.environ)
    for id in ("permissions", "apis"):
        is_wrong(found[id], "403 PERMISSION_DENIED", "gcloud", level=Level.UNKNOWN)


def test_a_service_that_does_not_answer(here: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(google.Unanswered):
            environ = {"GOODPUT_SERVICE_USAGE_ENDPOINT": address}
            google.enabled(environ, "my-project", ["monitoring.googleapis.com"])


def test_all_is_well_on_a_machine_of_the_cloud(cloud: Cloud, tmp_path: Path) -> None:
    """The whole command; the credentials are those that the metadata server gives."""
    pytest.importorskip("google.auth", reason="google-auth is not installed here")
    pytest.importorskip("google.cloud.monitoring_v3", reason="google-cloud-monitoring is not installed here")
    write(tmp_path, ARMED)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GOODPUT_", "GOOGLE_"))}
    environ = {**clean, **cloud.environ, "GOODPUT_DIR": str(tmp_path), "GOODPUT_PLUGINS": "auto", "HOME": str(tmp_path)}
    environ["GOODPUT_LOGGING_ENDPOINT"] = f"127.0.0.1:{cloud.port}"
    environ["HTTPS_PROXY"] = "http://127.0.0.1:9"  # so that Google itself is not connected to
    command = [sys.executable, "-m", "goodput_plugins", "doctor", "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)
    found = {one["id"]: one for one in json.loads(done.stdout)["checks"]}
    for id in ("metadata-server", "project", "location", "reach", "credentials", "scopes", "permissions", "apis"):
        assert found[id]["level"] == "ok", found[id]
    assert EMAIL in found["credentials"]["text"] and "TPU-v4p" in found["metadata-server"]["text"]
    assert done.returncode == 0, done.stderr


def told_by_agent(run: Path, *, age: float = 0, exporters: Any = None, **status: Any) -> Path:
    """What an agent writes beside the journals."""
    Status(**{"state": "shipping", **status}).save(run)
    told = json.loads((run / "agent.json").read_text())
    told |= {"moment": told["moment"] - age} | ({"exporters": exporters} if exporters else {})
    (run / "agent.json").write_text(json.dumps(told))
    return run


def test_uploads(tmp_path: Path) -> None:
    run = write(tmp_path)
    is_wrong(diagnoses(run, GOODPUT_EXPORTERS="prometheus")["uploads"], "no agent", level=Level.UNKNOWN)
    told_by_agent(run, state="failing", error="503 try again", unsent=5000)
    is_wrong(diagnoses(run)["uploads"], "503 try again", "5000 bytes wait", "agent.log")
    told_by_agent(run, entries=12, destination="the log goodput_digits")
    assert "12 entries were sent to the log goodput_digits" in diagnoses(run)["uploads"].text
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


@pytest.mark.parametrize("text", ["[1]", "{", '{"moment": "x", "entries": null, "exporters": 3, "state": 7}'])
def test_an_agents_status_that_is_none(tmp_path: Path, text: str) -> None:
    run = write(tmp_path)
    (run / "agent.json").write_text(text)
    assert all("fault of ours" not in diagnosis.text for diagnosis in diagnoses(run).values())


# --- the doctor itself --------------------------------------------------------------------------------


def test_a_check_that_hangs_or_fails_is_a_diagnosis() -> None:
    def hangs(case: Case) -> Iterator[Diagnosis]:
        time.sleep(5)
        yield ok("hangs", "")

    def fails(case: Case) -> Iterator[Diagnosis]:
        yield ok("fails", "half of it")
        raise RuntimeError("planted")

    case = Case(None, {}, now=0)
    began = time.monotonic()
    (late,) = examined(hangs, case, 0.2)
    assert late.level is Level.UNKNOWN and "no answer" in late.text
    assert time.monotonic() - began < 4
    assert "planted" in examined(fails, case)[-1].text


def test_each_line_has_its_row_in_the_docs_and_its_test_here() -> None:
    """Ids as the source spells them; those of plugins are made from their names."""
    sources = "".join(path.read_text() for path in (PACKAGE / "doctor").glob("*.py"))
    ids = set(re.findall(r'\b(?:ok|warning|wrong|unknown)\(\s*"([\w-]+)"', sources))
    page, tests = PACKAGE.parent / "docs" / "troubleshooting.md", Path(__file__).read_text()
    if not page.exists():
        pytest.skip("this is no clone")
    assert len(ids) > 20
    assert [id for id in ids if f"| `{id}` |" not in page.read_text()] == []
    assert [id for id in ids if f'"{id}"' not in tests] == []


def test_exit_code_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("GOODPUT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOODPUT_DIR", str(tmp_path))
    write(tmp_path, ARMED)
    assert main(["doctor", "digits", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "goodput-doctor/1" and told["counts"]["wrong"] == 0
    assert {"group", "id", "level", "text", "meaning", "cure"} == set(told["checks"][0])
    monkeypatch.setenv("GOODPUT_EVAL", "maybe")
    assert main(["doctor"]) == 1
    assert main(["doctor", "no-such-run"]) == 1
    assert "no-such-run" in capsys.readouterr().err


def test_it_reads_well_at_eighty_columns_and_without_colour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOODPUT_DIR", str(tmp_path))
    monkeypatch.setenv("GOODPUT_EVAL", "maybe")
    monkeypatch.setenv("COLUMNS", "80")
    write(tmp_path)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out and max(map(len, out.splitlines())) <= 80
    assert "✗ GOODPUT_EVAL=maybe is not known" in out
    assert "\n    → Correct it, or unset it." in out
