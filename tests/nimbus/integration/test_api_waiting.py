"""Requests that wait for a decision use no thread, and health answers even if all threads are busy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from nimbus.api.server import ApiServer

Eventually = Callable[..., None]
MANY = 60
"""More than the number of the server's threads for requests (40)."""
PATIENCE_S = 20.0


@pytest.fixture
def connect(api_url: str) -> Iterator[Callable[[str], socket.socket]]:
    """Send a request without reading its answer."""
    parts = urlsplit(api_url)
    with ExitStack() as opened:

        def send(request_line: str) -> socket.socket:
            connection = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)
            opened.enter_context(connection)
            head = f"{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            return connection

        yield send


def test_forty_waiters_and_more_leave_the_server_answering(
    world: Any, api_url: str, connect: Callable[[str], socket.socket], eventually: Eventually
) -> None:
    world.deciding = False
    waiting = [connect("POST /api/v1/pipelines/sums/pause?wait=60") for _ in range(MANY)]

    try:
        eventually(lambda: len(world.reader.commands()) == MANY, what="all commands are queued")
        answers = {
            path: httpx.get(api_url + path, timeout=PATIENCE_S).status_code
            for path in ("/healthz", "/readyz", "/metrics", "/api/v1/leader")
        }
    finally:
        world.decide()

    assert set(answers.values()) == {200}
    assert all(b'"accepted"' in _answer(connection) for connection in waiting)


def test_health_answers_while_every_thread_waits_for_zookeeper(
    world: Any,
    api_url: str,
    connect: Callable[[str], socket.socket],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent, asked = threading.Event(), []

    def silent_zookeeper() -> tuple[()]:
        asked.append(None)
        silent.wait(60)
        return ()

    monkeypatch.setattr(world.reader, "workers", silent_zookeeper)
    try:
        for _ in range(MANY):
            connect("GET /api/v1/workers")
        eventually(lambda: len(asked) >= 40, what="the threads for requests are all in use")
        answers = [
            httpx.get(api_url + path, timeout=PATIENCE_S).status_code
            for path in ("/healthz", "/readyz", "/metrics")
        ]
    finally:
        silent.set()

    assert answers == [200, 200, 200]


def test_wait_for_a_command_ends_when_it_is_decided(
    world: Any, connect: Callable[[str], socket.socket], api: httpx.Client
) -> None:
    world.deciding = False
    command = api.post("/cluster/abdicate", json={"reason": "x"}).json()["command_id"]
    waiting = connect(f"GET /api/v1/commands/{command}?wait=60")

    world.decide()

    assert b'"accepted"' in _answer(waiting)


def test_server_stops_while_requests_wait(
    world: Any, server: ApiServer, connect: Callable[[str], socket.socket], eventually: Eventually
) -> None:
    world.deciding = False
    connect("POST /api/v1/pipelines/sums/pause?wait=60")
    eventually(lambda: len(world.reader.commands()) == 1)

    server.stop()
    world.decide()  # so that no request waits any more

    assert world.reader.commands() == ()


def _answer(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)
