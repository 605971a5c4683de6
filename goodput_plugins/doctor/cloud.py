"""Would Google Cloud take what the exporters send, and has it?

Nothing here is asked unless ``GOODPUT_EXPORTERS`` names an exporter that sends there.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from goodput_plugins import environ as env
from goodput_plugins.doctor import google
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.diagnosis import Diagnosis, ok, unknown, warning, wrong

PERMISSIONS = {
    "cloud-logging": ("logging.logEntries.create",),
    "cloud-monitoring": ("monitoring.timeSeries.create", "monitoring.metricDescriptors.create"),
}
ROLES = {"cloud-logging": "roles/logging.logWriter", "cloud-monitoring": "roles/monitoring.metricWriter"}
APIS = {"cloud-logging": "logging.googleapis.com", "cloud-monitoring": "monitoring.googleapis.com"}
SCOPES = {
    "cloud-logging": ("cloud-platform", "logging.write", "logging.admin"),
    "cloud-monitoring": ("cloud-platform", "monitoring.write", "monitoring"),
}
"""Access scopes of which one is enough, after ``https://www.googleapis.com/auth/``."""
ENDPOINTS = {"cloud-logging": env.LOGGING_ENDPOINT, "cloud-monitoring": env.MONITORING_ENDPOINT}
LIBRARIES = {
    "cloud-logging": ("google.cloud.logging", "gcp"),
    "cloud-monitoring": ("google.cloud.monitoring_v3", "gcp"),
    "tensorboard": ("tensorboardX", "tensorboard"),
    "prometheus": ("prometheus_client", "prometheus"),
}
"""What each exporter imports, and our extra that brings it."""


def exporters(case: Case) -> Iterator[Diagnosis]:
    """What is asked for, and whether its libraries are here."""
    if not case.exporters:
        yield ok("exporters", "GOODPUT_EXPORTERS is not set", "Nothing is sent anywhere, so the rest is not checked.")
        return
    extras = {}
    for exporter in case.exporters:
        module, extra = LIBRARIES[exporter]
        if not _importable(module):
            extras[exporter] = extra
    for exporter, extra in extras.items():
        text = f"{exporter} needs {LIBRARIES[exporter][0]}, which is not installed here"
        yield wrong("exporters", text, "Nothing is sent there.", f"pip install 'goodput-plugins[{extra}]'")
    if not extras:
        yield ok("exporters", f"{', '.join(case.exporters)}: asked for, libraries installed")


def metadata_server(case: Case) -> Iterator[Diagnosis]:
    """Whether this machine is one of Google Cloud."""
    if not _in_cloud(case):
        return
    if case.metadata.project:
        here = f"{case.metadata.location or 'no zone'}, {case.metadata.accelerator_type or 'no accelerator known'}"
        yield ok("metadata-server", f"it answers: project {case.metadata.project}, {here}")
    else:
        yield warning(
            "metadata-server",
            "no metadata server answers",
            "This is no machine of Google Cloud, or a pod that cannot reach the server. Project, location and "
            "accelerator are not found by themselves.",
            "Set GOODPUT_PROJECT, GOODPUT_LOCATION and GOODPUT_ACCELERATOR_TYPE.",
        )


def project(case: Case) -> Iterator[Diagnosis]:
    """Which project is written to."""
    if not _in_cloud(case):
        return
    found = case.project
    if found:
        yield ok("project", f"writes go to the project {found}")
    else:
        yield wrong("project", "no project is known", "Nothing can be sent.", "Set GOODPUT_PROJECT.")


def location(case: Case) -> Iterator[Diagnosis]:
    """The label ``location`` of the series."""
    if "cloud-monitoring" not in case.exporters:
        return
    found = env.LOCATION.read(case.environ) or case.metadata.location
    if found:
        yield ok("location", f"series have the location {found}")
    else:
        text, meaning = "no location is known", "Cloud Monitoring refuses a series without one."
        yield wrong("location", text, meaning, "Set GOODPUT_LOCATION to a zone, such as us-central2-b.")


