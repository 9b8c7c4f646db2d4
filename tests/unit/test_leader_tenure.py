"""The answer at the point of use: a clock, a deadline, and the connection it was proven on."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from leader.tenure import Tenure

S = timedelta(seconds=1)


class Bench:
    """A tenure over a session of 10 s and a margin of 1 s, with a clock we turn by hand."""

    def __init__(self, *, any_connection: bool = False) -> None:
        self.now = 100 * S
        session: Any = SimpleNamespace(
            is_connected=True, session_id=7, generation=4, negotiated_timeout=10 * S
        )
        self.session = session
        self.tenure = Tenure(session, lambda: self.now, S, any_connection=any_connection)

    def gain(self) -> bool:
        self.tenure.restart(7, 98 * S)
        self.tenure.proven(100 * S)
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


def test_one_proof_is_not_enough(bench: Bench) -> None:
    bench.tenure.restart(7, None)
    bench.tenure.proven(100 * S)

    assert not bench.tenure.begin(4)
    assert not bench.tenure.stands()


def test_the_deadline_counts_from_the_older_of_the_two_proofs_less_the_margin(bench: Bench) -> None:
    bench.gain()

    bench.now = 107 * S - timedelta(microseconds=1)
    assert bench.tenure.stands()
    bench.now = 107 * S
    assert not bench.tenure.stands()


def test_a_proof_prolongs_to_what_the_proof_before_it_is_worth(bench: Bench) -> None:
    bench.gain()
    bench.now = 103 * S

    assert bench.tenure.proven(102 * S)
    assert bench.tenure.remaining() == 100 * S + 10 * S - S - 103 * S
    assert bench.tenure.proof_age() == S


def test_two_proofs_close_together_may_both_have_gone_unheard(bench: Bench) -> None:
    bench.tenure.restart(7, 99 * S)
    bench.tenure.proven(99.1 * S)
    bench.tenure.begin(4)
    ping = 10 * S / 3

    assert bench.tenure.remaining() == 99 * S - ping + 10 * S - S - bench.now
    bench.tenure.proven(99.9 * S)
    assert bench.tenure.remaining() == 99.1 * S - ping + 10 * S - S - bench.now


def test_a_proof_close_to_the_last_takes_nothing_back(bench: Bench) -> None:
    bench.gain()
    before = bench.tenure.remaining()

    bench.tenure.proven(100.1 * S)

    assert bench.tenure.remaining() == before


def test_a_proof_after_the_deadline_brings_nothing_back(bench: Bench) -> None:
    bench.gain()
    bench.now = 107 * S

    assert not bench.tenure.proven(106 * S)
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
    bench.now = 107 * S
    assert not bench.tenure.stands()


def test_what_was_won_on_an_older_connection_does_not_begin(bench: Bench) -> None:
    bench.session.generation = 5

    assert not bench.gain()
    assert not bench.tenure.stands()


def test_proofs_of_an_older_session_prove_nothing_of_the_new_one(bench: Bench) -> None:
    bench.gain()
    bench.session.session_id = 8

    bench.tenure.restart(8, 100 * S)

    assert not bench.tenure.begin(4)
