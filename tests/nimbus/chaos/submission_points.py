"""Eight points of a submission, and proxies that hold the request at which a submission is at such a point.

A proxy holds either the request, before it forwards it, or the answer. The test acts in the meantime. The
proxy forwards a held request even if its sender was killed, because the request had already been sent.
"""

from __future__ import annotations

import re
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

MANAGER, SCHEDULER, STORE = "manager", "scheduler", "store"
"""Receivers of requests: the cluster's manager, a scheduler (from a driver), or ZooKeeper."""
_LONGEST_HOLD_S = 120.0
_ANSWER_S = 30.0
_KEPT_HEADERS = ("Authorization", "Content-Type", "Accept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A submission is at this point while a certain request is held."""

    name: str
    asked: str
    """`MANAGER`, `SCHEDULER` or `STORE`."""
    request: str
    """Pattern of the request: method and path, or the equivalent of the protocol."""
    with_answer: bool = False
    """The answer is held, so the request has been executed."""
    after: str = ""
    """Pattern of a request that must have been answered before."""
    task_ends: bool = False
    """The point is reached only if the task ends."""


def points_of(*, create: str, status: str) -> Sequence[Point]:
    """The eight points, given the requests that create a driver and that query its status."""
    claim, log, end = r"POST .*/claim\b", r"POST .*/log\b", r"POST .*/end\b"
    return (
        Point(name="during submit", asked=MANAGER, request=create),
        Point(name="before the id is known", asked=MANAGER, request=create, with_answer=True),
        Point(name="after submit", asked=MANAGER, request=status, after=create),
        Point(name="before CLAIM", asked=SCHEDULER, request=claim),
        Point(name="after CLAIM", asked=SCHEDULER, request=claim, with_answer=True),
        Point(name="polling", asked=MANAGER, request=status, after=log),
        Point(name="before END", asked=SCHEDULER, request=end, task_ends=True),
        Point(name="after exit", asked=MANAGER, request=status, after=end, task_ends=True),
    )


class Stops:
    """Holds the first request that a plan names. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._point: Point | None = None
        self._run, self._armed = "", False
        self.held, self._released = threading.Event(), threading.Event()
        self._released.set()

    def plan(self, point: Point, run: str) -> None:
        """Hold the next request of `run` that is at this point."""
        with self._lock:
            self._point, self._run, self._armed = point, run, not point.after
            self.held.clear()
            self._released.clear()

    def release(self) -> None:
        """Forward the held request, and hold no other."""
        with self._lock:
            self._point = None
        self._released.set()

    def pass_by(self, asked: str, request: str, *, answered: bool) -> None:
        """Called before a request or its answer is forwarded. Returns when it may be forwarded."""
        with self._lock:
            point = self._point
            if point is None or (asked != MANAGER and f"/{self._run}." not in request):
                return
            if answered and point.after and re.search(point.after, request):
                self._armed = True
                return
            wanted = point.asked == asked and point.with_answer == answered and self._armed
            if not wanted or not re.search(point.request, request) or self.held.is_set():
                return
            self.held.set()
        self._released.wait(_LONGEST_HOLD_S)


class HoldingProxy:
    """Forwards requests to one server. Threads: its own, and one for each connection."""

    def __init__(self, asked: str, upstream: str, stops: Stops, ca_file: Path | None = None) -> None:
        """`ca_file`: verifies the certificate of an upstream with TLS."""
        place = urlsplit(upstream)
        verify = ssl.create_default_context(cafile=ca_file) if place.scheme == "https" else None

        def connected() -> HTTPConnection:
            host = place.hostname or ""
            if verify is None:
                return HTTPConnection(host, place.port, timeout=_ANSWER_S)
            return HTTPSConnection(host, place.port, timeout=_ANSWER_S, context=verify)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = f"{self.command} {self.path}"
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                stops.pass_by(asked, request, answered=False)
                connection = connected()
                try:
                    headers = {name: self.headers[name] for name in _KEPT_HEADERS if name in self.headers}
                    connection.request(self.command, self.path, body or None, headers)
                    answer = connection.getresponse()
                    data = answer.read()
                except (OSError, HTTPException):
                    return  # the connection is closed without an answer
                finally:
                    connection.close()
                stops.pass_by(asked, request, answered=True)
                with suppress(OSError):
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.getheader("Content-Type") or "")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_PUT = do_DELETE = do_PATCH = do_POST  # noqa: N815 - the server's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name=f"proxy-{asked}"
        )
        self._thread.start()

    def close(self) -> None:
        """End it, with all its connections."""
        self._server.shutdown()
        self._thread.join(60)
        self._server.server_close()