def credentials(case: Case) -> Iterator[Diagnosis]:
    """Whether there are credentials, and Google gives a token for them."""
    if not _in_cloud(case):
        return
    if all(google.is_local(ENDPOINTS[exporter].read(case.environ)) for exporter in _wanted(case)):
        yield ok("credentials", "it is sent to a loopback address, where none are needed")
        return
    try:
        who = google.identity()
    except google.NoCredentials as fault:
        yield wrong(
            "credentials",
            f"no usable credentials ({fault})",
            "Nothing can be sent to Google Cloud from here.",
            "On GKE bind the pod's service account (Workload Identity); on a VM give it a service account; elsewhere: "
            "gcloud auth application-default login",
        )
    else:
        yield ok("credentials", f"Google gives a token for {who}")


def scopes(case: Case) -> Iterator[Diagnosis]:
    """Access scopes of the machine, which bound what its service account may do."""
    if not _in_cloud(case) or case.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return
    told = case.metadata.get("instance/service-accounts/default/scopes")
    if told is None:
        yield unknown("scopes", "the machine tells no access scopes", "Only machines of Google Cloud have them.")
        return
    had = {scope.rpartition("/")[2] for scope in told.split()}
    lacking = [exporter for exporter in _wanted(case) if not had.intersection(SCOPES[exporter])]
    for exporter in lacking:
        yield wrong(
            "scopes",
            f"this machine's access scopes do not cover {exporter}",
            "Google refuses what is sent, whatever the service account may do.",
            "Make the VM or node pool anew with --scopes=cloud-platform; scopes of a GKE node pool cannot be changed.",
        )
    if not lacking:
        yield ok("scopes", "the machine's access scopes cover it")


def permissions(case: Case) -> Iterator[Diagnosis]:
    """What the credentials may do in the project."""
    found = case.project
    if not _in_cloud(case) or not found:
        return
    wanted = [permission for exporter in _wanted(case) for permission in PERMISSIONS[exporter]]
    try:
        had = google.permissions(case, found, wanted)
    except google.Unanswered as fault:
        cure = f"gcloud projects get-iam-policy {found}"
        text = f"Resource Manager could not be asked ({fault})"
        yield unknown("permissions", text, f"Whether {', '.join(wanted)} is granted is not known.", cure)
        return
    lacking = [permission for permission in wanted if permission not in had]
    if lacking:
        roles = " and ".join(ROLES[one] for one in _wanted(case) if {*PERMISSIONS[one]} & {*lacking})
        yield wrong(
            "permissions",
            f"{', '.join(lacking)} is lacking in {found}",
            "Google refuses what is sent.",
            f"Grant {roles} to the service account that trains.",
        )
    else:
        yield ok("permissions", f"{', '.join(wanted)}: granted")


def apis(case: Case) -> Iterator[Diagnosis]:
    """Whether the APIs are on in the project."""
    found = case.project
    if not _in_cloud(case) or not found:
        return
    wanted = [APIS[exporter] for exporter in _wanted(case)]
    try:
        on = google.enabled(case, found, wanted)
    except google.Unanswered as fault:
        text = f"Service Usage could not be asked ({fault})"
        yield unknown("apis", text, "Whether the APIs are on is not known.", f"gcloud services list --project={found}")
        return
    off = [api for api in wanted if api not in on]
    if off:
        cure = f"gcloud services enable {' '.join(off)} --project={found}"
        yield wrong("apis", f"{', '.join(off)} is off in {found}", "Google refuses what is sent.", cure)
    else:
        yield ok("apis", f"{', '.join(wanted)}: on")


def _in_cloud(case: Case) -> bool:
    return any(exporter in APIS for exporter in case.exporters)


def _wanted(case: Case) -> list[str]:
    """The exporters that send to Google, in the table's order."""
    return [exporter for exporter in APIS if exporter in case.exporters]


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


CHECKS = (exporters, metadata_server, project, location, credentials, scopes, permissions, apis)
