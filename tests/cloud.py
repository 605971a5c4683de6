"""Cloud Logging on this machine: its real protocol, its documented limits, and whatever may go wrong with it.

>>> with Cloud() as cloud:
...     run(script, **cloud.environ)
...     cloud.entries()
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent import futures
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

import grpc
from google.cloud.logging_v2.types import (
    ListLogEntriesRequest,
    ListLogEntriesResponse,
    WriteLogEntriesPartialErrors,
    WriteLogEntriesRequest,
    WriteLogEntriesResponse,
)
from google.protobuf.json_format import MessageToDict
from google.rpc import status_pb2
from grpc_status import rpc_status

PROJECT = "a-project"
SERVICE = "google.logging.v2.LoggingServiceV2"
LARGEST_ENTRY, LARGEST_REQUEST = 256 * 1024, 10 * 1024 * 1024
RETENTION = timedelta(days=30)
READS_A_MINUTE = 60

WriteRequest = WriteLogEntriesRequest.pb(WriteLogEntriesRequest()).__class__
WriteResponse = WriteLogEntriesResponse.pb(WriteLogEntriesResponse()).__class__
ListRequest = ListLogEntriesRequest.pb(ListLogEntriesRequest()).__class__
ListResponse = ListLogEntriesResponse.pb(ListLogEntriesResponse()).__class__
PartialErrors = WriteLogEntriesPartialErrors.pb(WriteLogEntriesPartialErrors()).__class__

Fault = Callable[[Any, grpc.ServicerContext], None]


class Cloud:
    """A server on a loopback address.

    Attributes:
        written: each entry that was taken, in order, those written twice twice.
        requests: how many entries each write held.
        faults: what the next calls meet before they are served; each once.
        always: what every call meets.
        reads: when each page was asked for.
        now: the server's clock, s.
    """

    def __init__(self, *, reads_a_minute: int = READS_A_MINUTE, port: int = 0) -> None:
        self.written: list[Any] = []
        self.requests: list[int] = []
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.reads: list[float] = []
        self.refused_reads = 0
        self.now = time.time
        self._reads_a_minute = reads_a_minute
        self._lock = threading.Lock()
        self._server = self._serve(port)

    def _serve(self, port: int) -> grpc.Server:
        options = [("grpc.max_receive_message_length", LARGEST_REQUEST), ("grpc.so_reuseport", 0)]
        server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
        calls = {
            "WriteLogEntries": (self._write, WriteRequest, WriteResponse),
            "ListLogEntries": (self._list, ListRequest, ListResponse),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                function, request_deserializer=takes.FromString, response_serializer=gives.SerializeToString
            )
            for name, (function, takes, gives) in calls.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.port = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        return server

    def __enter__(self) -> Cloud:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.go_down()

    def go_down(self) -> None:
        """Connections are refused from here on."""
        self._server.stop(0).wait()

    def come_back(self) -> None:
        self._server = self._serve(self.port)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "GOODPUT_EXPORTERS": "cloud-logging",
            "GOODPUT_LOGGING_ENDPOINT": f"127.0.0.1:{self.port}",
            "GOODPUT_PROJECT": PROJECT,
        }

    def entries(self, job: str | None = None) -> list[dict[str, Any]]:
        """What a reader sees: in order of time, entries of one insert id and timestamp once."""
        with self._lock:
            written = list(self.written)
        once = {(entry.log_name, entry.timestamp.ToNanoseconds(), entry.insert_id): entry for entry in written}
        oldest, newest = (datetime.fromtimestamp(self.now(), UTC) + at for at in (-RETENTION, timedelta(days=1)))
        seen = [entry for entry in once.values() if oldest <= entry.timestamp.ToDatetime(tzinfo=UTC) <= newest]
        seen.sort(key=lambda entry: (entry.timestamp.ToNanoseconds(), entry.insert_id))
        told = [MessageToDict(entry) for entry in seen]
        return [entry for entry in told if job is None or entry["jsonPayload"].get("job_name") == job]

    def _meet(self, request: Any, context: grpc.ServicerContext) -> None:
        fault = self.always
        with self._lock:
            if self.faults:
                fault = self.faults.popleft()
        if fault is not None:
            fault(request, context)

    def _write(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._meet(request, context)
        faults = {}
        for at, entry in enumerate(request.entries):
            if entry.ByteSize() > LARGEST_ENTRY:
                faults[at] = f"Log entry with size {entry.ByteSize()} exceeds maximum size of 256.0K"
        if request.ByteSize() > LARGEST_REQUEST:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Request payload size exceeds the limit")
        if faults and not request.partial_success:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, next(iter(faults.values())))
        self.take(request, set(faults))
        if faults:
            refuse(context, faults)
        return WriteResponse()

    def take(self, request: Any, but: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        """Write a request's entries."""
        with self._lock:
            self.requests.append(len(request.entries))
            for at, entry in enumerate(request.entries):
                if at in but:
                    continue
                entry.log_name = entry.log_name or request.log_name
                if not entry.HasField("resource"):
                    entry.resource.CopyFrom(request.resource)
                entry.receive_timestamp.FromNanoseconds(int(self.now() * 1e9))
                if not entry.HasField("timestamp"):
                    entry.timestamp.CopyFrom(entry.receive_timestamp)
                self.written.append(entry)

    def _list(self, request: Any, context: grpc.ServicerContext) -> Any:
        now = self.now()
        with self._lock:
            recent = [at for at in self.reads if at > now - 60]
            if len(recent) >= self._reads_a_minute:
                self.refused_reads += 1
        if len(recent) >= self._reads_a_minute:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded for quota metric 'Read requests'")
        self.reads.append(now)
        self._meet(request, context)
        if not 0 <= request.page_size <= 1000 or len(request.filter) > 20_000:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_size or filter is too large")
        if request.resource_names[:] != [f"projects/{PROJECT}"]:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "The caller does not have permission")
        found = [entry for entry in self._once() if _matches(entry, request.filter)]
        begin = int(request.page_token or 0)
        if begin > len(found):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_token is invalid")
        end = begin + (request.page_size or 50)
        return ListResponse(entries=found[begin:end], next_page_token=str(end) if end < len(found) else "")

    def _once(self) -> list[Any]:
        with self._lock:
            once = {(e.log_name, e.timestamp.ToNanoseconds(), e.insert_id): e for e in self.written}
        oldest = int((self.now() - RETENTION.total_seconds()) * 1e9)
        kept = [entry for (_, at, _), entry in once.items() if at >= oldest]
        return sorted(kept, key=lambda entry: (entry.timestamp.ToNanoseconds(), entry.insert_id))


