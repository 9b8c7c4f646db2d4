"""Parsing of `Host` headers, and the allowed addresses of the server."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Any

import pytest

from nimbus.api.middleware import CrossSiteGuard, HostName, host_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("localhost", "localhost"),
        ("Nimbus.Example.COM.:8470", "nimbus.example.com"),
        ("10.0.0.5:80", ip_address("10.0.0.5")),
        ("[::1]", ip_address("::1")),
        ("[0:0:0:0:0:0:0:1]:8470", ip_address("::1")),
        ("[::FFFF:10.0.0.5]", ip_address("10.0.0.5")),
    ],
)
def test_host_is_read_in_one_spelling(text: str, name: HostName) -> None:
    assert host_name(text) == name


@pytest.mark.parametrize(
    "text", ["", ":80", "a b", "user@localhost", "localhost:80:80", "::1", "[::1", "a/b"]
)
def test_text_that_is_no_host_has_no_name(text: str) -> None:
    assert host_name(text) is None


@pytest.mark.parametrize(
    ("host", "arrived_at", "status"),
    [
        ("10.0.0.5:8470", "10.0.0.5", 200),
        ("10.0.0.5:8470", "::ffff:10.0.0.5", 200),
        ("[2001:db8::5]:8470", "2001:db8::5", 200),
        ("10.0.0.5:8470", "10.0.0.6", 421),
        ("10.0.0.5:8470", None, 421),
        ("[2001:db8::9]", "10.0.0.6", 200),
        ("S1.internal.", "10.0.0.6", 200),
        ("s1", "10.0.0.6", 421),
    ],
)
def test_host_may_be_what_is_configured_or_where_the_connection_arrived(
    host: str, arrived_at: str | None, status: int
) -> None:
    assert _asked(["s1.internal", "2001:db8::9"], host, arrived_at) == status


def _asked(allowed: list[str], host: str, arrived_at: str | None) -> int:
    told: list[int] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        told.extend([message["status"]] if "status" in message else [])

    async def receive() -> Any:
        raise AssertionError("a request is judged by its head")

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/v1/status",
        "headers": [(b"host", host.encode())],
        "server": arrived_at and (arrived_at, 8470),
    }
    asyncio.run(CrossSiteGuard(app, allowed)(scope, receive, send))
    (status,) = told
    return status
