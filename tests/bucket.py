"""Cloud Storage on this machine: what gcsfs asks of its JSON API, over HTTP, and the faults that it may have."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

URL = "gs://a-bucket/goodput"


class Storage:
    """A server on a loopback address.

    Attributes:
        objects: what lies in the bucket, by name.
        uploads: the name of each object that was written, in order.
        broken: every request is answered with 503.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: list[str] = []
        self.broken = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Storage:
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environ(self) -> dict[str, str]:
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self._server.server_port}"}

    def _handler(storage) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
                bucket, _, name = path.partition("/b/")[2].partition("/o")
                name = unquote(name.removeprefix("/"))
                if storage.broken:
                    self._answer(503, b"{}")
                elif not name:
                    prefix = query.get("prefix", [""])[0]
                    found = sorted(name for name in storage.objects if name.startswith(prefix))
                    items = [about(bucket, name, storage.objects[name]) for name in found]
                    self._answer(200, json.dumps({"kind": "storage#objects", "items": items}).encode())
                elif name not in storage.objects:
                    self._answer(404, b'{"error": {"code": 404, "message": "No such object"}}')
                elif query.get("alt") == ["media"]:
                    self._answer(200, storage.objects[name])
                else:
                    self._answer(200, json.dumps(about(bucket, name, storage.objects[name])).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if storage.broken:
                    self._answer(503, b"{}")
                    return
                boundary = self.headers["Content-Type"].partition("boundary=")[2].strip('"').encode()
                _, metadata, data, _ = body.split(b"--" + boundary)
                name = json.loads(metadata.partition(b"\n\n")[2])["name"]
                storage.objects[name] = data.partition(b"\n\n")[2].removesuffix(b"\n")
                storage.uploads.append(name)
                self._answer(200, json.dumps(about("a-bucket", name, storage.objects[name])).encode())

            def _answer(self, code: int, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


def about(bucket: str, name: str, data: bytes) -> dict[str, str]:
    return {"kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(data)), "generation": "1"}
