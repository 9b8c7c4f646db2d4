"""Requests of pages of other sites, and requests for other hosts: refused, with or without a login."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.localstack.stack import LocalStack

# The headers that Chromium sends with a form from a page of another site.
FORM = {
    "Origin": "http://evil.example",
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
    "Content-Type": "application/x-www-form-urlencoded",
}


@pytest.fixture
def paused(world: Any) -> Any:
    """The world with a leader that decides nothing, so that queued commands stay visible."""
    world.deciding = False
    return world


@pytest.mark.parametrize(
    "headers",
    [
        FORM,
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "none, cross-site"},
        {"Origin": "http://evil.example"},  # a browser that sends no Sec-Fetch-Site to plain HTTP
        {"Origin": "http://127.0.0.1:1"},  # another port is another origin
        {"Origin": "null"},  # a sandboxed frame
    ],
)
def test_write_that_a_page_of_another_site_sends_is_refused_and_queues_nothing(
    paused: Any, api: httpx.Client, headers: dict[str, str]
) -> None:
    answers = [
        api.post("/pipelines/sums/pause", headers=headers),
        api.post("/pipelines/sums/activate", headers=headers),
        api.delete("/pipelines/sums", headers=headers),
    ]

    assert [(a.status_code, a.json()["code"]) for a in answers] == [(403, "cross_site_request")] * 3
    assert paused.reader.commands() == ()


def test_write_is_refused_when_one_of_two_headers_names_another_site(paused: Any, api: httpx.Client) -> None:
    twice = [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")]

    assert api.post("/pipelines/sums/pause", headers=twice).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},  # curl, and the command line
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://behind.a.proxy"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "SAME"},
    ],
)
def test_write_of_the_same_origin_or_of_no_browser_is_taken(
    paused: Any, api: httpx.Client, api_url: str, headers: dict[str, str]
) -> None:
    given = {name: api_url if value == "SAME" else value for name, value in headers.items()}

    assert api.post("/pipelines/sums/pause", headers=given).status_code == 202


def test_read_that_a_page_of_another_site_sends_is_answered_without_leave_to_read_it(
    api: httpx.Client,
) -> None:
    answer = api.get("/status", headers={"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"})

    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8470", "127.0.0.1.evil.example", "10.1.2.3"])
@pytest.mark.parametrize("path", ["/api/v1/status", "/metrics", "/openapi.json", "/nowhere"])
def test_request_for_a_foreign_host_is_refused(api_url: str, host: str, path: str) -> None:
    answer = httpx.get(f"{api_url}{path}", headers={"Host": host})

    assert (answer.status_code, answer.json()["code"]) == (421, "unknown_host")
    assert "scheduler.allowed_hosts" in answer.json()["detail"]


def test_write_for_a_foreign_host_queues_nothing(paused: Any, api: httpx.Client) -> None:
    answer = api.post("/pipelines/sums/pause", headers={"Host": "evil.example"})

    assert answer.status_code == 421
    assert paused.reader.commands() == ()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:8470", "127.0.0.1", "127.9.9.9:1", "[::1]:8470"])
def test_request_for_loopback_is_answered_however_it_is_written(api: httpx.Client, host: str) -> None:
    assert api.get("/status", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_supervisor_is_answered_whatever_it_calls_the_host(api_url: str, path: str) -> None:
    assert httpx.get(f"{api_url}{path}", headers={"Host": "a-load-balancer.example"}).status_code == 200
    assert _raw(api_url, f"GET {path} HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_request_without_a_host_is_refused(api_url: str) -> None:
    assert _raw(api_url, "GET /api/v1/status HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert _raw(api_url, "GET /api/v1/status HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 421 ")


@pytest.fixture
def named(world: Any) -> Iterator[ApiServer]:
    """A server on all addresses, with one configured name."""
    server = ApiServer(create_app(world.services(), allowed_hosts=["nimbus.example.com"]), "0.0.0.0")
    server.start()
    yield server
    server.stop()


def test_request_for_a_configured_host_is_answered(named: ApiServer) -> None:
    for host in ("nimbus.example.com", "Nimbus.Example.Com.:443"):
        assert _status(named, "127.0.0.1", host) == 200
    assert _status(named, "127.0.0.1", "sub.nimbus.example.com") == 421


def test_request_for_the_address_it_arrives_at_is_answered(named: ApiServer, own_address: str) -> None:
    assert _status(named, own_address, f"{own_address}:{named.port}") == 200
    assert _status(named, "127.0.0.1", f"{own_address}:{named.port}") == 421


@pytest.fixture
def own_address() -> str:
    """An address of this machine, not on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # sends nothing, but shows which address the kernel uses
        except OSError:
            pytest.skip("this machine has no address but loopback's")
        return str(asked.getsockname()[0])


def test_scheduler_answers_for_what_it_advertises_and_for_what_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIMBUS__SCHEDULER__ADVERTISE_URL", "http://advertised.example:8470")
    monkeypatch.setenv("NIMBUS__SCHEDULER__ALLOWED_HOSTS", "[proxy.example]")
    with LocalStack(tmp_path, 1) as stack:
        stack.wait_ready()
        url = f"{stack.scheduler(1).url}/openapi.json"
        hosts = ("advertised.example:8470", "proxy.example", "evil.example")

        assert [httpx.get(url, headers={"Host": host}, timeout=60).status_code for host in hosts] == [
            200,
            200,
            421,
        ]


def _status(server: ApiServer, address: str, host: str) -> int:
    url = f"http://{address}:{server.port}/api/v1/status"
    return httpx.get(url, headers={"Host": host}, timeout=60).status_code


def _raw(url: str, request: str) -> bytes:
    """The answer to a request that no client library sends."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(request.encode())
        return connection.recv(65536)
