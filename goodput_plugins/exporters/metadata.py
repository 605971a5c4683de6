"""What a Google Cloud machine knows of itself: its metadata server.

>>> here = Metadata()
>>> here.project, here.location, here.accelerator_type
('my-project', 'us-central2-b', 'TPU-v4p')

Elsewhere there is no such server, and every answer is None.
"""

from __future__ import annotations

import functools
import os
import urllib.error
import urllib.request
from collections.abc import Mapping

from goodput_plugins import environ as env

HOST = "metadata.google.internal"
TIMEOUT = 2.0
"""How long one question may take, s."""

ACCELERATORS = {
    "tpu7x": "TPU-7x",
    "ct6e": "TPU-v6e",
    "ct5p": "TPU-v5p",
    "ct5l": "TPU-v5e",
    "ct4p": "TPU-v4p",
    "a3-ultragpu": "NVIDIA-H200",
    "a3": "NVIDIA-H100",
    "a2": "NVIDIA-A100",
}
"""The accelerator of a machine type that begins so; the first that fits."""


class Metadata:
    """The metadata server of this machine.

    Args:
        environ: the environment; ``GCE_METADATA_HOST`` names another server.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = env.METADATA_HOST.read(environ) or HOST
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self._gone = False

    def get(self, path: str) -> str | None:
        """The value at a path below ``computeMetadata/v1/``; None where there is none."""
        if self._gone:
            return None
        address = f"http://{self._address}/computeMetadata/v1/{path}"
        asked = urllib.request.Request(address, headers={"Metadata-Flavor": "Google"})
        try:
            with self._open(asked, timeout=TIMEOUT) as answer:
                text: str = answer.read().decode()
                return text if answer.headers.get("Metadata-Flavor") == "Google" else None
        except urllib.error.HTTPError:
            return None
        except (OSError, ValueError):
            self._gone = True  # no such server: do not wait for it again
            return None

    @functools.cached_property
    def project(self) -> str | None:
        return self.get("project/project-id")

    @functools.cached_property
    def location(self) -> str | None:
        """The zone."""
        zone = self.get("instance/zone")
        return zone and zone.rpartition("/")[2]

    @functools.cached_property
    def instance(self) -> str | None:
        return self.get("instance/id")

    @functools.cached_property
    def cluster_name(self) -> str | None:
        """The GKE cluster."""
        return self.get("instance/attributes/cluster-name")

    @functools.cached_property
    def accelerator_type(self) -> str | None:
        """By the machine type; of a TPU VM, as it was asked for (``v5litepod-16``)."""
        machine = (self.get("instance/machine-type") or "").rpartition("/")[2]
        known = (name for begins, name in ACCELERATORS.items() if machine.startswith(begins))
        return next(known, None) or self.get("instance/attributes/accelerator-type")