def _matches(entry: Any, text: str) -> bool:
    """Whether an entry is what a filter of ours asks for."""
    told = re.findall(r'(\S+?)(>=|=)"([^"]*)"', text)
    if len(told) != text.count(" AND ") + 1:
        raise ValueError(f"a filter that this server does not know: {text}")
    for key, sign, value in told:
        if sign == ">=":
            at = entry.timestamp if key == "timestamp" else entry.receive_timestamp
            matches = at.ToDatetime(tzinfo=UTC) >= datetime.fromisoformat(value)
        elif key == "logName":
            matches = entry.log_name == value
        else:
            matches = MessageToDict(entry.json_payload).get(key.removeprefix("jsonPayload.")) == value
        if not matches:
            return False
    return True


def fails(code: grpc.StatusCode, text: str = "no") -> Fault:
    """A call that fails with that code, and does nothing."""

    def fault(request: Any, context: grpc.ServicerContext) -> None:
        context.abort(code, text)

    return fault


def late(seconds: float) -> Fault:
    """A call that is answered late."""
    return lambda request, context: time.sleep(seconds)


def refuse(context: grpc.ServicerContext, faults: dict[int, str], code: int = 3) -> None:
    """Answer that these entries were not written, and the others were."""
    told = PartialErrors()
    for at, text in faults.items():
        told.log_entry_errors[at].code = code
        told.log_entry_errors[at].message = text
    status = status_pb2.Status(code=code, message=next(iter(faults.values())))
    status.details.add().Pack(told)
    context.abort_with_status(rpc_status.to_status(status))
