"""The callback thread calls guard and electable in order and once, also if they raise or hang."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from queue import Empty, SimpleQueue

import pytest

from leader import FencingToken, Leadership, Participant, Verdict
from leader.core.participant import model as m
from leader.runtime.callbacks import Callbacks

WITHIN = timedelta(seconds=10)
WITHIN_S = WITHIN.total_seconds()
YES = Verdict(True)


class SpeechlessError(Exception):
    """An exception whose `__str__` raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


RAISED: list[BaseException] = [asyncio.CancelledError(), SystemExit(3), ValueError("no"), SpeechlessError()]

every_kind = pytest.mark.parametrize("raised", RAISED, ids=lambda exc: type(exc).__name__)


def term(epoch: int) -> Leadership:
    return Leadership(epoch, FencingToken("/e", 0, epoch), Participant("a"))


class Stage:
    """A guard and an electable that the test controls, and the events that were posted."""

    def __init__(self) -> None:
        self.posted: SimpleQueue[m.Event] = SimpleQueue()
        self.called: SimpleQueue[str] = SimpleQueue()
        self.raised: BaseException | None = None
        self.go_on = threading.Event()
        self.hangs_in = ""
        self.callbacks = Callbacks(self._guard, self, self.posted.put)

    def _guard(self) -> Verdict:
        self._call("guard")
        return YES

    def elected(self, leadership: Leadership) -> None:
        self._call(f"elected {leadership.epoch}")

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self._call(f"revoked {leadership.epoch}")

    def _call(self, name: str) -> None:
        assert threading.current_thread().name == "leader-callbacks"
        self.called.put(name)
        if name == self.hangs_in:
            assert self.go_on.wait(WITHIN_S)
        if self.raised is not None:
            raise self.raised

    def next_event(self) -> m.Event:
        return self.posted.get(timeout=WITHIN_S)

    def calls(self, count: int) -> list[str]:
        return [self.called.get(timeout=WITHIN_S) for _ in range(count)]


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.callbacks.start()
    yield made
    made.go_on.set()
    made.callbacks.end()
    assert made.callbacks.join(WITHIN)


def test_calls_are_made_in_order_and_what_comes_of_them_is_posted(stage: Stage) -> None:
    stage.callbacks.ask(5)
    stage.callbacks.elected(term(5))
    stage.callbacks.revoked(term(5), "enough")

    assert stage.calls(3) == ["guard", "elected 5", "revoked 5"]
    assert [stage.next_event(), stage.next_event()] == [m.GuardSaid(5, YES), m.Drained(5)]
    assert stage.posted.empty()


@every_kind
def test_a_guard_that_raises_says_no_and_is_asked_again(stage: Stage, raised: BaseException) -> None:
    stage.raised = raised
    stage.callbacks.ask(1)
    refused = stage.next_event()
    stage.raised = None
    stage.callbacks.ask(2)

    assert isinstance(refused, m.GuardSaid)
    assert not refused.verdict.ready
    assert type(raised).__name__ in refused.verdict.reasons[0]
    assert stage.next_event() == m.GuardSaid(2, YES)


@every_kind
def test_an_electable_that_raises_abdicates_and_is_told_of_the_end_all_the_same(
    stage: Stage, raised: BaseException
) -> None:
    stage.raised = raised
    stage.callbacks.elected(term(1))
    stage.callbacks.revoked(term(1), "enough")

    abdication = stage.next_event()
    assert isinstance(abdication, m.AbdicationAsked)
    assert abdication.epoch == 1
    assert type(raised).__name__ in abdication.reason
    assert stage.next_event() == m.Drained(1)


def test_revoked_waits_for_elected_of_its_term_and_the_next_question_for_revoked(stage: Stage) -> None:
    stage.hangs_in = "elected 1"
    stage.callbacks.elected(term(1))
    stage.callbacks.revoked(term(1), "enough")
    stage.callbacks.ask(2)
    assert stage.calls(1) == ["elected 1"]
    with pytest.raises(Empty):
        stage.called.get(timeout=0.05)
    assert stage.callbacks.calling == "elected"

    stage.go_on.set()

    assert stage.calls(2) == ["revoked 1", "guard"]


def test_a_question_that_a_newer_one_has_replaced_is_not_asked(stage: Stage) -> None:
    stage.hangs_in = "guard"
    stage.callbacks.ask(1)
    assert stage.calls(1) == ["guard"]
    stage.callbacks.ask(2)
    stage.callbacks.ask(3)
    stage.go_on.set()

    assert stage.calls(1) == ["guard"]
    assert [stage.next_event(), stage.next_event()] == [m.GuardSaid(1, YES), m.GuardSaid(3, YES)]
    assert stage.called.empty()


def test_the_end_waits_for_revoked_but_asks_no_guard_any_more() -> None:
    stage = Stage()
    stage.callbacks.revoked(term(1), "closed")
    stage.callbacks.ask(2)
    stage.callbacks.end()

    stage.callbacks.start()

    assert stage.callbacks.join(WITHIN)
    assert stage.calls(1) == ["revoked 1"]
    assert stage.called.empty()


def test_the_end_does_not_wait_for_ever_for_a_call_that_hangs(stage: Stage) -> None:
    stage.hangs_in = "revoked 1"
    stage.callbacks.revoked(term(1), "closed")
    assert stage.calls(1) == ["revoked 1"]

    stage.callbacks.end()

    assert not stage.callbacks.join(timedelta(milliseconds=50))
    assert stage.callbacks.calling == "revoked"


def test_who_is_called_does_not_wait_for_its_own_end(stage: Stage) -> None:
    answers: SimpleQueue[bool] = SimpleQueue()
    stage.callbacks.post(lambda: answers.put(stage.callbacks.join(WITHIN)))

    assert answers.get(timeout=WITHIN_S / 2)
