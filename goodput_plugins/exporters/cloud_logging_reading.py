"""Reading a job's entries back from Cloud Logging: page by page, within its quota, only what is new.

What was read is kept in a file, as ``gcloud logging read --format=json`` would print it, an entry a line.
The next time only what came later is asked for; a reading that was interrupted goes on where it was::

    reading = Reading(folder, project, logger, run)
    while reading.next_page():
        ...
    logs = read(reading.path)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from goodput_plugins.exporters.cloud_logging import Service, log_name
from goodput_plugins.exporters.errors import Unreached

PAGE = 1000
"""Entries a page; Cloud Logging gives no more."""
PATIENCE = 60.0
"""How long a page may take, s."""
LATE = timedelta(minutes=1)
"""An entry may become visible so long after one that was received later."""


class Reading:
    """What a log holds of one job, as far as it was read.

    Args:
        folder: where to keep it; made if it is not there.
        project: the project's id.
        logger: the log's name.
        run: the job's name.
        since: read only what was written after this moment; None: all that there is.

    Attributes:
        path: the file of entries.
        count: how many entries were read by this object.
        newest: when the newest entry of the last page was written, as the log tells it.

    Raises:
        Unavailable: google-cloud-logging is not installed.
        OSError: nothing can be kept there.
    """

    def __init__(
        self,
        folder: Path,
        project: str,
        logger: str,
        run: str,
        *,
        since: datetime | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "entries.jsonl"
        self.count = 0
        self.newest = ""
        self._cursor = Cursor(folder / "cursor.json", self.path)
        self._project = project
        self._wanted = _filter(project, logger, run, since)
        self._service = Service(environ)
        self._over = False

    def next_page(self) -> bool:
        """Read a page; False if there was none any more.

        Raises:
            Unreached: not now; the same call may be tried again.
        """
        if self._over:
            return False
        from google.api_core.exceptions import InvalidArgument
        from google.cloud.logging_v2.types import ListLogEntriesRequest

        cursor = self._cursor
        request = ListLogEntriesRequest(
            resource_names=[f"projects/{self._project}"],
            filter=cursor.filter(self._wanted),
            order_by="timestamp asc",
            page_size=PAGE,
            page_token=cursor.token,
        )
        try:
            pager = self._service.call("list_log_entries", request, PATIENCE)
            page = next(iter(pager.pages))
        except InvalidArgument as error:
            if not cursor.token:
                raise Unreached(f"Cloud Logging does not understand what is asked ({error})", slow=True) from error
            cursor.start_again()  # the place in the list is too old
            return True
        self._take(page)
        return True

    def _take(self, page: Any) -> None:
        pages = [_readable(entry) for entry in type(page).pb(page).entries]
        self.count += len(pages)
        if pages:
            self.newest = pages[-1].get("timestamp", "")
        self._over = not page.next_page_token
        self._cursor.take(pages, page.next_page_token)

    def close(self) -> None:
        """Close the connection."""
        self._service.close()


class Cursor:
    """How far a file of entries has got, kept beside it.

    Attributes:
        token: the place in the list that is being read; empty at its beginning.
    """

    def __init__(self, path: Path, entries: Path) -> None:
        self._path = path
        self._entries = entries
        held = _held(path)
        self.token: str = held.get("token", "")
        self._since: str = held.get("since", "")
        self._newest: str = held.get("newest", "")
        self._length: int = held.get("length", 0)
        self._begin: int = held.get("begin", 0)
        self._recent: dict[str, str] = held.get("recent", {})
        with entries.open("ab") as file:
            if file.tell() < self._length:  # it is not what the cursor knows
                self.token = self._since = self._newest = ""
                self._length = self._begin = 0
                self._recent = {}
            file.truncate(self._length)

    def filter(self, wanted: str) -> str:
        """The filter of the list that is being read."""
        return wanted + (f' AND receiveTimestamp>="{self._since}"' if self._since else "")

    def start_again(self) -> None:
        """Read the list from its beginning."""
        self.token = ""
        self._cut(self._begin)

    def take(self, entries: list[dict[str, Any]], token: str) -> None:
        """Keep a page, and the place of the next."""
        new = [entry for entry in entries if entry["insertId"] not in self._recent]
        with self._entries.open("ab") as file:
            file.write(b"".join(json.dumps(entry).encode() + b"\n" for entry in new))
            self._length = file.tell()
        self._recent |= {entry["insertId"]: entry.get("receiveTimestamp", "") for entry in new}
        self._newest = max([self._newest, *self._recent.values()])
        self.token = token
        if not token:
            self._begin = self._length
            if self._newest:
                late = datetime.fromisoformat(self._newest) - LATE
                self._since = late.isoformat().replace("+00:00", "Z")
        self._recent = {name: received for name, received in self._recent.items() if received >= self._since}
        self._save()

    def _cut(self, length: int) -> None:
        os.truncate(self._entries, length)
        self._length = length
        self._recent = {}
        self._save()

    def _save(self) -> None:
        held = {
            "token": self.token,
            "since": self._since,
            "newest": self._newest,
            "length": self._length,
            "begin": self._begin,
            "recent": self._recent,
        }
        beside = self._path.with_suffix(".tmp")
        beside.write_text(json.dumps(held))
        os.replace(beside, self._path)


def _held(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _filter(project: str, logger: str, run: str, since: datetime | None) -> str:
    """Without a timestamp in the filter some clients ask for the last day only."""
    begin = "1970-01-01T00:00:00Z" if since is None else since.isoformat()
    return (
        f"logName={json.dumps(log_name(project, logger))} AND jsonPayload.job_name={json.dumps(run)} "
        f'AND timestamp>="{begin}"'
    )


def _readable(entry: Any) -> dict[str, Any]:
    """An entry as ``gcloud logging read --format=json`` prints it, what no reader needs left out."""
    from google.protobuf.json_format import MessageToDict

    told: dict[str, Any] = {"insertId": entry.insert_id}
    if entry.HasField("timestamp"):
        told["timestamp"] = entry.timestamp.ToJsonString()
    if entry.HasField("receive_timestamp"):
        told["receiveTimestamp"] = entry.receive_timestamp.ToJsonString()
    if entry.HasField("json_payload"):
        told["jsonPayload"] = MessageToDict(entry.json_payload)
    return told
