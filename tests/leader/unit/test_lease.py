"""The answer of `is_leader()`: a clock, a deadline, and the connection of the proof."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from leader import ElectionConfig, FencingToken, Leadership, Participant
from leader.core.lease import KEPT, LeadershipLease, SessionLiveness
from leader.core.participant.term import ConfirmedTerm, PendingCalls
from leader.journal import DeferredJournal, LogJournal

S = timedelta(seconds=1)


class Bench:
    """A lease for a session of 12 s and a margin of 1 s, with a clock that the test moves."""

    def __init__(self, *, any_connection: bool = False, attached: int = 0) -> None:
        self.now = 100 * S
        self.asked: Callable[[], None] = lambda: None
        """Called when the lease reads the time."""
        self.liveness = SessionLiveness()
        self.attach(7, attached)
        self.lease = LeadershipLease(self.liveness, self._clock, S, any_connection=any_connection)
        self.lease.restart(7)

    def _clock(self) -> timedelta:
        self.asked()
        return self.now

    @property
    def stands(self) -> bool:
        return self.lease.stands(self.lease.hold)

    def attach(self, session_id: int, asked: float) -> None:
        self.liveness.attached(session_id, asked * S, 12 * S)

    def prove(self, submitted: float, answered: float | None = None) -> bool:
        self.now = (submitted if answered is None else answered) * S
        return self.lease.proven(submitted * S)

    def gain(self) -> bool:
        self.prove(97)
        self.prove(100)
        return self.lease.begin(0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_stands_before_the_beginning_or_after_the_end(bench: Bench) -> None:
    assert not bench.stands
    assert bench.gain()
    assert bench.stands
    bench.lease.end()
    assert not bench.stands


def test_one_proof_is_not_enough_after_a_long_silence(bench: Bench) -> None:
    bench.prove(100)

    assert not bench.lease.begin(0)


def test_a_connection_made_just_now_is_evidence_of_its_own() -> None:
    bench = Bench(attached=99)

    assert bench.lease.begin(0)
    assert bench.lease.remaining() == 99 * S + 12 * S - S - 100 * S


def test_the_deadline_counts_from_the_older_of_two_proofs_that_are_apart_less_the_margin(
    bench: Bench,
) -> None:
    bench.gain()

    bench.now = 108 * S - timedelta(microseconds=1)
    assert bench.stands
    bench.now = 108 * S
    assert not bench.stands


def test_a_proof_that_comes_soon_after_another_does_not_confirm_it(bench: Bench) -> None:
    bench.prove(99)
    bench.prove(100.9)

    assert not bench.lease.begin(0)
    assert bench.prove(101.1), "two seconds, a sixth of the session, after the first was answered"
    assert bench.lease.begin(0)
    assert bench.lease.remaining() == 99 * S + 12 * S - S - 101.1 * S


def test_a_proof_confirms_the_newest_of_those_that_lie_far_enough_before_it(bench: Bench) -> None:
    """Otherwise, after many writes close together, the deadline would count from the first of them."""
    for submitted in (96, 97.5, 98, 99):
        bench.prove(submitted)

    bench.prove(100.1)

    assert bench.lease.begin(0)
    assert bench.lease.remaining() == 98 * S + 12 * S - S - 100.1 * S


def test_however_many_proofs_come_close_together_few_are_kept(bench: Bench) -> None:
    for number in range(10_000):
        bench.prove(97 + number / 10_000)

    assert len(bench.liveness._unconfirmed) <= KEPT + 1


def test_what_counts_is_when_the_first_was_answered(bench: Bench) -> None:
    bench.prove(97, answered=99)
    bench.prove(100)

    assert not bench.lease.begin(0)


def test_a_proof_after_the_deadline_brings_nothing_back(bench: Bench) -> None:
    bench.gain()

    assert not bench.prove(107, answered=108)
    assert not bench.stands


def _suspend(bench: Bench) -> None:
    bench.liveness.broke(lost=False)


def _suspend_and_connect(bench: Bench) -> None:
    bench.liveness.broke(lost=False)
    bench.attach(7, 100)


def _lose(bench: Bench) -> None:
    bench.liveness.broke(lost=True)


def _replace_session(bench: Bench) -> None:
    bench.liveness.broke(lost=True)
    bench.attach(8, 100)


@pytest.mark.parametrize("change", [_suspend, _suspend_and_connect, _lose, _replace_session])
def test_a_break_of_the_connection_ends_it_even_if_it_was_mended_meanwhile(
    bench: Bench, change: Callable[[Bench], None]
) -> None:
    bench.gain()

    change(bench)

    assert not bench.stands


def test_under_the_session_policy_it_outlives_a_connection_but_not_its_deadline() -> None:
    bench = Bench(any_connection=True)
    bench.gain()

    _suspend(bench)

    assert bench.stands
    bench.now = 108 * S
    assert not bench.stands


@pytest.mark.parametrize("change", [_lose, _replace_session])
def test_under_the_session_policy_it_does_not_outlive_its_session(change: Callable[[Bench], None]) -> None:
    bench = Bench(any_connection=True)
    bench.gain()

    change(bench)

    assert not bench.stands


def test_what_was_won_on_an_older_connection_does_not_begin(bench: Bench) -> None:
    _suspend_and_connect(bench)

    assert not bench.gain()
    assert not bench.stands


def test_proofs_of_an_older_session_prove_nothing_of_the_new_one(bench: Bench) -> None:
    bench.gain()
    _lose(bench)
    bench.liveness.attached(8, 0 * S, 12 * S)
    bench.lease.proven(100 * S)  # its answer came late

    bench.lease.restart(8)
    bench.prove(103)

    assert not bench.lease.begin(1)
    assert bench.lease.proof_age() == timedelta(0)


def test_a_lower_timeout_of_another_server_shortens_it() -> None:
    bench = Bench(any_connection=True)
    bench.gain()

    bench.liveness.attached(7, 98 * S, 4 * S)

    assert bench.lease.remaining() == S
    bench.now = 101 * S
    assert not bench.stands


def test_who_was_told_no_is_not_told_yes_by_a_proof_that_came_in_time(bench: Bench) -> None:
    """The driver reads the clock before the deadline; another thread asks after it; then the proof counts."""
    bench.gain()
    hold = bench.lease.hold
    answers: list[bool] = []

    def another_thread_asks() -> None:
        bench.asked = lambda: None
        bench.now = 108 * S
        answers.append(bench.lease.stands(hold))
        bench.now = 108 * S - timedelta(microseconds=1)

    bench.asked = another_thread_asks
    bench.now = 108 * S - timedelta(microseconds=1)
    bench.lease.proven(107 * S)
    answers.append(bench.stands)

    assert answers == [False, False]
    assert bench.lease.remaining() > timedelta(0), "the session lives; the next proof finds that it is over"


def test_a_connection_that_breaks_while_it_is_asked_is_a_no_for_who_asks_next(bench: Bench) -> None:
    bench.gain()

    bench.asked = lambda: _suspend(bench)
    bench.lease.stands(bench.lease.hold)
    bench.asked = lambda: None

    assert not bench.stands


def test_who_asks_sleeps_past_the_deadline_after_it_read_the_session_and_is_told_no(bench: Bench) -> None:
    bench.gain()

    def sleep() -> None:
        bench.now = 200 * S

    bench.asked = sleep

    assert not bench.stands


def test_a_hold_that_is_over_does_not_stand_on_the_next(bench: Bench) -> None:
    bench.gain()
    first = bench.lease.hold
    bench.lease.end()
    bench.lease.begin(0)

    assert bench.stands
    assert not bench.lease.stands(first)


def test_asking_takes_no_lock(bench: Bench) -> None:
    """A thread that holds the writers' lock and sleeps does not block readers."""
    bench.gain()
    answers: list[bool] = []
    with bench.liveness._writing:
        asking = threading.Thread(target=lambda: answers.append(bench.stands))
        asking.start()
        asking.join(60)

    assert answers == [True]


