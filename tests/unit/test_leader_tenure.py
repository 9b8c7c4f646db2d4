"""The answer at the point of use: a clock, a deadline, and the connection it was proven on."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from leader.fencing import FencingToken
from leader.protocol.records import Leadership, Participant
from leader.tenure import Tenure
from leader.zookeeper.session import SessionState

S = timedelta(seconds=1)
LEADERSHIP = Leadership(3, FencingToken("/e", 2, 3), Participant("a", "h", 1, "b"))


class Bench:
    """A tenure over a session of 10 s and a margin of 1 s, with a clock we turn by hand."""

    def __init__(self) -> None:
        self.now = 100 * S
        session: Any = SimpleNamespace(state=SessionState.CONNECTED, generation=4, negotiated_timeout=10 * S)
        self.session = session
        self.tenure = Tenure(session, lambda: self.now, S)

    def grant(self) -> None:
        self.tenure.grant(LEADERSHIP, generation=4, proofs=(99 * S, 100 * S))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nobody_leads_before_the_grant_or_after_the_end(bench: Bench) -> None:
    assert bench.tenure.current() is None
    bench.grant()
    assert bench.tenure.current() == LEADERSHIP
    bench.tenure.end()
    assert bench.tenure.current() is None


def test_the_deadline_counts_from_the_older_of_the_two_proofs_less_the_margin(bench: Bench) -> None:
    bench.grant()

    bench.now = 108 * S - timedelta(microseconds=1)
    assert bench.tenure.current() == LEADERSHIP
    bench.now = 108 * S
    assert bench.tenure.current() is None


def test_a_proof_prolongs_to_what_the_proof_before_it_is_worth(bench: Bench) -> None:
    bench.grant()
    bench.now = 103 * S

    assert bench.tenure.prolong(102 * S)
    assert bench.tenure.remaining() == 100 * S + 10 * S - S - 103 * S


def test_a_proof_after_the_deadline_brings_nothing_back(bench: Bench) -> None:
    bench.grant()
    bench.now = 108 * S

    assert not bench.tenure.prolong(107 * S)
    assert bench.tenure.current() is None


@pytest.mark.parametrize(
    "change",
    [{"state": SessionState.SUSPENDED}, {"state": SessionState.LOST}, {"generation": 5}],
)
def test_a_break_of_the_connection_ends_it_even_if_it_was_mended_meanwhile(
    bench: Bench, change: dict[str, Any]
) -> None:
    bench.grant()

    vars(bench.session).update(change)

    assert bench.tenure.current() is None


def test_a_grant_that_was_proven_on_an_older_connection_is_none(bench: Bench) -> None:
    bench.session.generation = 5

    bench.grant()

    assert bench.tenure.current() is None
