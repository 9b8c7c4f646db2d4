"""Replies that get lost, at each request of a life: no more than a retry, one leader, no orphan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from leader import read_leader
from leader.protocol.paths import ElectionPaths
from leader.testing.proxy import FaultProxy, Op, Request, Trap
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.integration.curator.latch_crew import LONG, Crew
from tests.integration.curator.office_crew import Offices, Official
from tests.integration.curator.overlaps import Overlaps

Eventually = Callable[..., None]


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[FaultProxy]:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as made:
        yield made


@pytest.fixture
def offices(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Offices]:
    with Offices(zookeeper.hosts, zk_root) as made:
        yield made


@pytest.fixture
def crew(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Crew]:
    with Crew(zookeeper.hosts, f"{zk_root}/latch") as made:
        yield made


@dataclass(frozen=True)
class Step:
    """One request of the protocol, as the proxy recognises it."""

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
WHILE_TAKING_OFFICE = [
    Step("card", CREATES, ("/members/",)),
    Step("join", CREATES, ("-latch-",)),
    Step("look: children", (Op.GET_CHILDREN, Op.GET_CHILDREN2), ("/leader-lock",)),
    Step("look: own node", (Op.EXISTS,), ("-latch-",)),
    Step("look: control", (Op.GET_DATA,), ("/control",)),
    Step("claim: epoch", (Op.GET_DATA,), ("/epoch",)),
    Step("claim: transaction", (Op.MULTI,), ("/epoch", "-latch-"), ("/leader\0",)),
    Step("publish", (Op.MULTI,), ("boot_id",)),
    Step("proof", (Op.MULTI,), ("-latch-",), ("boot_id", '"epoch"')),
]
WHILE_LEAVING = [
    Step("farewell", (Op.MULTI, Op.DELETE), ("-latch-",), ("boot_id",)),
]


def _trap(proxy: FaultProxy, step: Step, when: str) -> Trap:
    cut = proxy.cut_before if when == "before" else proxy.cut_after
    return cut(when=step.matches)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", WHILE_TAKING_OFFICE, ids=str)
def test_a_connection_cut_at_a_step_of_taking_office_costs_no_more_than_a_retry(
    proxy: FaultProxy, offices: Offices, eventually: Eventually, step: Step, when: str
) -> None:
    offices.make_queue()
    session, heir = offices.session(proxy.hosts), offices.official("heir")
    trap = _trap(proxy, step, when)
    cut = offices.official("cut", session)
    with Overlaps(lambda: [one.name for one in offices.leaders()]) as overlaps:
        cut.queue.add_to_leader_lock_queue()
        eventually(lambda: trap.sprung, what=f"the connection is cut {when} {step}")
        eventually(lambda: cut.leads, what="it leads all the same")
        heir.queue.add_to_leader_lock_queue()
        eventually(lambda: offices.ids() == ["cut", "heir"], what="one node for each")

        cut.queue.close(LONG)
        eventually(lambda: heir.leads and heir.words == ["elected"])
        eventually(lambda: offices.ids() == ["heir"])

    _judge(offices, overlaps, cut, heir)


@pytest.mark.parametrize("how", ["close", "remove", "abdicate"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", WHILE_LEAVING, ids=str)
def test_a_connection_cut_while_a_leader_leaves_costs_no_more_than_a_retry(
    proxy: FaultProxy, offices: Offices, eventually: Eventually, step: Step, when: str, how: str
) -> None:
    cut, heir = offices.official("cut", offices.session(proxy.hosts)), offices.official("heir")
    cut.queue.add_to_leader_lock_queue()
    eventually(lambda: cut.words == ["elected"])
    heir.queue.add_to_leader_lock_queue()
    eventually(lambda: offices.ids() == ["cut", "heir"])
    with Overlaps(lambda: [one.name for one in offices.leaders()]) as overlaps:
        # A proof that happens to be under way is no farewell.
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
        eventually(lambda: offices.ids() == expected, what="nothing else is left in the queue")

    _judge(offices, overlaps, cut, heir)


_DELETES = Op.DELETE.to_bytes(4) + b"\x00" + b"\xff" * 4
"""Header of a deletion inside a transaction: what it is, not done yet, no error yet."""


def _deletes(request: Request) -> bool:
    """Whether it is a deletion, or a transaction with one."""
    return request.op == Op.DELETE or _DELETES in request.payload


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 16))
def test_a_connection_cut_at_any_request_leaves_one_leader_and_no_orphan(
    proxy: FaultProxy, offices: Offices, eventually: Eventually, nth: int, when: str
) -> None:
    """Whatever the requests are: also those that come to the protocol later."""
    session, heir = offices.session(proxy.hosts), offices.official("heir")
    heir.queue.add_to_leader_lock_queue()
    eventually(lambda: heir.leads)
    trap = (proxy.cut_before if when == "before" else proxy.cut_after)(
        nth=nth, when=lambda request: request.op != Op.PING
    )
    cut = offices.official("cut", session)
    with Overlaps(lambda: [one.name for one in offices.leaders()]) as overlaps:
        cut.queue.add_to_leader_lock_queue()
        eventually(lambda: offices.ids() == ["heir", "cut"] or trap.sprung)
        eventually(lambda: offices.ids() == ["heir", "cut"], what="it queues")
        heir.queue.remove_from_leader_lock_queue()
        eventually(lambda: cut.leads, what="it leads")
        heir.queue.add_to_leader_lock_queue()
        eventually(lambda: offices.ids() == ["cut", "heir"])
        cut.queue.close(LONG)
        eventually(lambda: heir.leads and heir.words[-1] == "elected")
        eventually(lambda: offices.ids() == ["heir"])

    assert trap.sprung
    _judge(offices, overlaps, cut, heir)


def _judge(offices: Offices, overlaps: Overlaps, *officials: Official) -> None:
    assert overlaps.seen == []
    epochs = [epoch for one in officials for epoch in one.epochs]
    assert len(epochs) == len(set(epochs)), "no epoch is given twice"
    for one in officials:
        assert one.epochs == sorted(one.epochs)
        assert one.words == [("elected", "revoked")[number % 2] for number in range(len(one.words))]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_latch_whose_connection_is_cut_at_any_request_leads_and_leaves_no_orphan(
    proxy: FaultProxy, crew: Crew, eventually: Eventually, nth: int, when: str
) -> None:
    if nth % 2:
        crew.make_queue()
    session = crew.session(proxy.hosts)
    trap = (proxy.cut_before if when == "before" else proxy.cut_after)(
        nth=nth, when=lambda request: request.op != Op.PING
    )
    member = crew.started("a", session)

    eventually(lambda: member.leads or trap.sprung)
    eventually(lambda: member.leads and len(crew.nodes()) == 1)
    member.latch.close(timeout=LONG)

    eventually(lambda: crew.nodes() == [])
    assert trap.sprung or nth > 5
    words = member.words
    assert words == [("is", "not")[number % 2] for number in range(len(words))]


def test_an_orphan_of_a_lost_reply_is_removed_though_its_owner_closes_first(
    proxy: FaultProxy, crew: Crew, eventually: Eventually
) -> None:
    """CURATOR-45: it would become the oldest, and nobody could lead."""
    crew.make_queue()
    session = crew.session(proxy.hosts)
    trap = proxy.cut_after(when=lambda request: request.mentions("-latch-"))
    member = crew.started("a", session)
    assert trap.wait(LONG)
    assert len(crew.nodes()) == 1
    member.latch.close(timeout=LONG)

    eventually(lambda: crew.nodes() == [])
    other = crew.started("b")
    eventually(lambda: other.leads)


def test_a_leader_node_that_its_owner_left_behind_is_not_taken_from_its_successor(
    offices: Offices, zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    """Who was deposed, and only then leaves, must not delete what the next leader has published."""
    first, second = offices.queued(eventually, "a", "b")
    paths = ElectionPaths(zk_root)
    operator = KazooClient(hosts=zookeeper.hosts)
    operator.start(timeout=20)
    try:
        with suppress(NoNodeError):
            operator.delete(paths.latch(offices.nodes()[0]))
        eventually(lambda: second.words == ["elected"] and offices.ids() == ["b", "a"])
        eventually(lambda: (info := read_leader(offices.witness, zk_root)) and info.participant.id == "b")
        before = operator.get(paths.leader)[1]

        first.queue.close(LONG)

        stat = operator.exists(paths.leader)
        assert stat is not None
        assert stat.czxid == before.czxid, "it was deleted, and had to be corrected"
    finally:
        operator.stop()
        operator.close()
