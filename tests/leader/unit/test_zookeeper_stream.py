"""A stream returns the received bytes in requested pieces, and loses none."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from leader.zookeeper.handler import Stream
from leader.zookeeper.link import ready


@pytest.fixture
def ends() -> Iterator[tuple[Stream, socket.socket]]:
    """A stream that does not block, and the server's end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        stream = Stream(ours)
        yield stream, theirs
        stream.close()


def test_answer_is_taken_in_pieces_of_which_the_kernel_knows_nothing_any_more(
    ends: tuple[Stream, socket.socket],
) -> None:
    stream, server = ends
    server.send(b"0004abcd0002ef")

    assert stream.take(4) == b"0004"
    assert stream.pending() == 10
    assert ready([stream], [], None) == ([stream], [])
    assert stream.take(4) == b"abcd"
    assert stream.recv(3) == b"000"
    assert stream.recv(100) == b"2ef"
    assert stream.pending() == 0
    assert ready([stream], [], 0) == ([], [])


def test_piece_that_is_not_all_here_is_not_given_and_not_lost(ends: tuple[Stream, socket.socket]) -> None:
    stream, server = ends
    assert stream.take(4) is None
    server.send(b"abc")
    assert stream.take(4) is None
    server.send(b"de")

    assert stream.take(4) == b"abcd"
    assert stream.recv(9) == b"e"


def test_piece_larger_than_what_is_taken_at_once_comes_in_the_end(ends: tuple[Stream, socket.socket]) -> None:
    stream, server = ends
    sent = bytes(range(256)) * 100
    server.sendall(sent)
    got = b""
    while len(got) < len(sent):
        got += stream.take(5_000) or stream.recv(len(sent) - len(got))

    assert got == sent


def test_all_is_sent_as_over_a_socket(ends: tuple[Stream, socket.socket]) -> None:
    stream, server = ends
    stream.sendall(b"ruok")

    assert server.recv(9) == b"ruok"


def test_end_is_told_after_what_came_before_it(ends: tuple[Stream, socket.socket]) -> None:
    stream, server = ends
    server.send(b"abc")
    server.close()

    assert stream.take(4) is None
    assert stream.recv(4) == b"abc"
    assert stream.take(4) is None
    assert stream.recv(4) == b""


def test_broken_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    stream = Stream(ours)
    ours.send(b"never read")
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    theirs.close()

    with pytest.raises(ConnectionResetError):
        stream.take(4)
    stream.close()


def test_cut_wakes_the_other_side_and_may_be_repeated(ends: tuple[Stream, socket.socket]) -> None:
    stream, server = ends
    stream.cut()

    assert server.recv(1) == b""
    stream.close()
    stream.cut()


def test_closed_stream_is_an_error_that_kazoo_knows(ends: tuple[Stream, socket.socket]) -> None:
    stream, _ = ends
    stream.close()

    with pytest.raises(OSError, match="closed"):
        ready([stream], [], 0)
