"""Foreign code may raise any BaseException. No thread of this package may end because of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

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
