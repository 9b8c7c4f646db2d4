"""When a connection counts as dead, with the test's clock; and the wait for files."""

from __future__ import annotations

import os
import socket

import pytest

from leader.zookeeper.link import LinkWatch, ready

SESSION_S = 9.0


class Stage:
    """A connection whose pending requests the test sets."""

    def __init__(self) -> None:
        self.now, self.due = 1000.0, False
        self.watch = LinkWatch(lambda: self.due, lambda: self.now)
        self.watch.arm("the socket", SESSION_S)

    def send(self) -> None:
        self.watch.asked()
        self.due = True

    def hear(self, *, all_of_it: bool = True) -> None:
        self.watch.bytes_arrived()
        self.due = not all_of_it

    def dead(self) -> bool:
        left_s = self.watch.left_s()
        return left_s is not None and left_s <= 0


def test_link_is_dead_after_two_thirds_of_the_session_however_often_we_send() -> None:
    stage = Stage()
    for _ in range(59):
        stage.send()
        stage.now += 0.1
        assert not stage.dead()

    stage.send()
    stage.now += 0.2

    assert stage.dead()


def test_idle_link_is_never_dead() -> None:
    stage = Stage()
    stage.now += 1000 * SESSION_S

    assert stage.watch.left_s() is None


def test_ping_in_time_does_not_prolong_the_silence_that_is_allowed() -> None:
    stage = Stage()
    stage.now += SESSION_S / 3
    stage.send()
    stage.now += SESSION_S / 3

    assert stage.dead()


def test_bytes_of_an_answer_that_is_not_complete_keep_the_link_alive() -> None:
    stage = Stage()
    stage.send()
    for _ in range(20):
        stage.now += SESSION_S / 2
        stage.hear(all_of_it=False)
        assert not stage.dead()


def test_who_asks_after_a_long_silence_waits_a_third_of_the_session_for_the_answer() -> None:
    stage = Stage()
    stage.now += 100 * SESSION_S  # like after a pause of the process
    stage.send()

    assert stage.watch.left_s() == pytest.approx(SESSION_S / 3)
    stage.now += SESSION_S / 3
    assert stage.dead()


def test_patience_with_a_late_question_is_not_inherited_by_the_next_one() -> None:
    stage = Stage()
    stage.now += 100 * SESSION_S
    stage.send()
    stage.hear()
    assert not stage.dead()  # everything was answered
    stage.now += 100 * SESSION_S
    stage.send()

    assert stage.watch.left_s() == pytest.approx(SESSION_S / 3)


def test_wait_ends_when_a_file_is_ready_or_the_time_is_over() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert ready([ours], [], 0.001) == ([], [])
        assert ready([], [ours], None) == ([], [ours])
        theirs.send(b"x")
        assert ready([theirs, ours], [], None) == ([ours], [])


def test_what_tls_has_read_ahead_is_ready_though_the_kernel_has_nothing() -> None:
    reading, writing = os.pipe()

    class ReadAhead:
        def fileno(self) -> int:
            return reading

        def pending(self) -> int:
            return 5

    try:
        file = ReadAhead()
        assert ready([file], [], None) == ([file], [])
    finally:
        os.close(reading)
        os.close(writing)


def test_closed_socket_is_an_error_that_kazoo_knows() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.raises(OSError, match="closed"):
        ready([ours], [], 0)
