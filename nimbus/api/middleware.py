"""Middleware of every request: limits its size, and measures its time. Plain ASGI."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nimbus.api.problems import problem

MAX_BODY_BYTES = 256 * 1024
"""Limit of a request's body. A command must fit into a ZooKeeper node, whose limit is 1 MiB."""


BODY_WITHIN_S = 30.0
_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
"""Methods with their own series. A client may send any word as a method, and series are never removed."""


class BodyLimit:
    """Refuses a body that is above the limit, even without a declared length, or that comes too slowly."""

    def __init__(
        self, app: ASGIApp, limit_bytes: int = MAX_BODY_BYTES, within_s: float = BODY_WITHIN_S
    ) -> None:
        self._app, self._limit, self._within_s = app, limit_bytes, within_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Read before the handler, while no part of an answer has been sent, so that it can be refused. A GET
        # may have a body, too.
        try:
            async with asyncio.timeout(self._within_s):
                whole = await self._whole(receive)
        except TimeoutError:
            whole = problem(408, "body_too_slow", f"The body did not come within {self._within_s:g} s.")
        if whole is None:
            return
        if isinstance(whole, Response):
            await whole(scope, receive, send)
            return
        body: Message | None = {"type": "http.request", "body": whole, "more_body": False}

        async def replay() -> Message:
            nonlocal body
            if body is None:
                return await receive()
            now, body = body, None
            return now

        await self._app(scope, replay, send)

    async def _whole(self, receive: Receive) -> bytes | Response | None:
        """The body, or the refusal; None: the client has disconnected."""
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limit:
                return problem(
                    413,
                    "body_too_large",
                    f"The body is above {self._limit} bytes; send less, or put data in storage.",
                )
            more = message.get("more_body", False)
        return b"".join(parts)


class AnswerHead:
    """Answers HEAD as GET. The server, which still sees HEAD, leaves the body out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", "is_head": True}  # an endless answer must not start
        await self._app(scope, receive, send)


class SayVersion:
    """Sets `X-Nimbus-Version`, the lowest version of an answer, from which a stream of events may begin.

    Args:
        app: The application.
        version: Returns the version of the last change that this process has seen, from memory.
    """

    def __init__(self, app: ASGIApp, version: Callable[[], int]) -> None:
        self._app, self._version = app, version

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        version = str(self._version())  # before the handler reads anything

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Nimbus-Version"] = version
            await send(message)

        await self._app(scope, receive, told)


class HttpMetrics:
    """Requests to the API, by route template, so that ids do not become series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._took = Histogram(
            "nimbus_http_request_duration_seconds",
            "Time until the scheduler has answered.",
            ("method", "route", "status"),
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60),
            registry=registry,
        )
        self._streams = Gauge("nimbus_event_streams", "Open streams of events.", registry=registry)

    def watch_streams(self, count: Callable[[], int]) -> None:
        """Call `count` whenever the number of open streams is read."""
        self._streams.set_function(count)

    def answered(self, *, method: str, route: str, status: int, took_s: float) -> None:
        """Count one answered request."""
        self._took.labels(method, route, str(status)).observe(took_s)


class Measure:
    """Measures the time of each answer, by route template."""

    def __init__(self, app: ASGIApp, metrics: HttpMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.answered(method=method, route=route, status=status, took_s=time.monotonic() - began)
