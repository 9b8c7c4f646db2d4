"""Foreign code may raise any BaseException. No thread of this package may end because of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import structlog

from leader.latch import _Mailbox
from leader.runtime.driver import InboxThread


class SpeechlessError(Exception):
    """An exception whose `__str__` raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


RAISED: list[BaseException] = [asyncio.CancelledError(), SystemExit(3), ValueError("no"), SpeechlessError()]
WITHIN_S = 10.0

every_kind = pytest.mark.parametrize("raised", RAISED, ids=lambda exc: type(exc).__name__)


@pytest.fixture
def ending() -> Iterator[list[Callable[[], object]]]:
    ends: list[Callable[[], object]] = []
    yield ends
    for end in ends:
        end()


@every_kind
def test_a_latch_listener_that_raises_is_told_the_next_thing(raised: BaseException) -> None:
    told = threading.Event()

    class Listener:
        def is_leader(self) -> None:
            raise raised

        def not_leader(self) -> None:
            told.set()

    mailbox = _Mailbox(Listener(), None)
    mailbox.put(lambda listener: listener.is_leader())
    mailbox.put(lambda listener: listener.not_leader())

    assert told.wait(WITHIN_S)
    mailbox.close(timedelta(seconds=WITHIN_S))


def test_a_latch_listener_that_no_thread_could_be_started_for_is_told_all_with_the_next_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []

    class Listener:
        def is_leader(self) -> None:
            told.append("is")

        def not_leader(self) -> None:
            told.append("not")

    def no_room(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    mailbox = _Mailbox(Listener(), None)
    mailbox.put(lambda listener: listener.is_leader())
    mailbox.close(timedelta(seconds=WITHIN_S))
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(threading.Thread, "start", no_room)
        mailbox.put(lambda listener: listener.not_leader())
    assert [line["event"] for line in logs] == ["listener_thread_not_started"]
    mailbox.put(lambda listener: listener.is_leader())
    mailbox.close(timedelta(seconds=WITHIN_S))

    assert told == ["is", "not", "is"]


@every_kind
def test_an_inbox_goes_on_after_a_job_that_raised(
    raised: BaseException, ending: list[Callable[[], object]]
) -> None:
    done = threading.Event()

    def job() -> None:
        raise raised

    thread = InboxThread("inbox-of-a-test")
    thread.start()
    ending += [thread.end, lambda: thread.join(timedelta(seconds=WITHIN_S))]
    thread.post(job)
    thread.post(done.set)

    assert done.wait(WITHIN_S)
