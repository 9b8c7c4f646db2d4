"""kazoo's connection thread, between what it has read of one message and the next."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from kazoo.protocol.states import Callback

from leader.zookeeper import handler as under_test
from leader.zookeeper.handler import Handler
from leader.zookeeper.link import LinkWatch
from leader.zookeeper.patience import Patience
from leader.zookeeper.stream import Stream

SESSION = timedelta(seconds=10)


class Time:
    """As it goes by for the handler."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []
        """How long it let others go first, each time."""


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(under_test, "sleep", made.waits.append)
    monkeypatch.setattr(under_test, "monotonic", lambda: made.now_s)
    return made


@pytest.fixture
def read_ahead() -> Iterator[Stream]:
    """Holds the whole of a message, and part of the next."""
    ours, server = socket.socketpair()
    ours.setblocking(False)
    stream = Stream(ours)
    server.send(b"one message, another message")
    assert stream.take(11) == b"one message"
    with server:
        yield stream
        stream.close()


@pytest.fixture
def handler(read_ahead: Stream) -> Handler:
    made = Handler(Patience(configured=None, servers=1, session_timeout=SESSION), None)
    made.watch = LinkWatch(lambda: False)
    made.watch.arm(read_ahead, SESSION.total_seconds())
    return made


def tell(handler: Handler) -> None:
    """A watch fires, and somebody puts that into an inbox."""

    def enqueue() -> None:
        return

    enqueue.only_enqueues = True  # type: ignore[attr-defined]
    handler.dispatch_callback(Callback("watch", enqueue, ()))


def test_who_is_told_of_a_watch_goes_first_when_more_was_read_already(
    handler: Handler, read_ahead: Stream, time: Time
) -> None:
    tell(handler)
    for _ in range(3):
        assert handler.select([read_ahead], [], []) == ([read_ahead], [], [])

    assert time.waits == [under_test._COURTESY_S]


def test_a_burst_of_watches_is_held_up_once_in_ten_milliseconds(
    handler: Handler, read_ahead: Stream, time: Time
) -> None:
    for _ in range(100):
        time.now_s += 0.0005
        tell(handler)
        handler.select([read_ahead], [], [])

    assert len(time.waits) == 5


def test_nobody_goes_first_when_nothing_else_was_read_or_nobody_was_told(
    handler: Handler, read_ahead: Stream, time: Time
) -> None:
    handler.select([read_ahead], [], [])
    read_ahead.recv(100)
    tell(handler)
    handler.select([read_ahead], [], [], 0)

    assert time.waits == []
