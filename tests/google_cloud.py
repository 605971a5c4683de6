"""What a machine of Google Cloud may ask, answered on the loopback interface: metadata server, Resource Manager,
Service Usage, and of Cloud Storage the permissions."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

ACCOUNT = "instance/service-accounts/default"
EMAIL = "trainer@my-project.iam.gserviceaccount.com"


@dataclass
class Cloud:
    """What is answered; a test takes away what it needs to be missing.

    Attributes:
        metadata: values below ``computeMetadata/v1/``.
        permissions: those that are granted.
        apis: each with its state.
        status: an HTTP status that Resource Manager and Service Usage refuse with; 200: they answer.
        port: where.
    """

    metadata: dict[str, str] = field(
        default_factory=lambda: {
            "project/project-id": "my-project",
            "instance/zone": "projects/12345/zones/us-central2-b",
            "instance/machine-type": "projects/12345/machineTypes/ct4p-hightpu-4t",
            f"{ACCOUNT}/scopes": "https://www.googleapis.com/auth/cloud-platform\n",
            f"{ACCOUNT}/email": EMAIL,
            f"{ACCOUNT}/": json.dumps({"email": EMAIL, "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}),
            f"{ACCOUNT}/token": json.dumps({"access_token": "t", "expires_in": 3600, "token_type": "Bearer"}),
        }
    )
    permissions: set[str] = field(
        default_factory=lambda: {
            "logging.logEntries.create",
            "logging.logEntries.list",
            "monitoring.timeSeries.create",
            "monitoring.metricDescriptors.create",
            "storage.objects.list",
            "storage.objects.get",
            "storage.objects.create",
            "storage.objects.delete",
        }
    )
    apis: dict[str, str] = field(
        default_factory=lambda: {"monitoring.googleapis.com": "ENABLED", "logging.googleapis.com": "ENABLED"}
    )
    status: int = 200
    port: int = 0

    @property
    def of_bucket(self) -> dict[str, str]:
        """What is set besides where runs lie in a bucket, and no exporter is asked for."""
        emulator = f"http://127.0.0.1:{self.port}"
        return {**self.environ, "GOODPUT_EXPORTERS": "", "STORAGE_EMULATOR_HOST": emulator}

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a process on that machine."""
        address = f"127.0.0.1:{self.port}"
        return {
            "GCE_METADATA_HOST": address,
            "GCE_METADATA_IP": address,
            "GOODPUT_RESOURCE_MANAGER_ENDPOINT": address,
            "GOODPUT_SERVICE_USAGE_ENDPOINT": address,
            "GOODPUT_EXPORTERS": "cloud-monitoring,cloud-logging",
        }

    def answer(self, path: str, body: Any) -> tuple[int, str]:
        """The status and the text that a path gets."""
        path, _, query = path.partition("?")
        if path.startswith("/computeMetadata/v1/"):
            value = self.metadata.get(path.removeprefix("/computeMetadata/v1/"))
            return (404, "") if value is None else (200, value)
        if path == "/":
            return 200, "computeMetadata/"
        if self.status != 200:
            return self.status, json.dumps({"error": {"code": self.status, "status": "PERMISSION_DENIED"}})
        if path == "/v1/projects/my-project:testIamPermissions":
            return 200, json.dumps({"permissions": [one for one in body["permissions"] if one in self.permissions]})
        if path == "/storage/v1/b/my-bucket/iam/testPermissions":
            asked = [part.removeprefix("permissions=") for part in query.split("&")]
            return 200, json.dumps({"permissions": [one for one in asked if one in self.permissions]})
        if path == "/v1/projects/my-project/services:batchGet":
            asked = [part.removeprefix("names=").rpartition("/")[2] for part in query.split("&")]
            found = [{"name": f"projects/12345/services/{api}", "state": self.apis.get(api)} for api in asked]
            return 200, json.dumps({"services": found})
        return 404, ""


@contextmanager
def serving(cloud: Cloud) -> Iterator[Cloud]:
    """Answer as that cloud does."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
            status, text = cloud.answer(self.path, body)
            self.send_response(status)
            self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Type", "application/json" if text.startswith("{") else "application/text")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cloud.port = server.server_port
        yield cloud
        server.shutdown()
