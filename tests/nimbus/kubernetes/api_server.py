"""A Kubernetes API server for tests: the core API that Spark's client and drivers use, over HTTP on loopback.

Faults on demand: refused requests, lost replies, broken watches, a stopped server. The suite that uses it
runs on a real kube-apiserver as well, see `tests/nimbus/kubernetes/bench.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.nimbus.kubernetes.store import KINDS, ApiError, Object, Store, merged

_PLACE = re.compile(
    r"/(?:api|apis/networking\.k8s\.io)/v1/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(status|binding))?"
)
_WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PATCHES = ("merge-patch", "strategic-merge-patch", "apply-patch")


@dataclass
class Fault:
    """A fault of matching requests, at most `times` times."""

    method: str
    path: str
    """A regular expression that matches a part of the request."""
    times: int
    error: ApiError | None = None
    """Status of the answer, without executing the request; None: it is executed, and the reply is lost."""


class ApiServer:
    """Listens until `stop`. A second `start` uses the same port."""

    def __init__(self) -> None:
        self.store = Store()
        self.tokens = {"admin-token": True, "weak-token": False}
        """Tokens of a user with all permissions, and of one without any."""
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.watches_broken = 0
        self._port = 0
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="kubernetes-api"
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop listening. The objects stay."""
        if (server := self._server) is None or self._thread is None:
            return
        self._server = None
        server.shutdown()
        self._thread.join(60)
        self.break_watches()
        server.close_connections()
        server.server_close()

    def refuse(self, method: str, path: str, code: int, reason: str, message: str, times: int = 1) -> None:
        self.faults.append(Fault(method, path, times, ApiError(code, reason, message)))

    def lose_reply(self, method: str, path: str, times: int = 1) -> None:
        self.faults.append(Fault(method, path, times))

    def break_watches(self) -> None:
        with self.store.changed:
            self.watches_broken += 1
            self.store.changed.notify_all()

    def fault_of(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == method and re.search(fault.path, path):
                fault.times -= 1
                return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        made = super().get_request()
        self._open.add(made[0])
        return made

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """Ignore clients that close connections."""


def _handler(api: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        server_of = api

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: ApiServer
    timeout = 300

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        self.server_of.requests.append((method, self.path))
        fault = self.server_of.fault_of(method, self.path)
        try:
            self._admit()
            if fault is not None and fault.error is not None:
                raise fault.error
            answer = self._answer(method, json.loads(data) if data else {})
        except ApiError as exc:
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
            said = {"message": exc.message, "reason": exc.reason, "code": exc.code}
            answer = exc.code, {**status, **said}
        if fault is not None and fault.error is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif answer is not None:
            self._reply(*answer)

    def _reply(self, code: int, said: Object) -> None:
        data = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _admit(self) -> None:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        rights = self.server_of.tokens.get(token)
        if rights is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        if not rights and "selfsubjectaccessreviews" not in self.path and self.path != "/version":
            what = urlsplit(self.path).path.rpartition("/")[2]
            raise ApiError(403, "Forbidden", f'{what} is forbidden: User "weak" cannot do this')

    def _answer(self, method: str, body: Object) -> tuple[int, Object] | None:
        place = urlsplit(self.path)
        asked = {name: values[-1] for name, values in parse_qs(place.query).items()}
        if place.path == "/version":
            return 200, {"major": "1", "minor": "20", "gitVersion": "v1.20.2-test"}
        if place.path.endswith("/selfsubjectaccessreviews"):
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            return 201, {**body, "status": {"allowed": self.server_of.tokens[token]}}
        found = _PLACE.fullmatch(place.path)
        if found is None or found[2] not in KINDS:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        namespace, kind, name, part = found[1], found[2], found[3], found[4]
        if name is None:
            return self._of_all(method, namespace, kind, asked, body)
        return self._of_one(method, namespace, kind, name, part, body)

    def _of_all(
        self, method: str, namespace: str, kind: str, asked: dict[str, str], body: Object
    ) -> tuple[int, Object] | None:
        store = self.server_of.store
        selectors = (asked.get("labelSelector", ""), asked.get("fieldSelector", ""))
        if method == "POST":
            return 201, store.create(kind, namespace, body)
        if method == "DELETE":
            for one in store.list(kind, namespace, *selectors):
                store.delete(kind, namespace, one["metadata"]["name"], body)
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if method != "GET":
            raise ApiError(405, "MethodNotAllowed", "the server does not allow this method")
        if asked.get("watch") in ("true", "1"):
            self._watch(kind, namespace, selectors, asked)
            return None
        items = store.list(kind, namespace, *selectors)
        meta = {"resourceVersion": str(store.version())}
        return 200, {"kind": f"{KINDS[kind]}List", "apiVersion": "v1", "metadata": meta, "items": items}

    def _of_one(
        self, method: str, namespace: str, kind: str, name: str, part: str | None, body: Object
    ) -> tuple[int, Object]:
        store = self.server_of.store
        if part == "binding" and method == "POST":
            node = {"spec": {"nodeName": body["target"]["name"]}}
            store.replace(kind, namespace, name, merged(store.get(kind, namespace, name), node))
            return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        match method:
            case "GET":
                return 200, store.get(kind, namespace, name)
            case "DELETE":
                return 200, store.delete(kind, namespace, name, body)
            case "PUT":
                return 200, store.replace(kind, namespace, name, body)
            case "PATCH":
                return self._patch(namespace, kind, name, part, body)
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method")

    def _patch(
        self, namespace: str, kind: str, name: str, part: str | None, body: Object
    ) -> tuple[int, Object]:
        store, form = self.server_of.store, self.headers.get("Content-Type") or ""
        if not any(one in form for one in _PATCHES):
            raise ApiError(
                415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {form}"
            )
        try:
            old = store.get(kind, namespace, name)
        except ApiError:
            if "apply-patch" not in form:
                raise
            return 201, store.create(kind, namespace, body)
        if part == "status":
            body = {"status": body.get("status")}
        return 200, store.replace(kind, namespace, name, merged(old, body))

    def _watch(self, kind: str, namespace: str, selectors: tuple[str, str], asked: dict[str, str]) -> None:
        """Send events, over a WebSocket if the client requests one, otherwise in chunks."""
        store = self.server_of.store
        at = int(asked.get("resourceVersion") or 0)
        first = (
            [{"type": "ADDED", "object": one} for one in store.list(kind, namespace, *selectors)]
            if at == 0
            else []
        )
        at = at or store.version()
        until_s = time.monotonic() + float(asked.get("timeoutSeconds") or 1800)
        send = (
            self._websocket()
            if "websocket" in (self.headers.get("Upgrade") or "").lower()
            else self._chunks()
        )
        epoch = self.server_of.watches_broken
        self.close_connection = True
        with suppress(OSError):
            for event in first:
                send(json.dumps(event).encode())
            while time.monotonic() < until_s and epoch == self.server_of.watches_broken and self._is_open():
                try:
                    at, changes = store.after(at, kind, namespace, *selectors)
                except ApiError as exc:
                    gone = {"kind": "Status", "code": exc.code, "reason": exc.reason, "message": exc.message}
                    send(json.dumps({"type": "ERROR", "object": gone}).encode())
                    break
                for change in changes:
                    send(json.dumps({"type": change.type, "object": change.object}).encode())
                with store.changed:
                    if store.version() == at:
                        store.changed.wait(0.2)
            send(b"")

    def _is_open(self) -> bool:
        """Whether the client still listens. A message in a WebSocket is its end, or needs no answer."""
        if not select.select([self.connection], [], [], 0)[0]:
            return True
        said = self.connection.recv(4096)
        return bool(said) and said[0] & 0x0F != 8

    def _chunks(self) -> Callable[[bytes], None]:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def send(data: bytes) -> None:
            line = data + b"\n" if data else b""
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()

        return send

    def _websocket(self) -> Callable[[bytes], None]:
        key = (self.headers.get("Sec-WebSocket-Key") or "").encode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header(
            "Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + _WEBSOCKET).digest()).decode()
        )
        self.end_headers()

        def send(data: bytes) -> None:
            if not data:
                self.wfile.write(b"\x88\x00")  # close
            elif len(data) < 126:
                self.wfile.write(bytes([0x81, len(data)]) + data)
            elif len(data) < 1 << 16:
                self.wfile.write(b"\x81\x7e" + struct.pack(">H", len(data)) + data)
            else:
                self.wfile.write(b"\x81\x7f" + struct.pack(">Q", len(data)) + data)
            self.wfile.flush()

        return send

    def log_message(self, *_: object) -> None:
        pass
