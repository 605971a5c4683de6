"""The places in Google Cloud that things are sent to, and what each asks for; ``docs/gke.md`` has the same table."""

from __future__ import annotations

from dataclasses import dataclass

from goodput_plugins import environ as env

BUCKET = "the bucket"
"""The destination of runs whose folder is ``gs://bucket/path``."""


@dataclass(frozen=True)
class Destination:
    """One of them.

    Attributes:
        name: the exporter's, or :data:`BUCKET`.
        api: the host of its API, and the name by which that is turned on.
        endpoint: what names another address.
        scopes: access scopes of which one is enough, after ``https://www.googleapis.com/auth/``.
        permissions: those without which nothing is sent.
        role: has them.
        reading: those without which nothing is read back.
        reading_role: has these.
    """

    name: str
    api: str
    endpoint: env.Variable
    scopes: tuple[str, ...]
    permissions: tuple[str, ...]
    role: str
    reading: tuple[str, ...] = ()
    reading_role: str = ""


DESTINATIONS = (
    Destination(
        "cloud-logging",
        api="logging.googleapis.com",
        endpoint=env.LOGGING_ENDPOINT,
        scopes=("cloud-platform", "logging.write", "logging.admin"),
        permissions=("logging.logEntries.create",),
        role="roles/logging.logWriter",
        reading=("logging.logEntries.list",),
        reading_role="roles/logging.viewer",
    ),
    Destination(
        "cloud-monitoring",
        api="monitoring.googleapis.com",
        endpoint=env.MONITORING_ENDPOINT,
        scopes=("cloud-platform", "monitoring.write", "monitoring"),
        permissions=("monitoring.timeSeries.create", "monitoring.metricDescriptors.create"),
        role="roles/monitoring.metricWriter",
    ),
    Destination(
        BUCKET,
        api="storage.googleapis.com",
        endpoint=env.STORAGE_EMULATOR,
        scopes=("cloud-platform", "devstorage.read_write", "devstorage.full_control"),
        permissions=("storage.objects.list", "storage.objects.get", "storage.objects.create", "storage.objects.delete"),
        role="roles/storage.objectUser",
    ),
)
