"""Whether Google Cloud would take what is sent there, as the doctor finds out; each with its fault planted."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from examining import ARMED, diagnoses, is_wrong, write
from google_cloud import EMAIL, Cloud, serving

from goodput_plugins.doctor import google
from goodput_plugins.doctor.diagnosis import Level

pytestmark = pytest.mark.usefixtures("one_interpreter_for_all", "no_network")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with serving(Cloud()) as served:
        yield served


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
