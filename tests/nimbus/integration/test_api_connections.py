"""Slow clients, and too many clients: real sockets to a real server, which still serves others."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from nimbus.api.middleware import BodyLimit
from nimbus.api.server import ApiServer, bounded
from tests.leader.integration.test_tls import Authority

Eventually = Callable[..., None]
LARGE = 64 << 20
MANY = 300
"""Connections that send nothing. The server's limit is a tenth of them."""


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    large = b"x" * LARGE if scope["path"] == "/large" else b"hello"
    await PlainTextResponse(large)(scope, receive, send)


@pytest.fixture
def serve() -> Iterator[Callable[..., ApiServer]]:
    made: list[ApiServer] = []

    def start(tls: ssl.SSLContext | None = None, body_within_s: float = 0.2, **limits: float) -> ApiServer:
        app = FastAPI()
        app.mount("/", BodyLimit(answer, limit_bytes=1000, within_s=body_within_s))
        made.append(ApiServer(app, tls=tls, protocol=bounded(**limits)))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1]

    yield start
    for server in made:
        server.stop()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "nimbus")


@pytest.fixture
def tls(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate("api"))
    return context


def connect(server: ApiServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 30)


def ends(client: socket.socket) -> bool:
    """Whether the server has closed it. Waits at most for the timeout of the socket."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_connection_that_owes_the_head_of_a_request_too_long_is_closed(
    serve: Callable[..., ApiServer], sent: bytes
) -> None:
    with connect(serve(head_within_s=0.1)) as client:
        client.sendall(sent)

        assert ends(client)


def test_next_request_of_a_kept_connection_has_the_same_deadline(serve: Callable[..., ApiServer]) -> None:
    with connect(serve(head_within_s=0.1)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET / HT")

        assert ends(client)


METHODS = ["GET", "HEAD", "OPTIONS", "POST", "DELETE", "X"]


def unfinished(method: str = "POST", length: int = 10, sent: int = 2) -> bytes:
    head = f"{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + b"a" * sent


@pytest.mark.parametrize("method", METHODS)
def test_body_that_comes_too_slowly_is_refused(serve: Callable[..., ApiServer], method: str) -> None:
    with connect(serve()) as client:
        client.sendall(unfinished(method))

        assert client.recv(65536).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("method", METHODS)
def test_body_above_the_limit_is_refused(serve: Callable[..., ApiServer], method: str) -> None:
    with connect(serve(body_within_s=60)) as client:
        client.sendall(unfinished(method, length=1 << 30, sent=2000))

        assert client.recv(65536).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_many_unfinished_bodies_keep_nobody_out(serve: Callable[..., ApiServer], method: str) -> None:
    server = serve(most=MANY // 10, body_within_s=600)
    silent = [connect(server) for _ in range(MANY)]
    try:
        for client in silent:
            with contextlib.suppress(ConnectionError):  # it was one of those that were closed
                client.sendall(unfinished(method))
        answers = [httpx.get(f"{server.url}/", timeout=60).status_code for _ in range(20)]

        assert answers == [200] * 20
        assert ends(silent[0])
    finally:
        for client in silent:
            client.close()


def test_client_that_takes_nothing_of_an_answer_is_closed(
    serve: Callable[..., ApiServer], eventually: Eventually
) -> None:
    server = serve(taken_within_s=0.1)
    assert server._server is not None
    with connect(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)  # with 4 KiB the rest takes 99 s
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        taken = len(client.recv(1))
        eventually(lambda: not server._server.server_state.connections)
        try:
            while piece := client.recv(65536):
                taken += len(piece)
        except ConnectionResetError:
            pass

        assert 0 < taken < LARGE


def test_many_silent_connections_keep_nobody_out(serve: Callable[..., ApiServer]) -> None:
    server = serve(most=MANY // 10)
    silent = [connect(server) for _ in range(MANY)]
    try:
        answers = [httpx.get(f"{server.url}/", timeout=60).status_code for _ in range(20)]

        assert answers == [200] * 20
        assert ends(silent[0]), "those that have been silent the longest are closed"
    finally:
        for client in silent:
            client.close()


def sockets_of(port: int) -> int:
    """Number of connections of this process to one of its own ports."""
    return sum(one.laddr.port == port and bool(one.raddr) for one in psutil.Process().net_connections("tcp"))


def test_connections_before_their_handshake_count_when_a_server_has_tls(
    serve: Callable[..., ApiServer], tls: ssl.SSLContext, authority: Authority, eventually: Eventually
) -> None:
    server = serve(tls, most=5)
    silent = [connect(server) for _ in range(40)]
    try:
        assert ends(silent[0]), "those that have been silent the longest are closed"
        eventually(lambda: sockets_of(server.port) <= 5)

        verify = ssl.create_default_context(cafile=authority.file)
        assert httpx.get(f"{server.url}/", timeout=60, verify=verify).text == "hello"
    finally:
        for client in silent:
            client.close()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_handshake_that_takes_too_long_is_ended(
    serve: Callable[..., ApiServer], tls: ssl.SSLContext, eventually: Eventually, sent: bytes
) -> None:
    server = serve(tls, head_within_s=0.1)
    assert server._server is not None
    with connect(server) as client:
        client.sendall(sent)

        assert ends(client)
    eventually(lambda: not server._server.server_state.connections)


def test_handshake_that_fails_is_counted_no_longer(
    serve: Callable[..., ApiServer], tls: ssl.SSLContext, eventually: Eventually
) -> None:
    server = serve(tls)
    assert server._server is not None
    with connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

        assert ends(client)
    eventually(lambda: not server._server.server_state.connections)


def test_request_head_over_tls_has_the_deadline(
    serve: Callable[..., ApiServer], tls: ssl.SSLContext, authority: Authority
) -> None:
    server = serve(tls, head_within_s=1.0)
    verify = ssl.create_default_context(cafile=authority.file)
    with verify.wrap_socket(connect(server), server_hostname="127.0.0.1") as client:
        client.sendall(b"GET / HT")

        assert ends(client)
