"""Lost replies, at each request of a participant: at most a retry, one leader, no orphan."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from leader import read_leader
from leader.protocol.paths import ElectionPaths
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy, Op, Request, Trap
from tests.leader.integration.curator.latches import LONG, Latches
from tests.leader.integration.curator.overlaps import Overlaps
from tests.leader.integration.curator.participants import Candidate, Participants
from tests.thorough import thorough

Eventually = Callable[..., None]


@dataclass(frozen=True)
class Step:
    """One request of the protocol, in the form that the proxy recognises."""

    name: str
    ops: tuple[Op, ...]
    mentions: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def matches(self, request: Request) -> bool:
        return (
            request.op in self.ops
            and all(request.mentions(word) for word in self.mentions)
            and not any(request.mentions(word) for word in self.lacks)
        )


CREATES = (Op.CREATE, Op.CREATE2)
WHILE_TAKING_THE_LEAD = [
    Step("member node", (Op.MULTI,), ("/members/",)),
    Step("join", CREATES, ("-latch-",)),
    Step("look: children", (Op.GET_CHILDREN, Op.GET_CHILDREN2), ("/leader-lock",)),
    Step("look: own node", (Op.EXISTS,), ("-latch-",)),
    Step("look: control", (Op.GET_DATA,), ("/control",)),
    Step("claim: epoch", (Op.GET_DATA,), ("/epoch",)),
    Step("claim: transaction", (Op.MULTI,), ("/epoch", "-latch-"), ("/leader\0",)),
    Step("publish", (Op.MULTI,), ("boot_id", "/leader\0")),
    Step("proof", (Op.MULTI,), ("-latch-",), ("boot_id", '"epoch"')),
]
WHILE_LEAVING = [
    Step("release", (Op.MULTI, Op.DELETE), ("-latch-",), ("boot_id",)),
]


def _trap(proxy: FaultProxy, step: Step, when: str) -> Trap:
    cut = proxy.cut_before if when == "before" else proxy.cut_after
    return cut(when=step.matches)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", WHILE_TAKING_THE_LEAD, ids=str)
def test_a_connection_cut_at_a_step_of_taking_the_lead_costs_no_more_than_a_retry(
    proxy: FaultProxy, participants: Participants, eventually: Eventually, step: Step, when: str
) -> None:
    participants.make_queue()
    session, heir = participants.session(proxy.hosts), participants.candidate("heir")
    trap = _trap(proxy, step, when)
    cut = participants.candidate("cut", session)
    with Overlaps(lambda: [one.name for one in participants.leaders()]) as overlaps:
        cut.queue.add_to_leader_lock_queue()
        eventually(lambda: trap.sprung, what=f"the connection is cut {when} {step}")
        eventually(lambda: cut.leads, what="it leads all the same")
        heir.queue.add_to_leader_lock_queue()
        eventually(lambda: participants.ids() == ["cut", "heir"], what="one node for each")

        cut.queue.close(LONG)
        eventually(lambda: heir.leads and heir.words == ["elected"])
        eventually(lambda: participants.ids() == ["heir"])

    _judge(participants, overlaps, cut, heir)


@pytest.mark.parametrize("how", ["close", "remove", "abdicate"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", WHILE_LEAVING, ids=str)
def test_a_connection_cut_while_a_leader_leaves_costs_no_more_than_a_retry(
    proxy: FaultProxy, participants: Participants, eventually: Eventually, step: Step, when: str, how: str
) -> None:
    cut, heir = (
        participants.candidate("cut", participants.session(proxy.hosts)),
        participants.candidate("heir"),
    )
    cut.queue.add_to_leader_lock_queue()
    eventually(lambda: cut.words == ["elected"])
    heir.queue.add_to_leader_lock_queue()
    eventually(lambda: participants.ids() == ["cut", "heir"])
    with Overlaps(lambda: [one.name for one in participants.leaders()]) as overlaps:
        # A pending proof is not a release.
        trap = proxy.cut_before if when == "before" else proxy.cut_after
        sprung = trap(when=lambda request: step.matches(request) and _deletes(request))
        if how == "close":
            cut.queue.close(LONG)
        elif how == "remove":
            cut.queue.remove_from_leader_lock_queue()
        else:
            cut.queue.abdicate("test")
        eventually(lambda: sprung.sprung, what=f"the connection is cut {when} {step}")
        eventually(lambda: heir.leads and heir.words == ["elected"])
        expected = ["heir", "cut"] if how == "abdicate" else ["heir"]
        eventually(lambda: participants.ids() == expected, what="nothing else is left in the queue")

    _judge(participants, overlaps, cut, heir)


_DELETES = Op.DELETE.to_bytes(4) + b"\x00" + b"\xff" * 4
"""Header of a deletion inside a transaction: type, not the last one, no error."""


def _deletes(request: Request) -> bool:
    """Whether a request is a deletion, or a transaction with one."""
    return request.op == Op.DELETE or _DELETES in request.payload


@thorough
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 16))
def test_a_connection_cut_at_any_request_leaves_one_leader_and_no_orphan(
    proxy: FaultProxy, participants: Participants, eventually: Eventually, nth: int, when: str
) -> None:
    """The test finds the requests itself, so it includes later additions to the protocol.

    `test_links.py` does the same without an heir, in the normal suite.
    """
    session, heir = participants.session(proxy.hosts), participants.candidate("heir")
    heir.queue.add_to_leader_lock_queue()
    eventually(lambda: heir.leads)
    trap = (proxy.cut_before if when == "before" else proxy.cut_after)(
        nth=nth, when=lambda request: request.op != Op.PING
    )
    cut = participants.candidate("cut", session)
    with Overlaps(lambda: [one.name for one in participants.leaders()]) as overlaps:
        cut.queue.add_to_leader_lock_queue()
        eventually(lambda: participants.ids() == ["heir", "cut"] or trap.sprung)
        eventually(lambda: participants.ids() == ["heir", "cut"], what="it queues")
        heir.queue.remove_from_leader_lock_queue()
        eventually(lambda: cut.leads, what="it leads")
        heir.queue.add_to_leader_lock_queue()
        eventually(lambda: participants.ids() == ["cut", "heir"])
        cut.queue.close(LONG)
        eventually(lambda: heir.leads and heir.words[-1] == "elected")
        eventually(lambda: participants.ids() == ["heir"])

    assert trap.sprung
    _judge(participants, overlaps, cut, heir)


def _judge(participants: Participants, overlaps: Overlaps, *candidates: Candidate) -> None:
    assert overlaps.seen == []
    epochs = [epoch for one in candidates for epoch in one.epochs]
    assert len(epochs) == len(set(epochs)), "no epoch is given twice"
    for one in candidates:
        assert one.epochs == sorted(one.epochs)
        assert one.words == [("elected", "revoked")[number % 2] for number in range(len(one.words))]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_latch_whose_connection_is_cut_at_any_request_leads_and_leaves_no_orphan(
    proxy: FaultProxy, latches: Latches, eventually: Eventually, nth: int, when: str
) -> None:
    if nth % 2:
        latches.make_queue()
    session = latches.session(proxy.hosts)
    trap = (proxy.cut_before if when == "before" else proxy.cut_after)(
        nth=nth, when=lambda request: request.op != Op.PING
    )
    member = latches.started("a", session)

    eventually(lambda: member.leads or trap.sprung)
    eventually(lambda: member.leads and len(latches.nodes()) == 1)
    member.latch.close(timeout=LONG)

    eventually(lambda: latches.nodes() == [])
    assert trap.sprung or nth > 5
    words = member.words
    assert words == [("is", "not")[number % 2] for number in range(len(words))]


def test_an_orphan_of_a_lost_reply_is_removed_though_its_owner_closes_first(
    proxy: FaultProxy, latches: Latches, eventually: Eventually
) -> None:
    """CURATOR-45: the orphan would become the oldest node, and no participant could lead."""
    latches.make_queue()
    session = latches.session(proxy.hosts)
    trap = proxy.cut_after(when=lambda request: request.mentions("-latch-"))
    member = latches.started("a", session)
    assert trap.wait(LONG)
    assert len(latches.nodes()) == 1
    member.latch.close(timeout=LONG)

    eventually(lambda: latches.nodes() == [])
    other = latches.started("b")
    eventually(lambda: other.leads)


def test_a_leader_node_that_its_owner_left_behind_is_not_taken_from_its_successor(
    participants: Participants, zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    """A deposed leader that leaves later must not delete the node of the next leader."""
    first, second = participants.queued(eventually, "a", "b")
    paths = ElectionPaths(zk_root)
    operator = KazooClient(hosts=zookeeper.hosts)
    operator.start(timeout=60)
    try:
        with suppress(NoNodeError):
            operator.delete(paths.latch(participants.nodes()[0]))
        eventually(lambda: second.words == ["elected"] and participants.ids() == ["b", "a"])
        eventually(
            lambda: (info := read_leader(participants.witness, zk_root)) and info.participant.id == "b"
        )
        before = operator.get(paths.leader)[1]

        first.queue.close(LONG)

        stat = operator.exists(paths.leader)
        assert stat is not None
        assert stat.czxid == before.czxid, "it was deleted, and had to be corrected"
    finally:
        operator.stop()
        operator.close()
