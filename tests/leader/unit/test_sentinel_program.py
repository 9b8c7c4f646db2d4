"""What the sentinel's program decides: when a process is dead, which session is meant, how long it tries."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from leader.sentinel.ensemble import CLOSED, OVER
from leader.sentinel.program import GAVE_UP, SLACK_S, Ledger, Watched, end_session, watch
from leader.sentinel.wire import FORGET, Handoff, handoff_line

FIRST = Handoff(1, b"p" * 16, 4000)
SECOND = Handoff(2, b"q" * 16, 4000)


class Time:
    """A clock that only sleep moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize("outcome", [CLOSED, OVER])
def test_the_first_server_that_knows_ends_it(outcome: str) -> None:
    time, tries = Time(), iter([None, None, outcome])

    assert end_session(FIRST, lambda handoff, answer_limit_s: next(tries), time, time.sleep) == outcome


def test_it_tries_for_as_long_as_the_session_can_live_and_no_longer() -> None:
    time, tried_at = Time(), []

    def nobody(handoff: Handoff, answer_limit_s: float) -> None:
        tried_at.append(time.now_s - 1000)
        time.sleep(0.3)

    assert end_session(FIRST, nobody, time, time.sleep) == GAVE_UP
    assert 3.9 < tried_at[-1] < 4.0 + SLACK_S
    assert time.now_s - 1000 <= 4.0 + SLACK_S + 0.3


def test_a_server_that_hangs_is_given_little_time_at_first_and_more_in_each_round() -> None:
    time, limits = Time(), []

    def hangs(handoff: Handoff, answer_limit_s: float) -> str | None:
        limits.append(answer_limit_s)
        return None if len(limits) < 6 else CLOSED

    end_session(FIRST, hangs, time, time.sleep)

    assert limits == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]


def test_sessions_are_read_from_pieces_of_any_size_and_the_newest_counts() -> None:
    said = handoff_line(FIRST) + b"nonsense\n" + handoff_line(SECOND)
    for size in range(1, len(said)):
        ledger = Ledger()
        for start in range(0, len(said), size):
            ledger.hear(said[start : start + size])
        assert ledger.session == SECOND


def test_half_a_line_is_no_session_yet() -> None:
    ledger = Ledger()
    ledger.hear(handoff_line(FIRST) + handoff_line(SECOND)[:-1])

    assert ledger.session == FIRST


class Process:
    """A process that waits, a pipe to its sentinel, and `watch` on a thread."""

    def __init__(self) -> None:
        self.child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
        reader, self.pipe = os.pipe()
        self.left: list[Handoff | None] = []
        self.prepared = threading.Event()
        self._fds = [reader, os.pidfd_open(self.child.pid)]
        watched = Watched(self.child.pid, self._fds[1], reader)
        self.thread = threading.Thread(target=lambda: self.left.append(watch(watched, self.prepared.set)))
        self.thread.start()

    def say(self, line: bytes) -> None:
        os.write(self.pipe, line)

    def hang_up(self) -> None:
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def close(self) -> None:
        self.child.kill()
        self.child.communicate()
        self.thread.join(60)
        self.hang_up()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.close()


def test_a_process_that_dies_leaves_its_newest_session(process: Process) -> None:
    process.say(handoff_line(FIRST))
    process.say(handoff_line(SECOND))
    process.child.kill()  # not reaped: a zombie is dead
    process.thread.join(60)

    assert process.left == [SECOND]


def test_a_process_that_hangs_up_and_lives_is_watched_on(
    process: Process, eventually: Callable[..., None]
) -> None:
    process.say(handoff_line(FIRST))
    process.hang_up()  # as exec does
    eventually(process.prepared.is_set)
    process.thread.join(0.3)

    assert process.thread.is_alive()
    assert process.left == []
    process.child.kill()
    process.thread.join(60)
    assert process.left == [FIRST]


def test_a_process_that_needs_its_sentinel_no_more_is_let_go(process: Process) -> None:
    process.say(handoff_line(FIRST))
    process.say(FORGET)
    process.hang_up()
    process.thread.join(60)

    assert process.left == [None]
    assert process.child.poll() is None


def test_what_a_process_forgets_is_not_touched_when_it_dies(process: Process) -> None:
    process.say(handoff_line(FIRST))
    process.say(FORGET)
    process.child.kill()
    process.thread.join(60)

    assert process.left == [None]


def test_what_is_no_pidfd_is_refused_and_not_polled_for_ever() -> None:
    reader, writer = os.pipe()
    free = os.dup(reader)
    os.close(free)
    try:
        with pytest.raises(OSError, match="cannot be watched"):
            watch(Watched(1, free, reader), lambda: None)
    finally:
        os.close(reader)
        os.close(writer)