def test_a_proof_and_a_break_at_once_never_undo_the_break() -> None:
    """A proof reads the facts and replaces them; a break between the two must not be lost."""
    liveness = SessionLiveness()
    liveness.attached(7, 0 * S, 12 * S)
    ends = threading.Event()

    def prove() -> None:
        at = 0
        while not ends.is_set():
            at += 3
            liveness.proven(7, at * S, at * S)

    proving = threading.Thread(target=prove)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        proving.start()
        for generation in range(1, 2_000):
            liveness.broke(lost=False)
            facts = liveness.facts
            assert not facts.is_connected
            assert facts.generation == generation
    finally:
        ends.set()
        proving.join()
        sys.setswitchinterval(before)


def test_a_term_does_not_stand_on_a_lock_that_was_lost_and_gained_again(bench: Bench) -> None:
    """The latch may lose the lock and gain it again before the participant handles either event."""
    told: Any = SimpleNamespace(elected=lambda _leadership: None)
    journal = DeferredJournal(LogJournal())
    calls = PendingCalls(told, ElectionConfig(root="/e"), lambda: bench.now)
    term = ConfirmedTerm(bench.lease, told, calls, journal, lambda: bench.now)
    leadership = Leadership(1, FencingToken("/e/epoch", 1, 1), Participant("a", "h", 1, "first"))
    bench.gain()
    assert term.grant(leadership)
    assert term.leadership() == leadership

    bench.lease.end()
    bench.lease.begin(0)

    assert bench.stands
    assert term.leadership() is None
