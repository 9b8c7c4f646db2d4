"""Readiness decides between participants: forced take-overs, degraded verdicts, what member nodes say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from leader import Participant, ParticipantView, Verdict, next_in_line
from leader.core.participant import model as m
from leader.errors import ZooKeeperUnavailableError
from leader.protocol import requests as rq
from leader.protocol.participant import MemberNode, Rank, encode_member
from leader.runtime.callbacks import checked
from tests.leader.unit.participant_stage import NO, PATHS, YES, Member, Server

FORCED: dict[str, Any] = {
    "forced_takeover_after": timedelta(seconds=60),
    "requeue_backoff_max": timedelta(seconds=5),
}


def _declining(server: Server, name: str, **settings: Any) -> Member:
    member = server.member(name, **FORCED, **settings)
    member.answer_at_once = NO
    member.post(m.AddAsked())
    server.settle()
    return member


def test_an_outage_does_not_count_towards_a_forced_takeover() -> None:
    server = Server()
    one = _declining(server, "one")
    server.wait(timedelta(seconds=55))

    one.lose_session()
    server.wait(timedelta(seconds=40))
    assert one.told == [], "the others may have led, or become ready, without our knowledge"

    server.wait(timedelta(seconds=30))
    assert [kind for kind, _ in one.told] == ["elected"]


def _readied(member: Member) -> None:
    member.answer_at_once = YES
    member.publish_readiness(True)


def test_a_term_between_two_times_without_a_leader_is_no_part_of_either() -> None:
    server = Server()
    one, two, three = (_declining(server, name) for name in ("one", "two", "three"))
    server.wait(timedelta(seconds=10))
    members = (one, two, three)
    assert [member.core.status().everybody_declines for member in members] == [True] * 3

    _readied(one)
    server.wait(timedelta(minutes=5))
    assert [kind for kind, _ in one.told] == ["elected"]
    assert [member.core.status().everybody_declines for member in members] == [False] * 3

    one.post(m.RemoveAsked())
    server.wait(timedelta(seconds=45))
    assert two.told == three.told == []
    assert two.core.status().everybody_declines
    server.wait(timedelta(seconds=30))
    assert [kind for kind, _ in two.told + three.told] == ["elected"]


def test_a_ready_participant_that_cannot_claim_does_not_keep_others_from_a_forced_takeover() -> None:
    server = Server()
    newest = server.member("newest", newest_schema=2)
    newest.post(m.AddAsked())
    server.settle()
    assert newest.told, "it has begun the epoch node with its schema"
    newest.post(m.CloseAsked())
    server.settle()
    old = server.member("old", **FORCED, newest_schema=1)
    old.publish_readiness(True)
    old.post(m.AddAsked())
    server.settle()
    assert "schema 2" in (old.core.status().last_abdication or "")

    left = _declining(server, "left", newest_schema=2)
    server.wait(timedelta(minutes=2))

    assert old.told == []
    assert [kind for kind, _ in left.told] == ["elected"]


def test_a_member_node_stays_small_however_many_reasons_a_guard_gives() -> None:
    server = Server()
    one = server.member("one")
    one.answer_at_once = Verdict(False, tuple(f"release {n}: " + "x" * 1_000 for n in range(10_000)))
    one.post(m.AddAsked())
    server.settle()

    member = one.member()
    assert member is not None
    assert member.declined
    assert member.reasons[0].startswith("release 0: ")
    assert len(encode_member(member)) < 4_096


DEGRADED = Verdict(True, ("release 3 is nowhere",), degraded=True)


def test_a_degraded_verdict_leads_while_no_other_participant_is_ready() -> None:
    server = Server()
    other, one = server.member("other"), server.member("one")
    other.publish_readiness(False)
    other.answer_at_once = NO
    one.answer_at_once = DEGRADED
    for member in (other, one):
        member.post(m.AddAsked())
        server.settle()

    assert [kind for kind, _ in one.told] == ["elected"]
    assert one.core.status().last_verdict == DEGRADED


def test_a_degraded_verdict_is_refused_while_another_participant_is_ready_though_out_of_the_queue() -> None:
    server = Server()
    other = server.member("other", requeue_backoff_min=timedelta(minutes=9), requeue_backoff_max=timedelta(1))
    other.answer_at_once = NO
    other.publish_readiness(True)
    one = server.member("one", requeue_backoff_max=timedelta(seconds=5))
    one.answer_at_once = DEGRADED
    for member in (other, one):
        member.post(m.AddAsked())
        server.settle()

    server.wait(timedelta(seconds=30))
    member, status = one.member(), one.core.status()
    assert one.told == []
    assert member is not None
    assert member.declined
    assert "release 3 is nowhere; other is ready" in status.why()

    other.publish_readiness(False)
    server.wait(timedelta(seconds=30))
    assert [kind for kind, _ in one.told] == ["elected"]


def test_a_ready_participant_that_never_leads_does_not_keep_a_degraded_one_from_leading() -> None:
    server = Server()
    watching, removed, one = server.member("w", nofailover=True), server.member("r"), server.member("one")
    for member in (watching, removed):
        member.publish_readiness(True)
        member.post(m.AddAsked())
        server.settle()
    removed.post(m.RemoveAsked())
    server.settle()
    one.answer_at_once = DEGRADED
    one.post(m.AddAsked())
    server.settle()

    assert [kind for kind, _ in one.told] == ["elected"]


def test_a_degraded_verdict_is_refused_when_the_other_participants_cannot_be_read() -> None:
    server = Server()
    one = server.member("one", requeue_backoff_max=timedelta(seconds=5))
    one.answer_at_once = DEGRADED

    def fail(request: rq.Request) -> None:
        if request == rq.GetChildren(PATHS.members):
            raise ZooKeeperUnavailableError("no answer")

    one.before = fail
    one.post(m.AddAsked())
    server.settle()
    assert one.told == []
    assert "cannot be read" in one.core.status().why()

    one.before = lambda _request: None
    server.wait(timedelta(seconds=30))
    assert [kind for kind, _ in one.told] == ["elected"]


def test_the_best_ranked_of_those_that_decline_is_forced_to_lead() -> None:
    server = Server()
    far, near = _declining(server, "far"), _declining(server, "near")
    far.inbox.append(lambda: far.core.readiness(False, 9, 900, ()))
    near.inbox.append(lambda: near.core.readiness(False, 1, 100, ()))

    server.wait(timedelta(minutes=3))

    assert far.told == []
    assert [kind for kind, _ in near.told] == ["elected"]


def _place(name: str, unready: int = 0, *, reserve: int = 0, is_leader: bool = False) -> ParticipantView:
    participant = Participant(name, "h", 1)
    member = MemberNode(participant, 1, Rank(unready=unready, reserve=reserve, id=name))
    return ParticipantView(participant, 0, is_leader, name, 1, member)


@pytest.mark.parametrize(
    ("queue", "following"),
    [
        ([], None),
        ([_place("l", is_leader=True)], None),
        ([_place("l", is_leader=True), _place("b"), _place("a")], "b"),
        ([_place("b", 1), _place("a")], "b"),
        ([_place("b", 2), _place("c"), _place("a")], "a"),
        ([_place("b", 2), _place("a", 2)], "b"),
        ([_place("a", reserve=1), _place("b")], "b"),
        ([_place("a", reserve=1), _place("b", 2)], "a"),
        ([_place("b", 2), _place("a", reserve=1)], "a"),
        ([_place("a", reserve=1), _place("b", reserve=1)], "a"),
        ([replace(_place("stranger"), member=None), _place("a")], "stranger"),
    ],
)
def test_next_in_line_is_the_first_unless_it_yields_to_a_better_one(
    queue: list[ParticipantView], following: str | None
) -> None:
    found = next_in_line(queue)

    assert (None if found is None else found.participant.id) == following


def test_a_participant_whose_bar_is_gone_counts_again_among_those_that_can_lead() -> None:
    server = Server()
    leader = server.member("leader")
    leader.post(m.AddAsked())
    server.settle()
    barred = server.member("c", requeue_backoff_max=timedelta(seconds=1))
    barred.publish_readiness(True)
    barred.post(m.AddAsked())
    server.settle()
    barred.core._member.note_lock(m.LatchVetoed("its schema is newer"))
    barred.post(m.AbdicationAsked("as after a veto"))
    server.wait(timedelta(seconds=5))

    member = barred.member()
    assert member is not None
    assert member.queues


@pytest.mark.parametrize("verdict", [Verdict(True, None, degraded=True), Verdict(False, None)])  # type: ignore[arg-type]
def test_a_verdict_that_is_none_in_part_means_no(verdict: Verdict) -> None:
    assert not checked(lambda: verdict).ready


def test_a_verdict_that_cannot_even_be_shown_means_no() -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise ValueError("no words")

    assert not checked(Unspeakable).ready  # type: ignore[arg-type]
