"""The waker of kazoo's thread: it counts, never blocks, and stays closed."""

from __future__ import annotations

import pytest

from leader.zookeeper.handler import Waker
from leader.zookeeper.link import ready


def test_as_many_as_were_sent_are_received_and_none_more() -> None:
    waker = Waker()
    for _ in range(10_000):
        waker.send(b"\0")
    for _ in range(10_000):
        assert ready([waker], [], 0) == ([waker], [])
        assert waker.recv(1) == b"\0"

    assert ready([waker], [], 0) == ([], [])
    with pytest.raises(BlockingIOError):
        waker.recv(1)
    waker.close()


def test_closed_twice_and_used_afterwards_it_touches_no_file_of_others() -> None:
    waker = Waker()
    waker.close()
    waker.close()
    other = Waker()  # it gets the file descriptor of the first one

    with pytest.raises(OSError, match="closed"):
        waker.send(b"\0")
    with pytest.raises(OSError, match="closed"):
        waker.recv(1)
    assert ready([other], [], 0) == ([], [])
    other.close()
