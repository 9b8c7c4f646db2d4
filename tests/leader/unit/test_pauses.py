"""Operators' pauses: who may lead during one, and who shows it."""

from __future__ import annotations

from datetime import timedelta

from leader.core.participant import model as m
from leader.protocol import requests as rq
from leader.protocol.control import Control, Pause, Switchover
from tests.leader.unit.participant_stage import PATHS, Member, S, Server

PAUSED = Control(Pause("a", "migration"))


def _queue(server: Server, *names: str) -> list[Member]:
    """Members that have joined in this order; the first one leads."""
    members = [server.member(name) for name in names]
    for member in members:
        member.post(m.AddAsked())
        server.settle()
    return members


def test_the_leader_of_a_pause_leads_again_when_it_returns_at_the_end_of_the_queue() -> None:
    server = Server()
    a, b, c = _queue(server, "a", "b", "c")
    server.wish(PAUSED)

    a.lose_session()
    server.wait(S)

    assert [kind for kind, _ in a.told] == ["elected", "revoked", "elected"]
    assert b.told == c.told == []


def test_another_process_with_the_id_of_the_leader_of_a_pause_leads() -> None:
    server = Server()
    a, b = _queue(server, "a", "b")
    server.wish(PAUSED)
    a.die()
    server.wait(2 * S)
    assert b.told == []

    again = server.member("a", boot_id="second")
    again.post(m.AddAsked())
    server.wait(S)

    assert [kind for kind, _ in again.told] == ["elected"]
    assert b.told == []


def test_the_leader_of_a_pause_leads_again_after_it_stepped_down_though_a_better_one_is_queued() -> None:
    server = Server()
    a, b = _queue(server, "a", "b")
    b.publish_readiness(True)
    a.publish_readiness(False)
    server.wish(PAUSED)

    a.post(m.AbdicationAsked("enough"))
    server.wait(S)

    assert [kind for kind, _ in a.told] == ["elected", "revoked", "elected"]
    assert b.told == []


def test_a_switchover_to_a_named_participant_during_a_pause_is_removed_and_the_leader_leads_on() -> None:
    server = Server()
    a, b = _queue(server, "a", "b")
    leadership = a.core.term.leadership()
    assert leadership is not None

    server.wish(Control(PAUSED.pause, Switchover("b", leadership.epoch, "upgrade")))
    server.wait(S)

    assert [kind for kind, _ in a.told] == ["elected"]
    assert b.told == []
    node = server.zookeeper.tree.get(PATHS.control)
    assert node is not None
    assert b"upgrade" not in node.data


def test_leader_and_next_in_line_show_a_pause_and_nobody_shows_it_longer_than_it_lasts() -> None:
    server = Server()
    members = _queue(server, "a", "b", "c", "d")

    server.wish(PAUSED)
    server.settle()
    assert [member.core.status().paused for member in members[:2]] == ["migration"] * 2

    members[1].post(m.RemoveAsked())
    members[2].post(m.AbdicationAsked("to the end of the queue"))
    server.wait(timedelta(seconds=2))
    server.wish(Control())
    server.settle()
    assert [member.core.status().paused for member in members] == [None] * 4


def test_a_control_node_that_may_not_be_read_costs_no_leader() -> None:
    server = Server()
    a, b = (server.member(name) for name in ("a", "b"))

    def forbidden(request: rq.Request) -> None:
        if request == rq.Get(PATHS.control, watch=True):
            raise rq.NotPermittedError(PATHS.control)

    a.before = b.before = forbidden
    for member in (a, b):
        member.post(m.AddAsked())
        server.settle()
    server.wait(S)
    assert [kind for kind, _ in a.told] == ["elected"]

    a.post(m.RemoveAsked())
    server.wait(S)
    assert [kind for kind, _ in b.told] == ["elected"]


def test_a_latch_that_may_not_be_read_does_not_disturb_the_participant_behind_it() -> None:
    server = Server()
    a, b = (server.member(name) for name in ("a", "b"))
    a.post(m.AddAsked())
    server.settle()

    def forbidden(request: rq.Request) -> None:
        if isinstance(request, rq.Get) and request.path.startswith(PATHS.queue):
            raise rq.NotPermittedError(request.path)

    b.before = forbidden
    b.post(m.AddAsked())
    server.settle()

    status = b.core.status()
    assert status.position == 1
    assert status.trouble is None
