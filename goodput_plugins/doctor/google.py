"""Asking Google Cloud: who am I, what may I do, which APIs are on.

Through google-auth and plain REST. At an address of the user's on the loopback interface
(:mod:`goodput_plugins.exporters.endpoints`) it asks in plain text and anonymously.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from goodput_plugins import environ as env

TIMEOUT = 5.0
"""How long one answer may take, s."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class NoCredentials(Exception):
    """There are none, or Google gives no token for them."""


class Unanswered(Exception):
    """The service did not answer, or not to these credentials."""


def is_local(address: str) -> bool:
    """Whether ``host:port`` is on the loopback interface, where no credentials are sent."""
    try:
        from goodput_plugins.exporters.endpoints import is_loopback
    except ImportError:
        return False
    return is_loopback(_bare(address).rpartition(":")[0])


def identity() -> str:
    """Whose credentials this process has, once Google has given a token for them.

    Raises:
        NoCredentials: see there.
    """
    credentials = _credentials()
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

    try:
        credentials.refresh(Request())
    except GoogleAuthError as error:
        raise NoCredentials(_first_sentence(error)) from None
    who = getattr(credentials, "service_account_email", None) or getattr(credentials, "account", None)
    return str(who or "these credentials")


def unreached(address: str) -> str | None:
    """Why nothing takes a connection at ``host:port``, which may be a URL; None if something does."""
    host, _, port = _bare(address).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT).close()
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return None


def has_proxy(environ: Mapping[str, str]) -> bool:
    """Whether a proxy stands between this machine and Google."""
    return any(environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "grpc_proxy", "http_proxy"))


@dataclass(frozen=True)
class Resource:
    """What permissions are for, and who tells which of them the credentials have.

    Attributes:
        name: its own.
        service: who is asked, for people.
        address: of that.
        method, path: how.
    """

    name: str
    service: str
    address: str
    method: str
    path: str

    @classmethod
    def project(cls, environ: Mapping[str, str], name: str) -> Resource:
        """A project."""
        address = env.RESOURCE_MANAGER_ENDPOINT.read(environ) or "cloudresourcemanager.googleapis.com"
        return cls(name, "Resource Manager", address, "POST", f"/v1/projects/{name}:testIamPermissions")

    @classmethod
    def bucket(cls, environ: Mapping[str, str], name: str) -> Resource:
        """A bucket."""
        address = _bare(env.STORAGE_EMULATOR.read(environ)) or "storage.googleapis.com"
        path = f"/storage/v1/b/{name}/iam/testPermissions"
        return cls(f"gs://{name}", "Cloud Storage", address, "GET", path)


def permissions(of: Resource, wanted: Iterable[str]) -> set[str]:
    """Which of the permissions the credentials have.

    Raises:
        Unanswered: see there.
    """
    if of.method == "POST":
        answer = _ask(of.address, "POST", of.path, {"permissions": list(wanted)})
    else:
        query = "&".join(f"permissions={permission}" for permission in wanted)
        answer = _ask(of.address, "GET", f"{of.path}?{query}")
    return set(answer.get("permissions", ()))


def enabled(environ: Mapping[str, str], project: str, wanted: Iterable[str]) -> set[str]:
    """Which of the APIs are on.

    Raises:
        Unanswered: see there.
    """
    names = "&".join(f"names=projects/{project}/services/{api}" for api in wanted)
    path = f"/v1/projects/{project}/services:batchGet?{names}"
    answer = _ask(env.SERVICE_USAGE_ENDPOINT.read(environ) or "serviceusage.googleapis.com", "GET", path)
    on = [service for service in answer.get("services", ()) if service.get("state") == "ENABLED"]
    return {str(service.get("name")).rpartition("/")[2] for service in on}


def _ask(address: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    try:
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import AuthorizedSession
        from requests.exceptions import RequestException
    except ImportError as error:
        raise Unanswered(f"{error.name} is not installed") from None
    local = is_local(address)
    try:
        with AuthorizedSession(AnonymousCredentials() if local else _credentials()) as session:
            url = f"{'http' if local else 'https'}://{address}{path}"
            answer = session.request(method, url, json=body, timeout=TIMEOUT, max_allowed_time=TIMEOUT)
            told = answer.json() if answer.content else {}
    except NoCredentials:
        raise Unanswered("no credentials") from None
    except (GoogleAuthError, RequestException, ValueError) as error:
        raise Unanswered(_first_sentence(error)) from None
    if answer.status_code != 200 or not isinstance(told, dict):
        raise Unanswered(f"{answer.status_code} {_status(told)}".strip())
    return told


def _credentials() -> Any:
    try:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
    except ImportError:
        raise NoCredentials("google-auth is not installed") from None
    try:
        credentials, _ = google.auth.default(scopes=[SCOPE])
    except GoogleAuthError as error:
        raise NoCredentials(_first_sentence(error)) from None
    return credentials


def _bare(address: str) -> str:
    """``host:port`` of an address that may be a URL."""
    return address.partition("://")[2].rstrip("/") if "://" in address else address


def _status(told: Any) -> str:
    error = told.get("error") if isinstance(told, dict) else None
    return str(error.get("status", "")) if isinstance(error, dict) else ""


def _first_sentence(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].partition(". ")[0].rstrip(".")[:200] if lines else type(error).__name__
