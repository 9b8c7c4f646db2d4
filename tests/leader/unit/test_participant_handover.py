"""A planned hand-over between two cores: the actions of each, and later ones."""

from __future__ import annotations

from leader import Verdict
from leader.core.participant import model as m
from leader.protocol import requests as rq
from tests.leader.unit.participant_stage import PATHS, Member, S, Server


def _pair(server: Server) -> tuple[Member, Member]:
    """One leads and knows the next in the queue; the other waits."""
    one, two = server.member("one"), server.member("two")
    one.post(m.AddAsked())
    server.settle()
    two.post(m.AddAsked())
    server.wait(2 * S)
    return one, two


def test_who_has_handed_over_takes_its_member_node_away_and_ends() -> None:
    server = Server()
    one, two = _pair(server)

    one.post(m.CloseAsked())
    server.settle()

    assert two.told == [("elected", 2)]
    assert one.member() is None
    assert one.core.ended


def test_who_has_nobody_to_hand_over_to_takes_its_member_node_away_at_once() -> None:
    server = Server()
    _, two = _pair(server)

    two.post(m.CloseAsked())
    server.settle()

    assert two.member() is None
    assert two.core.ended


def test_guard_is_asked_once_for_a_term_with_the_lock_held_and_the_epoch_raised() -> None:
    server = Server()
    one, two = _pair(server)
    two.answer_at_once = None

    one.post(m.CloseAsked())
    server.settle()

    assert isinstance(two.core.state, m.Guarding)
    assert len(two.asked) == 1
    two.asked[0](Verdict(True))
    server.settle()
    assert two.told == [("elected", 2)]


def test_electable_is_told_without_a_word_to_zookeeper_and_the_others_learn_of_it_a_moment_later() -> None:
    server = Server()
    one, two = _pair(server)
    two.answer_at_once = None
    one.post(m.CloseAsked())
    server.settle()
    asked: list[rq.Request] = []
    two.before = asked.append

    two.asked[0](Verdict(True))
    while two.work():
        pass

    assert two.told == [("elected", 2)]
    assert asked == []
    server.settle()
    assert server.zookeeper.tree.get(PATHS.leader) is not None
    member = two.member()
    assert member is not None
    assert member.leads
