"""Our latch and Curator's own in one queue: the names, the order and the data of the nodes are the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from leader.protocol.paths import ElectionPaths
from leader.zookeeper.operations import read_latches
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.conftest import LongLived
from tests.leader.integration.curator.jvm_gateway import CuratorClient, CuratorLatch, JvmGateway
from tests.leader.integration.curator.latches import PATIENT, Latches, Member, end_session
from tests.leader.integration.curator.participants import Participants
from tests.thorough import thorough

Eventually = Callable[..., None]
Curator = Callable[[str, str], CuratorLatch]


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory, long_lived: LongLived) -> Iterator[JvmGateway]:
    gateway = JvmGateway(tmp_path_factory.mktemp("curator"))
    gateway.start()
    long_lived.processes.append(gateway)
    yield gateway
    gateway.stop()


@pytest.fixture
def curator(jvm: JvmGateway, zookeeper: ZooKeeperServer) -> Iterator[Curator]:
    """Makes a started latch of Curator from a path and an id, with its own session."""
    made: list[CuratorLatch] = []

    def make(path: str, participant_id: str) -> CuratorLatch:
        made.append(CuratorLatch(CuratorClient(jvm.jvm, zookeeper.hosts, PATIENT), path, participant_id))
        made[-1].start()
        return made[-1]

    yield make
    for latch in made:
        latch.client.close()


def _ids(latches: Latches) -> list[tuple[str, bool]]:
    return [(view.participant.id, view.is_leader) for view in read_latches(latches.shared, latches.path)]


def test_each_sees_the_participants_of_both_in_the_same_order_with_the_same_leader(
    latches: Latches, curator: Curator, eventually: Eventually
) -> None:
    ours = latches.started("ours-1")
    eventually(lambda: len(latches.nodes()) == 1)
    theirs = curator(latches.path, "theirs-2")
    eventually(lambda: len(latches.nodes()) == 2)
    latches.started("ours-3 ÄÖ/%s")
    eventually(lambda: len(latches.nodes()) == 3)
    last = curator(latches.path, "")
    eventually(lambda: len(latches.nodes()) == 4)
    eventually(lambda: ours.leads)

    expected = [("ours-1", True), ("theirs-2", False), ("ours-3 ÄÖ/%s", False), ("", False)]
    assert _ids(latches) == expected
    assert theirs.participants == expected
    assert last.participants == expected
    assert theirs.leader == "ours-1"
    leader = ours.latch.get_leader()
    assert leader is not None
    assert leader.participant.id == "ours-1"
    assert latches.nodes()[1] == theirs.node
    assert [theirs.leads, last.leads] == [False, False]


def test_leadership_passes_between_ours_and_curators_and_only_one_leads(
    latches: Latches, curator: Curator, eventually: Eventually
) -> None:
    rounds = 3
    ours = latches.started("ours-0")
    eventually(lambda: ours.leads)
    theirs = curator(latches.path, "theirs-0")
    eventually(lambda: len(latches.nodes()) == 2)
    both: list[str] = []
    done = threading.Event()
    live: dict[str, Member | CuratorLatch] = {"ours": ours, "theirs": theirs}

    def watch() -> None:
        while not done.wait(0.003):
            one, other = live["ours"], live["theirs"]
            if one.leads and other.leads and one.leads:  # it led during the whole question to the other one
                both.append("both lead")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for number in range(1, rounds + 1):
            ours.latch.close()
            eventually(lambda: live["theirs"].leads, what="Curator's latch follows ours")
            assert not ours.leads
            ours = latches.started(f"ours-{number}")
            live["ours"] = ours
            eventually(lambda: len(latches.nodes()) == 2)
            assert not ours.leads

            theirs.close()
            eventually(lambda: live["ours"].leads, what="ours follows Curator's")
            assert not theirs.leads
            theirs = curator(latches.path, f"theirs-{number}")
            live["theirs"] = theirs
            eventually(lambda: len(latches.nodes()) == 2)
            assert not theirs.leads
    finally:
        done.set()
        watcher.join()

    assert both == []
    assert _ids(latches) == theirs.participants == [(f"ours-{rounds}", True), (f"theirs-{rounds}", False)]


@thorough
def test_when_the_session_of_either_ends_the_other_leads(
    latches: Latches, curator: Curator, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    ours = latches.started("ours", latches.session())
    eventually(lambda: ours.leads)
    theirs = curator(latches.path, "theirs")
    eventually(lambda: len(latches.nodes()) == 2)

    end_session(zookeeper.hosts, ours.session)
    eventually(lambda: theirs.leads, what="Curator's leads when our session has ended")
    eventually(lambda: _ids(latches) == [("theirs", True), ("ours", False)], what="ours queues again")

    theirs.client.close()
    eventually(lambda: ours.leads, what="ours leads when Curator's session has ended")


@thorough
def test_curators_latch_whose_node_before_it_is_reset_by_ours_keeps_its_place(
    latches: Latches, curator: Curator, eventually: Eventually
) -> None:
    first, second = latches.started("first"), latches.latch("second")
    eventually(lambda: first.leads)
    second.latch.start()
    eventually(lambda: len(latches.nodes()) == 2)
    theirs = curator(latches.path, "theirs")
    eventually(lambda: len(latches.nodes()) == 3)

    second.latch.close()
    eventually(lambda: len(latches.nodes()) == 2)
    assert not theirs.leads
    latches.delete(first.latch.own_node)

    eventually(lambda: theirs.leads)
    eventually(lambda: theirs.participants == [("theirs", True), ("first", False)])
    assert not first.leads


def test_the_lock_queue_stands_in_one_queue_with_curators_latch_and_gets_its_epoch_when_it_leads(
    participants: Participants, curator: Curator, zk_root: str, eventually: Eventually
) -> None:
    (ours,) = participants.queued(eventually, "ours")
    queue = ElectionPaths(zk_root).queue
    theirs = curator(queue, "theirs")
    eventually(lambda: participants.ids() == ["ours", "theirs"])
    assert theirs.participants == [("ours", True), ("theirs", False)]
    views = ours.queue.get_all_participants()
    assert [(view.participant.id, view.is_leader, view.member is None) for view in views] == [
        ("ours", True, False),
        ("theirs", False, True),
    ]

    ours.queue.abdicate("let Curator have it")
    eventually(lambda: theirs.leads, what="Curator's leads")
    eventually(lambda: participants.ids() == ["theirs", "ours"])
    eventually(lambda: ours.words == ["elected", "revoked"])
    assert ours.queue.get_leader() is None, "Curator's latch publishes nothing"
    assert theirs.participants == [("theirs", True), ("ours", False)]

    theirs.close()
    eventually(lambda: ours.leads and len(ours.epochs) == 2)
    assert ours.epochs[1] > ours.epochs[0]
    eventually(lambda: ours.queue.get_leader() is not None, what="it is published")
    info = ours.queue.get_leader()
    assert info is not None
    assert (info.participant.id, info.epoch) == ("ours", ours.epochs[1])


@thorough
def test_an_unready_head_of_the_queue_yields_to_nobody_who_has_no_member_node(
    participants: Participants, curator: Curator, zk_root: str, eventually: Eventually
) -> None:
    """The readiness of a foreign client is not known, so it is not preferred; the guard decides."""
    ours = participants.candidate("ours")
    ours.queue.publish_readiness(False, reasons=("not synced",))
    ours.queue.add_to_leader_lock_queue()
    eventually(lambda: ours.leads)
    theirs = curator(ElectionPaths(zk_root).queue, "theirs")
    eventually(lambda: participants.ids() == ["ours", "theirs"])

    ours.session.reconnect()

    eventually(lambda: ours.words == ["elected", "revoked", "elected"])
    assert not theirs.leads
