"""Refuses requests that a page of another site makes a browser send. Plain ASGI.

A browser sends requests to loopback and to private networks for every page it shows, and a form needs no
permission. So these checks are made with and without authentication, and need no tokens.

Source: Fetch Metadata Request Headers (W3C); the Go standard library's `http.CrossOriginProtection`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nimbus.api.problems import problem

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

    Args:
        app: The guarded application.
        allowed_hosts: Accepted in `Host`, besides loopback and the address of the connection.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._allowed = frozenset(map(_known, allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
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
