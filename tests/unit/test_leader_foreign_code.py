"""What foreign code may raise: not only what is an Exception. No thread of ours may end by it, in silence."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from queue import SimpleQueue

import pytest

from leader import FencingToken, Leadership, Participant, Verdict
from leader.errand import Errand
from leader.guard import GuardAsker, limited
from leader.inbox import InboxThread
from leader.leader_latch import _Mailbox
from leader.notifier import Notifier

TERM = Leadership(1, FencingToken("/e", 0, 1), Participant("a"))


class SpeechlessError(Exception):
    """Cannot even be put into words."""

    def __str__(self) -> str:
        raise ValueError("no words")


RAISED: list[BaseException] = [asyncio.CancelledError(), SystemExit(3), ValueError("no"), SpeechlessError()]
WITHIN_S = 10.0

every_kind = pytest.mark.parametrize("raised", RAISED, ids=lambda exc: type(exc).__name__)


def at_once(errand: Errand) -> None:
    """What a loop does, on the thread of the test."""
    afterwards = errand()
    if afterwards is not None:
        afterwards()


@pytest.fixture
def ending() -> Iterator[list[Callable[[], object]]]:
    ends: list[Callable[[], object]] = []
    yield ends
    for end in ends:
        end()


@every_kind
def test_a_guard_is_asked_again_whatever_it_raised(raised: BaseException) -> None:
    answers: SimpleQueue[Verdict] = SimpleQueue()
    outcomes: list[BaseException | None] = [raised, None]

    def guard() -> Verdict:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return Verdict(True)

    asker = GuardAsker(guard, at_once)
    asker.ask(answers.put)
    refused = answers.get(timeout=WITHIN_S)
    asker.ask(answers.put)

    assert not refused.ready
    assert type(raised).__name__ in refused.reasons[0]
    assert answers.get(timeout=WITHIN_S).ready


class Nervous:
    """Raises in every call."""

    def __init__(self, raised: BaseException) -> None:
        self._raised = raised

    def elected(self, leadership: Leadership) -> None:
        raise self._raised

    def revoked(self, leadership: Leadership, reason: str) -> None:
        raise self._raised


@every_kind
def test_an_electable_that_raises_cannot_lead_and_is_told_of_the_end_all_the_same(
    raised: BaseException,
) -> None:
    failures: SimpleQueue[str] = SimpleQueue()
    drained = threading.Event()
    notifier = Notifier(Nervous(raised), lambda _leadership, reason: failures.put(reason), at_once)
    notifier.elected(TERM)
    notifier.revoked(TERM, "enough", drained.set)

    assert type(raised).__name__ in failures.get(timeout=WITHIN_S)
    assert drained.wait(WITHIN_S)


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


def test_a_limited_guard_leaves_no_thread_behind(eventually: Callable[..., None]) -> None:
    before = set(threading.enumerate())

    assert limited(lambda: Verdict(True), timedelta(seconds=WITHIN_S))().ready

    eventually(lambda: set(threading.enumerate()) <= before, what="its thread has ended")


def test_a_limited_guard_that_hangs_says_no_and_is_asked_again_when_it_is_back() -> None:
    back, free = threading.Event(), threading.Event()

    def hanging() -> Verdict:
        back.wait(WITHIN_S)
        return Verdict(True)

    guard = limited(hanging, timedelta(milliseconds=20))
    late = guard()
    still = guard()
    back.set()

    assert late.reasons == ("gave no answer within 0:00:00.020000",)
    assert still.reasons == ("still hangs in an earlier question",)
    for _ in range(1_000):
        if guard().ready:
            break
        free.wait(0.01)
    assert guard().ready
