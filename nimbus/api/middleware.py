"""Middleware of every request: limits, metrics, entity tags, guard against other sites. Plain ASGI."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Iterable, MutableMapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
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
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", "is_head": True}  # an endless answer must not start
        await self._app(scope, receive, send)


class SayVersion:
    """Sets `X-Nimbus-Version`, the lowest version of an answer, from which a stream of events may begin.

    `version`: returns the version of the last change that this process has seen, from memory.
    """

    def __init__(self, app: ASGIApp, version: Callable[[], int]) -> None:
        self._app, self._version = app, version

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


JSON = "application/json"


class EntityTags:
    """Adds an `ETag` to JSON answers to GET, and omits a body that `If-None-Match` names. Plain ASGI.

    Answers built from several records have weak tags, which are hashes of the body. If a route has set a
    revision (`tag_with`), the tag is strong: that revision plus the hash of the body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        head: Message | None = None
        parts: list[bytes] = []

        async def tagged(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start" and _is_json(message):
                head = message
            elif head is None:
                await send(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    await _answer(head, b"".join(parts), known, send)

        await self._app(scope, receive, tagged)


def _is_json(start: Message) -> bool:
    return start["status"] == 200 and Headers(raw=start["headers"]).get("content-type") == JSON


async def _answer(start: Message, body: bytes, known: str, send: Send) -> None:
    headers = MutableHeaders(scope=start)
    given, digest = headers.get("ETag"), hashlib.sha256(body).hexdigest()[:32]
    tag = f'"{digest}"' if given is None else f'{given[:-1]}-{digest}"'
    headers["ETag"] = f"W/{tag}" if given is None else tag
    if tag in [each.strip().removeprefix("W/") for each in known.split(",")] or known.strip() == "*":
        start["status"], body = 304, b""
        del headers["content-length"], headers["content-type"]
    await send(start)
    await send({"type": "http.response.body", "body": body})


HostName = str | IPv4Address | IPv6Address

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
ANY_HOST = frozenset({"/healthz", "/readyz"})
"""Paths for any `Host`: a refused supervisor would kill a healthy process. They show no secrets."""

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d*)?", re.IGNORECASE)


def host_name(text: str) -> HostName | None:
    """The name or address in a `Host` header, in normal form; None if the header is not valid."""
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    name = match["name"].lower().strip("[]").removesuffix(".")
    return _address(name) or name


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A socket for both families reports IPv4 addresses in this form.
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


class CrossSiteGuard:
    """Answers 421 to a foreign `Host` (DNS rebinding), and 403 to a write from another site's page.

    `allowed_hosts`: accepted in `Host`, besides loopback and the address of the connection.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._allowed = frozenset(map(_known, allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if scope["path"] not in ANY_HOST and not self._serves(host, scope):
            return problem(
                421,
                "unknown_host",
                f"This server does not answer for host {host[:100]!r}. If that is one of its names, add "
                "it to `scheduler.allowed_hosts`.",
            )
        if scope["method"] not in SAFE_METHODS and not _same_site(headers, host):
            return problem(
                403,
                "cross_site_request",
                "The browser says that a page of another site sends this request; only pages of this server "
                "may change anything.",
            )
        return None

    def _serves(self, host: str, scope: Scope) -> bool:
        name = host_name(host)
        if name is None:
            return False
        if isinstance(name, str):
            return name == "localhost" or name in self._allowed
        # DNS rebinding needs a name in `Host`, so a request with our own address is meant for us.
        arrived_at, _ = scope.get("server") or ("", None)
        return name.is_loopback or name in self._allowed or name == _address(arrived_at)


def _known(text: str) -> HostName | None:
    """An allowed host. An IPv6 address may have no brackets, as in `scheduler.host`."""
    return _address(text) or host_name(text)


def _same_site(headers: Headers, host: str) -> bool:
    """True when the request comes from a page of this server, or not from a browser."""
    sites = headers.getlist("sec-fetch-site")
    if sites:
        return all(site in ("same-origin", "none") for site in sites)
    # On plain HTTP beyond loopback, browsers omit `Sec-Fetch-Site`, but send `Origin` with writes.
    return all(origin.partition("://")[2].lower() == host.lower() for origin in headers.getlist("origin"))
