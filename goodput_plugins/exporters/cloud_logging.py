"""Writing entries to Cloud Logging: in requests as large as it takes, each entry once in effect.

>>> writer = Writer("my-project", "goodput_run-1")
>>> writer.write(entries)       # as `gcloud logging read --format=json` would print them
0

The limits are documented: an entry 256 KB, a request 10 MB. A timestamp that lies before the log's
retention, or more than a day ahead, makes an entry invisible, so it is moved to where it is not;
what happened when stands in the payload.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from goodput_plugins import environ as env
from goodput_plugins.exporters import google_cloud as cloud
from goodput_plugins.exporters.errors import Unavailable, Unreached

LARGEST_REQUEST = 4 * 1024 * 1024
"""How much goes into one request, bytes; Cloud Logging takes 10 MB."""
LARGEST_ENTRY = 250_000
"""Cloud Logging takes 256 KB."""
MOST_ENTRIES = 900
PATIENCE = 15.0
"""How long a request may take, s."""
OLDEST, NEWEST = timedelta(hours=20), timedelta(hours=20)
"""How far from now a timestamp may lie: the shortest retention is a day."""


def logger_of(run: str, environ: Mapping[str, str] = os.environ) -> str:
    """The log's name: $GOODPUT_LOGGER, else ``goodput_<run name>``, what a log cannot be called replaced."""
    return env.LOGGER.read(environ) or "goodput_" + re.sub(r"[^A-Za-z0-9_.-]", "_", run)[:400]


def log_name(project: str, logger: str) -> str:
    """The log's full name."""
    return f"projects/{project}/logs/{quote(logger, safe='')}"


class Service:
    """Cloud Logging's client, made when it is first needed, and anew after it failed.

    A channel that lost its server asks for it ever more seldom; a new one asks at once.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        try:
            from google.cloud.logging_v2.services.logging_service_v2 import LoggingServiceV2Client, transports
        except ImportError as error:
            raise Unavailable(f"google-cloud-logging cannot be used ({error}); {cloud.INSTALL}.") from None
        self._kinds = LoggingServiceV2Client, transports.LoggingServiceV2GrpcTransport
        self._address = env.LOGGING_ENDPOINT.read(environ)
        self._client: Any = None

    def call(self, method: str, request: Any, seconds: float = PATIENCE) -> Any:
        """Call a method once; see :func:`cloud.call`."""
        if self._client is None:
            self._client = cloud.client(*self._kinds, self._address)
        try:
            return cloud.call(getattr(self._client, method), request, seconds)
        except Unreached:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.transport.close()


class Writer:
    """Writes to one log.

    Args:
        project: the project's id.
        logger: the log's name.

    Raises:
        Unavailable: google-cloud-logging is not installed.
    """

    def __init__(self, project: str, logger: str, environ: Mapping[str, str] = os.environ) -> None:
        self.destination = log_name(project, logger)
        self._service = Service(environ)
        self._resource = {"type": "global", "labels": {"project_id": project}}

    def write(self, entries: Sequence[Mapping[str, Any]], seconds: float = PATIENCE) -> int:
        """Write entries.

        Args:
            entries: as dictionaries of ``insertId``, ``severity``, ``jsonPayload`` and, perhaps, ``timestamp``.
            seconds: how long each request may take.

        Returns:
            How many of them Cloud Logging refuses, for ever.

        Raises:
            Unreached: some were not written; writing all of them again does no harm.
        """
        now = time.time()
        made = [_entry(entry, now) for entry in entries]
        fitting = [entry for entry in made if entry.ByteSize() <= LARGEST_ENTRY]
        refused = sum(self._write(group, seconds) for group in _groups(fitting))
        return refused + len(made) - len(fitting)

    def close(self) -> None:
        """Close the connection."""
        self._service.close()

    def _write(self, group: list[Any], seconds: float) -> int:
        """Write a group; how many of its entries were refused."""
        from google.api_core.exceptions import InvalidArgument
        from google.cloud.logging_v2.types import WriteLogEntriesRequest

        request = WriteLogEntriesRequest(log_name=self.destination, resource=self._resource, partial_success=True)
        WriteLogEntriesRequest.pb(request).entries.extend(group)
        try:
            self._service.call("write_log_entries", request, seconds)
            return 0
        except InvalidArgument as error:
            partial = _partial_errors(error)
        if partial:
            if any(code != _INVALID for code in partial.values()):
                raise Unreached("Cloud Logging took some entries of a request and not others")
            return len(partial)
        if len(group) == 1:
            return 1
        middle = len(group) // 2
        return self._write(group[:middle], seconds) + self._write(group[middle:], seconds)


_INVALID = 3
"""The code of INVALID_ARGUMENT."""


def _groups(entries: Sequence[Any]) -> Iterator[list[Any]]:
    """The entries in groups that fit into a request."""
    group: list[Any] = []
    size = 0
    for entry in entries:
        length = entry.ByteSize()
        if group and (size + length > LARGEST_REQUEST or len(group) == MOST_ENTRIES):
            yield group
            group, size = [], 0
        group.append(entry)
        size += length
    if group:
        yield group


def _entry(entry: Mapping[str, Any], now: float) -> Any:
    """An entry as the library has it: of protobuf, which is a tenth of the work of its wrapper."""
    from google.cloud.logging_v2.types import LogEntry
    from google.logging.type.log_severity_pb2 import LogSeverity

    made = LogEntry.pb(LogEntry())
    made.insert_id = entry["insertId"]
    made.severity = LogSeverity.Value(entry.get("severity", "DEFAULT"))
    made.json_payload.update(entry["jsonPayload"])
    if "timestamp" in entry:
        made.timestamp.FromDatetime(_visible(datetime.fromisoformat(entry["timestamp"]), now))
    return made


def _visible(moment: datetime, now: float) -> datetime:
    """That moment, or the nearest to it at which an entry can be seen."""
    here = datetime.fromtimestamp(now, UTC)
    return min(max(moment, here - OLDEST), here + NEWEST)


def _partial_errors(error: Any) -> dict[int, int]:
    """Which entries of a request were not written, and the code of each one's error."""
    from google.cloud.logging_v2.types import WriteLogEntriesPartialErrors

    for detail in error.details:
        told = WriteLogEntriesPartialErrors.pb(WriteLogEntriesPartialErrors())
        if getattr(detail, "Is", None) and detail.Is(told.DESCRIPTOR):
            detail.Unpack(told)
            return {index: status.code for index, status in told.log_entry_errors.items()}
    return {}
