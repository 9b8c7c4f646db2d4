"""A load balancer for the tests, which forwards requests to living schedulers and repeats every write.

Each write gets an `Idempotency-Key`, and is sent to two schedulers, like a client that has lost a response.
"""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PATIENCE_S = 40.0
"""How long a request without an answer is retried: longer than a takeover."""
_PAUSE_S = 0.2
_READS = ("GET", "HEAD", "OPTIONS", "TRACE")
_HOPS = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}


class Request(NamedTuple):
    """A request, unchanged."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    """A response, unchanged."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass
class Front:
    """The balancer, with a record of its traffic. `urls`: the schedulers' URLs."""

    urls: Sequence[str]
    seed: int
    statuses: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    keyed: dict[str, tuple[Request, list[dict[str, Any]]]] = field(default_factory=dict)
    """Writes that became commands, by key, with the responses."""
    url: str = ""

    def __post_init__(self) -> None:
        self._random, self._lock = random.Random(self.seed), threading.Lock()

    def pass_on(self, request: Request) -> Answer:
        """Send a request to a living scheduler; a write to two of them."""
        if request.method in _READS:
            return self._noted(self._sent(request))
        given = {name.lower(): value for name, value in request.headers.items()}
        key = given.get("idempotency-key", uuid.uuid4().hex)
        request = request._replace(headers={**request.headers, "Idempotency-Key": key})
        answers = self._sent(request), self._sent(request)
        for answer in answers:
            self._note_command(key, request, answer)
        return self._noted(answers[-1])

    def _sent(self, request: Request) -> Answer:
        end = time.monotonic() + PATIENCE_S
        while True:
            for url in self._shuffled():
                try:
                    return _exchange(url, request)
                except (OSError, HTTPException):
                    continue
            if time.monotonic() > end:
                return Answer(599, [], b"no server answers")
            threading.Event().wait(_PAUSE_S)

    def _shuffled(self) -> list[str]:
        with self._lock:
            return self._random.sample(list(self.urls), len(self.urls))

    def _noted(self, answer: Answer) -> Answer:
        with self._lock:
            self.statuses[answer.status] += 1
        return answer

    def _note_command(self, key: str, request: Request, answer: Answer) -> None:
        if answer.status in (200, 202) and b'"command_id"' in answer.body:
            with self._lock:
                self.keyed.setdefault(key, (request, []))[1].append(json.loads(answer.body))


def _exchange(url: str, request: Request) -> Answer:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=90)
    try:
        connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        for name, value in request.headers.items():
            connection.putheader(name, value.encode("latin-1"))
        if request.body or request.method not in _READS:
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body or None)
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read())
    finally:
        connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def __getattr__(self, name: str) -> Any:
        """Forward any method."""
        if name.startswith("do_"):
            return self._pass_on
        raise AttributeError(name)

    def _pass_on(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOPS}
        request = Request(self.command, self.path, kept, self.rfile.read(size))
        answer = self.server.front.pass_on(request)
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in _HOPS:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    def __init__(self, front: Front) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.front = front


@contextmanager
def front(urls: Sequence[str], seed: int) -> Iterator[Front]:
    """A started balancer."""
    made = Front(urls, seed)
    server = _Server(made)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="front")
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
