"""Connections that break right after a create: TestLeaderSelectorEdges. Docstrings name the cases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from leader.clock import boottime
from leader.core.latch import model as m
from leader.core.latch.steps import LatchSteps, PlainClaimant
from leader.core.lease import SessionLiveness
from leader.protocol.requests import Create, Delete, Exists, GetChildren, Stat
from leader.zookeeper.session import ZooKeeperSession
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy, Op, Request
from tests.leader.integration.curator.hand_driven import HandDriven
from tests.leader.integration.curator.latches import LONG, Latches
from tests.leader.integration.curator.participants import Participants

SHORT = timedelta(seconds=1.5)
Eventually = Callable[..., None]


def _of_a_latch(request: Request) -> bool:
    return request.mentions("-latch-")


def _makes_a_latch(request: Request) -> bool:
    return request.op in (Op.CREATE, Op.CREATE2) and _of_a_latch(request)


def test_a_latch_cut_off_just_when_its_node_was_made_never_leads_and_leaves_none_and_a_new_one_works(
    zookeeper: ZooKeeperServer, zk_root: str, proxy: FaultProxy, eventually: Eventually
) -> None:
    """flappingTest"""
    with Latches(zookeeper.hosts, f"{zk_root}/latch", SHORT) as latches:
        latches.make_queue()
        trap = proxy.cut_after(when=_makes_a_latch)
        flapping = latches.started("flapping", latches.session(proxy.hosts))
        assert trap.wait(LONG)
        assert len(latches.nodes()) == 1, "the node was made"
        proxy.refuse()  # it cannot reconnect until its session is over
        eventually(lambda: latches.nodes() == [], what="its session has ended, and its node with it")
        flapping.latch.close(timeout=timedelta(milliseconds=100))
        assert flapping.words == []

        proxy.heal()
        fresh = latches.started("fresh")
        eventually(lambda: fresh.leads)
        assert latches.nodes() == [fresh.latch.own_node]


def test_a_participant_cut_off_just_when_its_node_was_made_returns_with_one_node_and_a_new_session(
    zookeeper: ZooKeeperServer, zk_root: str, proxy: FaultProxy, eventually: Eventually
) -> None:
    """flappingTest, for the lock queue, which reconnects by itself"""
    with Participants(zookeeper.hosts, zk_root, SHORT) as participants:
        participants.make_queue()
        one = participants.candidate("a", participants.session(proxy.hosts))
        old = one.session.session_id
        trap = proxy.cut_after(when=_makes_a_latch)
        one.queue.add_to_leader_lock_queue()
        assert trap.wait(LONG)
        proxy.refuse()
        orphan = participants.nodes()
        assert len(orphan) == 1, "the node was made"
        eventually(lambda: participants.nodes() == [], what="its session has ended, and its node with it")
        assert one.told == []

        proxy.heal()

        eventually(lambda: one.words == ["elected"])
        assert one.session.session_id != old
        assert len(participants.nodes()) == 1
        assert participants.nodes() != orphan


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_latch_that_closes_after_its_create_was_interrupted_leaves_no_node(
    proxy: FaultProxy, latches: Latches, eventually: Eventually, cuts: int
) -> None:
    """createProtectedNodeInBackgroundTest, createProtectedNodeInBackgroundTestNoRetry"""
    latches.make_queue()
    traps = [proxy.cut_after(nth=nth, when=_of_a_latch) for nth in range(1, cuts + 1)]
    member = latches.started("a", latches.session(proxy.hosts))
    assert traps[0].wait(LONG)

    member.latch.close(timeout=LONG)

    assert latches.nodes() == []


@pytest.fixture
def latch(latches: Latches) -> HandDriven:
    return HandDriven(latches.session(), latches.path, "a")


def test_a_node_whose_reply_was_lost_is_found_and_not_made_twice(latches: Latches, latch: HandDriven) -> None:
    latches.make_queue()
    latch.begin(m.Started())
    latch.until(Create)
    latch.answer_one(lose_reply=True)
    latch.finish()
    orphan = latches.nodes()
    assert len(orphan) == 1
    assert isinstance(latch.core.state, m.Joining)

    latch.expire()

    assert latches.nodes() == orphan
    assert latch.node == orphan[0]
    assert latch.core.state == m.Holding(m.Node(orphan[0], latch.session.session_id or 0))


def test_a_node_that_was_found_and_not_made_is_no_proof_of_now(latches: Latches, latch: HandDriven) -> None:
    """The lock counts only from proofs that were submitted later."""
    latches.make_queue()
    latch.begin(m.Started())
    latch.until(Create)
    latch.answer_one(lose_reply=True)
    latch.finish()
    before = boottime()

    latch.expire()

    assert latch.holds
    age = latch.lease.proof_age()
    assert age is not None
    assert age <= boottime() - before


def test_a_node_of_an_older_session_is_not_adopted_but_deleted(latches: Latches, latch: HandDriven) -> None:
    """CURATOR-498, CURATOR-696, kazoo's K3"""
    latch.do(m.Started())
    old, old_session = latch.node, latch.session.session_id
    newer = latches.session()
    _exchange(latch, newer)

    latch.do(m.LinkUp(newer.session_id or 0))

    assert newer.session_id != old_session
    assert latches.nodes() == [latch.node] != [old]
    assert latch.holds
    assert latch.words == ["is", "not", "is"]


