"""What a machine knows of itself, from a server that answers as the metadata server does."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator

import pytest

from goodput_plugins.exporters.metadata import Metadata

VALUES = {
    "project/project-id": "my-project",
    "instance/zone": "projects/12345/zones/us-central2-b",
    "instance/id": "987",
    "instance/machine-type": "projects/12345/machineTypes/ct4p-hightpu-4t",
    "instance/attributes/cluster-name": "my-cluster",
}


@pytest.fixture
def values() -> dict[str, str]:
    return dict(VALUES)


@pytest.fixture
def here(values: dict[str, str]) -> Iterator[Metadata]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = values.get(self.path.removeprefix("/computeMetadata/v1/"))
            asked = self.headers.get("Metadata-Flavor") == "Google"
            self.send_response(200 if value is not None and asked else 404 if asked else 403)
            self.send_header("Metadata-Flavor", "Google")
            self.end_headers()
            self.wfile.write((value or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Metadata({"GCE_METADATA_HOST": f"127.0.0.1:{server.server_port}"})
        server.shutdown()


def test_a_machine_tells_where_and_what_it_is(here: Metadata) -> None:
    assert (here.project, here.location, here.instance) == ("my-project", "us-central2-b", "987")
    assert (here.cluster_name, here.accelerator_type) == ("my-cluster", "TPU-v4p")


@pytest.mark.parametrize(
    ("machine", "accelerator"),
    [
        ("ct6e-standard-4t", "TPU-v6e"),
        ("ct5p-hightpu-4t", "TPU-v5p"),
        ("ct5lp-hightpu-4t", "TPU-v5e"),
        ("ct5l-hightpu-8t", "TPU-v5e"),
        ("tpu7x-standard-4t", "TPU-7x"),
        ("a3-highgpu-8g", "NVIDIA-H100"),
        ("a3-ultragpu-8g", "NVIDIA-H200"),
        ("a2-ultragpu-1g", "NVIDIA-A100"),
        ("n2-standard-8", None),
    ],
)
def test_the_machine_type_tells_the_accelerator(
    here: Metadata, values: dict[str, str], machine: str, accelerator: str | None
) -> None:
    values["instance/machine-type"] = f"projects/12345/machineTypes/{machine}"
    assert here.accelerator_type == accelerator


def test_a_tpu_vm_is_what_was_asked_for(here: Metadata, values: dict[str, str]) -> None:
    values["instance/machine-type"] = "projects/12345/machineTypes/n2d-48-24-v2-tpu"
    values["instance/attributes/accelerator-type"] = "v5litepod-16"
    assert here.accelerator_type == "v5litepod-16"


def test_what_it_does_not_know_is_none(here: Metadata, values: dict[str, str]) -> None:
    values.clear()
    assert (here.project, here.location, here.cluster_name, here.accelerator_type) == (None,) * 4


def test_elsewhere_there_is_no_such_server_and_that_is_found_out_once() -> None:
    nowhere = Metadata({"GCE_METADATA_HOST": "127.0.0.1:9"})
    began = time.monotonic()
    assert (nowhere.project, nowhere.location, nowhere.accelerator_type, nowhere.instance) == (None,) * 4
    assert time.monotonic() - began < 5
