"""The connection that reads objects, with servers that send the bytes that a test chooses."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from blobsync.s3 import connection as s3_connection
from blobsync.s3.connection import Connection, ConnectionPool, FileWriteError
from blobsync.s3.endpoint import Endpoint
from blobsync.s3.messages import HttpError, StaleConnectionError
from blobsync.s3.patience import TimeLimits
from tests.forked import exit_code_of_child

Say = Callable[..., Endpoint]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def nothing(_size_bytes: int) -> None:
    """Ignore the progress."""


@pytest.fixture
def say() -> Iterator[Say]:
    """Start a server that answers each request with the next of these answers, then closes the connection."""
    threads, sockets = [], []

    def start(*answers: bytes, keep: bool = True) -> Endpoint:
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)

        def serve() -> None:
            waiting = list(answers)
            try:
                while waiting:
                    peer, _ = listening.accept()
                    sockets.append(peer)
                    while waiting and peer.recv(65536):
                        peer.sendall(waiting.pop(0))
                        if not keep:
                            break
                    peer.close()
            except OSError:  # the test has ended
                return

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[-1].start()
        return Endpoint("127.0.0.1", listening.getsockname()[1], None, 3.0, TimeLimits(2.0, 1024))

    yield start
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
    for thread in threads:
        thread.join(60)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a second of the connection a tenth of a second."""
    monkeypatch.setattr(s3_connection, "_TICK_S", 0.1)


def ask(connection: Connection) -> bytes:
    connection.ask(b"GET / HTTP/1.1\r\n\r\n", nothing)
    got = b""
    while connection._left:
        got += connection.take(1 << 20, nothing)
    return got


def test_connection_serves_one_request_after_another(say: Say) -> None:
    pool = ConnectionPool(say(OK, OK.replace(b"hello", b"world")), 4)
    connection = pool.open()

    assert ask(connection) == b"hello"
    pool.give_back(connection)
    again = pool.idle()

    assert again is connection
    assert ask(again) == b"world"
    pool.give_back(again)
    pool.close()


def test_connection_that_the_server_closed_is_not_handed_out(
    say: Say, eventually: Callable[..., None]
) -> None:
    pool = ConnectionPool(say(OK), 4)
    connection = pool.open()
    ask(connection)
    pool.give_back(connection)

    eventually(lambda: connection.disturbed, what="the server hung up")

    assert pool.idle() is None


def test_connection_with_words_that_nobody_asked_for_is_not_used_again(say: Say) -> None:
    """Otherwise these bytes would be taken as the answer to the next request."""
    pool = ConnectionPool(say(OK + OK, OK), 4)
    connection = pool.open()
    ask(connection)

    pool.give_back(connection)

    assert pool.idle() is None


def test_request_on_a_connection_that_was_closed_while_idle_is_stale(
    say: Say, eventually: Callable[..., None]
) -> None:
    connection = Connection(say(OK))
    ask(connection)
    eventually(lambda: connection.disturbed, what="the server hung up")

    with pytest.raises(StaleConnectionError):
        ask(connection)
    connection.close()


def test_closed_pool_keeps_nothing(say: Say) -> None:
    pool = ConnectionPool(say(OK, OK), 4)
    connection = pool.open()
    ask(connection)
    pool.close()

    pool.give_back(connection)

    assert pool.idle() is None


def test_forked_child_does_not_use_its_parents_connections(say: Say) -> None:
    pool = ConnectionPool(say(OK, OK), 4)
    connection = pool.open()
    ask(connection)
    pool.give_back(connection)

    assert exit_code_of_child(lambda: 0 if pool.idle() is None else 1) == 0
    assert pool.idle() is connection
    connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
    ids=range(11),
)
def test_what_is_no_answer_is_refused(say: Say, answer: bytes) -> None:
    connection = Connection(say(answer or b"\r\n\r\n", keep=False))

    with pytest.raises(HttpError):
        ask(connection)

    assert not connection.reusable
    connection.close()


def test_interim_answers_are_passed_over(say: Say) -> None:
    connection = Connection(say(b"HTTP/1.1 100 Continue\r\n\r\n" * 3 + OK))

    assert ask(connection) == b"hello"
    connection.close()


@pytest.mark.usefixtures("quick")
def test_silence_is_given_up_and_told_meanwhile(say: Say) -> None:
    endpoint = say(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", b"never")
    connection = Connection(replace(endpoint, limits=TimeLimits(0.5, 1024)))
    told: list[int] = []

    connection.ask(b"GET / HTTP/1.1\r\n\r\n", told.append)
    assert connection.take(5, told.append) == b"he"
    with pytest.raises(HttpError, match="silent"):
        connection.take(5, told.append)

    assert told
    assert set(told) == {0}
    connection.close()


def test_body_goes_into_a_file_also_what_came_with_the_headers(say: Say, tmp_path: Path) -> None:
    body = os.urandom(300_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n"
    connection = Connection(say(head + body))
    connection.ask(b"GET / HTTP/1.1\r\n\r\n", nothing)

    with (tmp_path / "file").open("w+b") as file:
        at = 7
        while connection._left:
            at += connection.fill(file.fileno(), at, 100_000, nothing)
        assert os.pread(file.fileno(), 400_000, 7) == body
    connection.close()


def test_file_that_takes_nothing_is_told_apart_from_a_broken_connection(say: Say, tmp_path: Path) -> None:
    connection = Connection(say(OK + b""))
    connection.ask(b"GET / HTTP/1.1\r\n\r\n", nothing)
    (tmp_path / "file").touch()

    with (tmp_path / "file").open("rb") as read_only, pytest.raises(FileWriteError):
        connection.fill(read_only.fileno(), 0, 5, nothing)
    connection.close()


@pytest.mark.parametrize(
    "head",
    [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked\r\nContent-Length: 0", b"X: no length"],
    ids=["chunked", "chunked with a length", "until the end"],
)
def test_connection_is_not_reusable_when_the_length_of_the_body_is_not_told(say: Say, head: bytes) -> None:
    """The rest of the body may arrive later, and would be taken as the answer to the next request."""
    connection = Connection(say(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n"))

    ask(connection)

    assert not connection.reusable
    connection.close()


@pytest.mark.usefixtures("quick")
def test_slow_body_reaches_its_file_about_once_a_second(tmp_path: Path) -> None:
    """So the caller of a transfer soon sees its progress, and can stop it."""
    over = threading.Event()

    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n")
            for _ in range(25):
                peer.sendall(b"x")
                over.wait(0.01)  # slow, but never silent for long

    with socket.create_server(("127.0.0.1", 0)) as listening, (tmp_path / "file").open("wb") as file:
        thread = threading.Thread(target=serve)
        thread.start()
        connection = Connection(
            Endpoint("127.0.0.1", listening.getsockname()[1], None, 3.0, TimeLimits(10.0, 1))
        )
        connection.ask(b"GET / HTTP/1.1\r\n\r\n", nothing)
        sizes = []
        while connection._left:
            sizes.append(connection.fill(file.fileno(), sum(sizes), 1 << 20, nothing))
        connection.close()
        thread.join(60)

    assert sum(sizes) == 25
    assert 2 <= len(sizes) < 25


def test_connection_over_tls_with_bytes_that_are_decrypted_already_is_disturbed(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(say(OK))
    assert not connection.disturbed
    monkeypatch.setattr(
        connection, "_socket", SimpleNamespace(pending=lambda: 1, close=connection._socket.close)
    )
    assert connection.disturbed
    connection.close()