def _exchange(latch: HandDriven, session: ZooKeeperSession) -> None:
    """For example a client that is started again while its old session is live."""
    latch.session = session
    for part in (latch.core, latch.core._steps, latch._executor):
        part._session = session
    latch.lease._liveness = session.liveness


def test_withdrawing_leaves_nothing_even_of_a_node_it_never_heard_of(
    latches: Latches, latch: HandDriven
) -> None:
    latches.make_queue()
    latch.begin(m.Started())
    latch.until(Create)
    latch.answer_one(lose_reply=True)
    latch.finish()
    assert len(latches.nodes()) == 1

    latch.do(m.LatchCloseAsked())

    assert latches.nodes() == []
    assert latch.core.ended


def test_a_deletion_whose_reply_was_lost_is_repeated_until_it_is_confirmed(
    latches: Latches, latch: HandDriven
) -> None:
    """CURATOR-678"""
    latch.do(m.Started())
    latch.begin(m.LatchCloseAsked())
    for _ in range(3):
        latch.until(Delete)
        latch.answer_one(lose_reply=True)
        latch.finish()
        assert not latch.core.ended
        latch.core.due_at = None
        latch.begin(m.TimerDue())
    latch.finish()

    assert latch.core.ended
    assert latches.nodes() == []


class _Session:
    """A session that is always connected."""

    def __init__(self) -> None:
        self.liveness = SessionLiveness()
        self.liveness.attached(7, timedelta(0), timedelta(seconds=10))

    def reconnect(self) -> None: ...


@pytest.mark.parametrize("sequence", ["0000000003", "2147483647", "-2147483645"])
def test_an_orphan_is_found_whatever_number_it_was_given(sequence: str) -> None:
    """kazoo's K9: after 2^31 nodes under one parent, the numbers are negative."""
    steps = LatchSteps(_Session(), "/q", b"a", PlainClaimant("/q"))
    first = steps.join()
    asked = next(first)
    assert isinstance(asked, Create)
    first.close()  # its reply is lost
    orphan = f"{asked.path.rpartition('/')[2]}{sequence}"

    again = steps.join()

    assert next(again) == GetChildren("/q")
    assert again.send([orphan, "_c_another-latch-0000000001"]) == Exists(f"/q/{orphan}")
    with pytest.raises(StopIteration) as joined:
        again.send(Stat(0, owner=7))
    assert joined.value.value == m.Joined(m.Node(orphan, 7), made=False)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_lock_queue_recovers_from_four_cuts_in_a_row(
    proxy: FaultProxy, participants: Participants, eventually: Eventually, when: str
) -> None:
    participants.make_queue()
    cut = proxy.cut_before if when == "before" else proxy.cut_after
    traps = [cut(nth=nth, when=_of_a_latch) for nth in range(1, 5)]
    one = participants.candidate("a", participants.session(proxy.hosts))

    one.queue.add_to_leader_lock_queue()

    eventually(lambda: all(trap.sprung for trap in traps))
    eventually(lambda: one.leads)
    assert len(participants.nodes()) == 1
