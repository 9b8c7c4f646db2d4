"""The answer at the point of use: a clock, a deadline, and the connection it was proven on."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from leader.evidence import KEPT, Evidence
from leader.tenure import Tenure

S = timedelta(seconds=1)


class Bench:
    """A tenure over a session of 12 s and a margin of 1 s, with a clock we turn by hand."""

    def __init__(self, *, any_connection: bool = False, attached: int = 0) -> None:
        self.now = 100 * S
        self.evidence = Evidence()
        self.evidence.attached(7, attached * S)
        session: Any = SimpleNamespace(
            is_connected=True, session_id=7, generation=4, negotiated_timeout=12 * S, evidence=self.evidence
        )
        self.session = session
        self.tenure = Tenure(session, lambda: self.now, S, any_connection=any_connection)
        self.tenure.restart(7)

    def prove(self, submitted: float, answered: float | None = None) -> bool:
        self.now = (submitted if answered is None else answered) * S
        return self.tenure.proven(submitted * S)

    def gain(self) -> bool:
        self.prove(97)
        self.prove(100)
        return self.tenure.begin(4)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_stands_before_the_beginning_or_after_the_end(bench: Bench) -> None:
    assert not bench.tenure.stands()
    assert bench.gain()
    assert bench.tenure.stands()
    bench.tenure.end()
    assert not bench.tenure.stands()


def test_one_proof_is_not_enough_after_a_long_silence(bench: Bench) -> None:
    bench.prove(100)

    assert not bench.tenure.begin(4)


def test_a_connection_made_just_now_is_evidence_of_its_own() -> None:
    bench = Bench(attached=99)

    assert bench.tenure.begin(4)
    assert bench.tenure.remaining() == 99 * S + 12 * S - S - 100 * S


def test_the_deadline_counts_from_the_older_of_two_proofs_that_are_apart_less_the_margin(
    bench: Bench,
) -> None:
    bench.gain()

    bench.now = 108 * S - timedelta(microseconds=1)
    assert bench.tenure.stands()
    bench.now = 108 * S
    assert not bench.tenure.stands()


def test_a_proof_that_comes_soon_after_another_does_not_confirm_it(bench: Bench) -> None:
    bench.prove(99)
    bench.prove(100.9)

    assert not bench.tenure.begin(4)
    assert bench.prove(101.1), "two seconds, a sixth of the session, after the first was answered"
    assert bench.tenure.begin(4)
    assert bench.tenure.remaining() == 99 * S + 12 * S - S - 101.1 * S


def test_a_proof_confirms_the_newest_of_those_that_lie_far_enough_before_it(bench: Bench) -> None:
    """Else a session that was busy until a moment ago would be worth no more than when that began."""
    for submitted in (96, 97.5, 98, 99):
        bench.prove(submitted)

    bench.prove(100.1)

    assert bench.tenure.begin(4)
    assert bench.tenure.remaining() == 98 * S + 12 * S - S - 100.1 * S


def test_however_many_proofs_come_close_together_few_are_kept(bench: Bench) -> None:
    for number in range(10_000):
        bench.prove(97 + number / 10_000)

    assert len(bench.evidence._unconfirmed) <= KEPT + 1


def test_what_counts_is_when_the_first_was_answered(bench: Bench) -> None:
    bench.prove(97, answered=99)
    bench.prove(100)

    assert not bench.tenure.begin(4)


def test_a_proof_after_the_deadline_brings_nothing_back(bench: Bench) -> None:
    bench.gain()

    assert not bench.prove(107, answered=108)
    assert not bench.tenure.stands()


@pytest.mark.parametrize("change", [{"is_connected": False}, {"session_id": 8}, {"generation": 5}])
def test_a_break_of_the_connection_ends_it_even_if_it_was_mended_meanwhile(
    bench: Bench, change: dict[str, Any]
) -> None:
    bench.gain()

    vars(bench.session).update(change)

    assert not bench.tenure.stands()


@pytest.mark.parametrize("change", [{"is_connected": False}, {"generation": 5}])
def test_under_the_session_policy_it_outlives_a_connection_but_not_its_deadline(
    change: dict[str, Any],
) -> None:
    bench = Bench(any_connection=True)
    bench.gain()

    vars(bench.session).update(change)

    assert bench.tenure.stands()
    bench.now = 108 * S
    assert not bench.tenure.stands()


def test_what_was_won_on_an_older_connection_does_not_begin(bench: Bench) -> None:
    bench.session.generation = 5

    assert not bench.gain()
    assert not bench.tenure.stands()


def test_proofs_of_an_older_session_prove_nothing_of_the_new_one(bench: Bench) -> None:
    bench.gain()
    bench.session.session_id = 8
    bench.tenure.restart(8)

    assert not bench.tenure.begin(4)
    assert bench.tenure.proof_age() == timedelta(0)
