"""Would Google Cloud take what is sent there?

Nothing here is asked unless ``GOODPUT_EXPORTERS`` or the script names an exporter that sends there, or runs lie in a
bucket of Cloud Storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec

from goodput_plugins import environ as env
from goodput_plugins.core import rundir
from goodput_plugins.doctor import google
from goodput_plugins.doctor.case import Case
from goodput_plugins.doctor.destinations import BUCKET, DESTINATIONS, Destination
from goodput_plugins.doctor.diagnosis import Diagnosis, ok, unknown, warning, wrong

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
        told = env.EXPORTERS.read(case.environ)
        text = f"GOODPUT_EXPORTERS is {told}" if told else "GOODPUT_EXPORTERS is not set here"
        where = "to the bucket only" if _wanted(case) else "nowhere; whether it could be is not checked"
        yield ok("exporters", text, f"What a training that starts from here records is sent {where}.")
        return
    missing = [exporter for exporter in case.exporters if not _importable(LIBRARIES[exporter][0])]
    for exporter in missing:
        module, extra = LIBRARIES[exporter]
        text = f"{exporter} needs {module}, which is not installed here"
        yield wrong("exporters", text, "Nothing is sent there.", f"pip install 'goodput-plugins[{extra}]'")
    if not missing:
        who = "" if case.named else " by the script"
        yield ok("exporters", f"{', '.join(case.exporters)}: asked for{who}, libraries installed")


def metadata_server(case: Case) -> Iterator[Diagnosis]:
    """Whether this machine is one of Google Cloud."""
    if not _wanted(case):
        return
    if case.metadata.project:
        here = f"{case.metadata.location or 'no zone'}, {case.metadata.accelerator_type or 'no accelerator known'}"
        cluster = f", cluster {case.metadata.cluster_name}" if case.metadata.cluster_name else ""
        yield ok("metadata-server", f"the metadata server tells: project {case.metadata.project}, {here}{cluster}")
        return
    lacking = _not_given(case)
    if lacking:
        yield warning(
            "metadata-server",
            "no metadata server answers",
            "This is no machine of Google Cloud, or a pod that cannot reach it: what it would tell must be set.",
            f"Set {' and '.join(lacking)}.",
        )
    else:
        yield ok("metadata-server", "no metadata server answers, and nothing is asked of it")


def _not_given(case: Case) -> list[str]:
    """The variables for what neither they, nor the script, nor the machine tell."""
    given = {
        env.PROJECT: all(case.project_of(one.name) for one in _of_projects(case)),
        env.LOCATION: "cloud-monitoring" not in case.exporters or "location" in case.labels,
        env.ACCELERATOR_TYPE: "cloud-monitoring" not in case.exporters or "accelerator" in case.labels,
    }
    return [variable.name for variable, is_given in given.items() if not is_given]


def project(case: Case) -> Iterator[Diagnosis]:
    """Which project is written to."""
    projects = {case.project_of(one.name) for one in _of_projects(case)}
    if None in projects:
        yield wrong("project", "no project is known", "Nothing can be sent.", "Set GOODPUT_PROJECT.")
    elif projects:
        yield ok("project", f"writes go to the project {' and '.join(sorted(filter(None, projects)))}")


def location(case: Case) -> Iterator[Diagnosis]:
    """The label ``location`` of the series."""
    if "cloud-monitoring" not in case.exporters:
        return
    found = case.labels.get("location") or case.metadata.location
    if found:
        yield ok("location", f"series have the location {found}")
    else:
        yield warning(
            "location",
            "series have the location global, since no other one is known",
            "They are written all the same; a chart by location does not tell this run's zone.",
            "Set GOODPUT_LOCATION to a zone, such as us-central2-b.",
        )


def reach(case: Case) -> Iterator[Diagnosis]:
    """Whether something answers where things are sent to; what a proxy leads to is not asked."""
    answering = []
    for one in _wanted(case):
        address = one.endpoint.read(case.environ)
        if not address and google.has_proxy(case.environ):
            continue
        why = google.unreached(address or f"{one.api}:443")
        if why is None:
            answering.append(address or one.api)
            continue
        yield wrong(
            "reach",
            f"{address or one.api} cannot be reached ({why})",
            f"What goes to {one.name} stays on disk, and is sent once it can be.",
            f"Correct {one.endpoint.name}, or unset it."
            if address
            else "Let this machine out: Private Google Access on its subnet, a NAT, or a proxy in HTTPS_PROXY.",
        )
    if answering:
        yield ok("reach", f"connected to {', '.join(answering)}")


def credentials(case: Case) -> Iterator[Diagnosis]:
    """Whether there are credentials, and Google gives a token for them."""
    if not _wanted(case):
        return
    if all(google.is_local(one.endpoint.read(case.environ)) for one in _wanted(case)):
        yield ok("credentials", "all is sent to loopback addresses, where no credentials are needed")
        return
    try:
        who = google.identity()
    except google.NoCredentials as fault:
        yield wrong(
            "credentials",
            f"no usable credentials: {fault}",
            "Nothing can be sent to Google Cloud from here.",
            "On GKE bind the pod's service account (Workload Identity); on a VM give it a service account; elsewhere: "
            "gcloud auth application-default login",
        )
    else:
        yield ok("credentials", f"Google gives a token for {who}")


def scopes(case: Case) -> Iterator[Diagnosis]:
    """Access scopes of the machine, which bound what its service account may do."""
    if not _wanted(case) or case.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or not case.metadata.project:
        return
    told = case.metadata.get("instance/service-accounts/default/scopes")
    if told is None:
        yield unknown("scopes", "the machine tells no access scopes", "It has no service account.")
        return
    had = {scope.rpartition("/")[2] for scope in told.split()}
    lacking = [one.name for one in _wanted(case) if not had.intersection(one.scopes)]
    for name in lacking:
        yield wrong(
            "scopes",
            f"this machine's access scopes do not cover {name}",
            "Google refuses what is sent, whatever the service account may do.",
            "Make the VM or node pool anew with --scopes=cloud-platform; scopes of a GKE node pool cannot be changed.",
        )
    if not lacking:
        yield ok("scopes", "the machine's access scopes cover it")


def permissions(case: Case) -> Iterator[Diagnosis]:
    """What the credentials may do, in each project and in the bucket."""
    for found in dict.fromkeys(case.project_of(one.name) for one in _of_projects(case)):
        if found:
            here = [one for one in _of_projects(case) if case.project_of(one.name) == found]
            asked = google.Resource.project(case.environ, found)
            yield from _permissions(here, asked, f"gcloud projects get-iam-policy {found}")
    for bucket in (one for one in _wanted(case) if one.name == BUCKET):
        name = rundir.remote(case.environ).removeprefix("gs://").partition("/")[0]
        asked = google.Resource.bucket(case.environ, name)
        yield from _permissions([bucket], asked, f"gcloud storage buckets get-iam-policy gs://{name}")


def _permissions(of: list[Destination], asked: google.Resource, by_hand: str) -> Iterator[Diagnosis]:
    """What the credentials may do with one resource."""
    wanted = [permission for one in of for permission in (*one.permissions, *one.reading)]
    try:
        had = google.permissions(asked, wanted)
    except google.Unanswered as fault:
        meaning = f"Whether {', '.join(wanted)} is granted is not known."
        yield unknown("permissions", f"{asked.service} could not be asked ({fault})", meaning, by_hand)
        return
    lacking = [one for one in of if not had.issuperset(one.permissions)]
    unread = [one for one in of if not had.issuperset(one.reading)]
    if lacking:
        names = _lacking(had, (permission for one in lacking for permission in one.permissions))
        cure = f"Grant {' and '.join(one.role for one in lacking)} to the service account that trains."
        yield wrong("permissions", f"{names} is lacking in {asked.name}", "Google refuses what is sent.", cure)
    if unread:
        yield warning(
            "permissions",
            f"{_lacking(had, (permission for one in unread for permission in one.reading))} is lacking in {asked.name}",
            "It is sent, and cannot be read back: a restart on an empty disk does not know the attempts before it, and "
            "`goodput report --project` fails.",
            f"Grant {' and '.join(one.reading_role for one in unread)} to the service account that trains.",
        )
    if not lacking and not unread:
        yield ok("permissions", f"{', '.join(wanted)}: granted in {asked.name}")


def _lacking(had: set[str], wanted: Iterable[str]) -> str:
    return ", ".join(permission for permission in wanted if permission not in had)


def apis(case: Case) -> Iterator[Diagnosis]:
    """Whether the APIs are on in each project."""
    for found in dict.fromkeys(case.project_of(one.name) for one in _of_projects(case)):
        if found:
            yield _apis(case, found, [one.api for one in _of_projects(case) if case.project_of(one.name) == found])


def _apis(case: Case, project: str, wanted: list[str]) -> Diagnosis:
    try:
        on = google.enabled(case.environ, project, wanted)
    except google.Unanswered as fault:
        text, cure = f"Service Usage could not be asked ({fault})", f"gcloud services list --project={project}"
        return unknown("apis", text, "Whether the APIs are on is not known.", cure)
    off = [api for api in wanted if api not in on]
    if off:
        cure = f"gcloud services enable {' '.join(off)} --project={project}"
        return wrong("apis", f"{', '.join(off)} is off in {project}", "Google refuses what is sent.", cure)
    return ok("apis", f"{', '.join(wanted)}: on")


def _wanted(case: Case) -> list[Destination]:
    """The places in Google Cloud that are sent to."""
    in_bucket = rundir.remote(case.environ).startswith("gs://")
    return [one for one in DESTINATIONS if one.name in case.exporters or (one.name == BUCKET and in_bucket)]


def _of_projects(case: Case) -> list[Destination]:
    """Those of them that belong to the project that is written to."""
    return [one for one in _wanted(case) if one.name != BUCKET]


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


CHECKS = (exporters, metadata_server, project, location, reach, credentials, scopes, permissions, apis)
