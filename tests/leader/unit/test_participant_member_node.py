"""A participant's member node, over a ZooKeeper in memory: corrected, whatever other clients do to it."""

from __future__ import annotations

from datetime import timedelta

from leader.core.latch import model as latch_m
from leader.core.participant import model as m
from leader.protocol import requests as rq
from leader.protocol.participant import decode_member
from tests.leader.unit.participant_stage import PATHS, S, Server


def test_a_member_node_that_somebody_deleted_is_soon_there_again() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()

    server.delete(PATHS.member("one"))
    server.wait(4 * S)

    member = one.member()
    assert member is not None
    assert member.leads


def test_a_member_node_that_somebody_wrote_over_is_soon_as_it_was() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()
    before = one.member()

    server.zookeeper.write(rq.SetData(PATHS.member("one"), b"scribble"))
    server.wait(4 * S)

    assert one.member() == before
    assert one.told == [("elected", 1)]


def test_an_earlier_start_of_the_same_participant_is_waited_for_no_longer_than_it_lives() -> None:
    server = Server()
    first = server.member("one")
    first.post(m.AddAsked())
    server.settle()
    first.die()
    again = server.member("one", boot_id="another", requeue_backoff_min=timedelta(seconds=25))
    again.post(m.AddAsked())

    server.wait(2 * S)  # the session's end, the next look at the member node, and some proofs

    assert [kind for kind, _ in again.told] == ["elected"]


def test_a_member_node_that_cannot_be_written_for_a_reason_nobody_foresaw_is_written_later() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()

    def no_more_threads(request: rq.Request) -> None:
        if getattr(request, "path", "") == PATHS.member("one"):
            raise RuntimeError("can't start new thread")

    one.before = no_more_threads
    one.inbox.append(lambda: one.core.readiness(False, 3, 0, ("three files",)))
    server.wait(S / 2)
    assert one.told == [("elected", 1)]
    one.before = lambda _request: None
    server.wait(S / 2)

    node = server.zookeeper.tree.get(PATHS.member("one"))
    assert node is not None
    assert decode_member(node.data, "").rank.missing == 3


def test_a_member_node_that_another_has_made_meanwhile_is_not_written_over() -> None:
    server = Server()
    one = server.member("one")
    one.post(m.AddAsked())
    server.settle()
    server.delete(PATHS.member("one"))
    twin = server.member("one", boot_id="twin")
    twin.post(m.AddAsked())
    server.settle()

    one.inbox.append(lambda: one.core.readiness(True, 0, 0, ()))
    server.settle()

    node = server.zookeeper.tree.get(PATHS.member("one"))
    assert node is not None
    assert node.owner == decode_member(node.data, "").session_id


def test_without_a_connection_a_participant_outside_the_queue_has_a_timer_again_and_again() -> None:
    """Its driver starts an ended kazoo thread again when the timer runs out."""
    server = Server()
    one = server.member("one")
    server.settle()
    one.liveness.broke(lost=False)
    one.inbox.append(lambda: one.core.link(latch_m.LinkDown()))

    for _ in range(3):
        server.settle()
        due_at = one.core.due_at
        assert due_at is not None
        assert server.now < due_at <= server.now + 3 * S
        server.now = due_at


def test_a_participant_that_never_had_a_connection_has_a_timer() -> None:
    assert Server().member("one").core.due_at is not None


def test_readiness_that_changes_often_does_not_put_off_the_timer() -> None:
    server = Server()
    one = server.member("one")
    server.settle()
    one.liveness.broke(lost=True)
    one.inbox.append(lambda: one.core.link(latch_m.SessionGone()))
    server.settle()
    due_at = one.core.due_at

    server.now += S / 8
    one.publish_readiness(False)
    server.settle()

    assert due_at is not None
    assert one.core.due_at == due_at
