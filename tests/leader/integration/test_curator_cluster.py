"""Curator's tests with a cluster, at an ensemble of three servers. Docstrings name the cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from leader.zookeeper.session import ZooKeeperSession
from tests.conftest import LongLived
from tests.leader.chaos.election.wires import PeerWires
from tests.leader.integration.curator.latches import LONG, Latches
from tests.leader.integration.curator.overlaps import Overlaps
from tests.leader.integration.curator.participants import Participants
from tests.leader.zookeeper_ensemble import Ensemble, EnsembleServer
from tests.thorough import thorough

SESSION = timedelta(seconds=1.5)
TICK = timedelta(milliseconds=500)
Eventually = Callable[..., None]

pytestmark = pytest.mark.timeout(180)


class Cluster(Ensemble):
    """Three servers. Each can be killed, or cut off from the others, but not from its clients."""

    def __init__(self, wires: PeerWires, **options: object) -> None:
        super().__init__(**options, tick=TICK, route=wires.route)  # type: ignore[arg-type]
        self.wires = wires

    def kill_one(self, server: EnsembleServer) -> None:
        self.wires.refuse(server.number)
        server.kill()

    def start_all(self) -> None:
        self.wires.heal()
        self.start()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, long_lived: LongLived) -> Iterator[Cluster]:
    wires = PeerWires()
    made = Cluster(wires, folder=tmp_path_factory.mktemp("ensemble"))
    made.start()
    long_lived.processes.extend(made.servers)
    yield made
    made.stop()
    wires.close()


@pytest.fixture
def ensemble(servers: Cluster, eventually: Eventually) -> Cluster:
    """An ensemble whose servers all run."""
    servers.start_all()
    eventually(lambda: sorted(server.mode for server in servers.servers) == ["follower"] * 2 + ["leader"])
    return servers


def _server_of(session: ZooKeeperSession, ensemble: Ensemble) -> EnsembleServer:
    """The server that the session is connected to."""
    sock = session.client._connection._socket
    port = sock.getpeername()[1]
    return next(server for server in ensemble.servers if server.port == port)


def test_a_leader_whose_server_is_cut_off_from_the_ensemble_is_deposed_before_the_next_leads(
    ensemble: Cluster, zk_root: str, eventually: Eventually
) -> None:
    """TestLeaderLatchIsolatedZookeeper (CURATOR-444): the server still answers reads and pings.

    It does so for six ticks, its syncLimit, which are twice the session timeout.
    """
    lonely = next(server for server in ensemble.servers if server is not ensemble.leader)
    hosts = ",".join(server.hosts for server in ensemble.servers if server is not lonely)
    with (
        Participants(hosts, zk_root, SESSION) as participants,
        Latches(hosts, f"{zk_root}/latch", SESSION) as latches,
    ):
        cut, heir = (
            participants.candidate("cut", participants.session(lonely.hosts)),
            participants.candidate("heir"),
        )
        first, second = latches.latch("cut", cut.session), latches.latch("heir", heir.session)
        for one, latch in ((cut, first), (heir, second)):
            one.queue.add_to_leader_lock_queue()
            latch.latch.start()
            eventually(lambda: participants.leaders() and latches.leaders())
        with Overlaps(lambda: [one.name for one in participants.leaders()]) as overlaps:
            while not (cut.leads and first.leads):  # a busy machine may depose it
                if heir.leads:
                    heir.queue.abdicate("the other's turn")
                if second.leads:  # checked separately: the two servers may notify the next one first
                    latches.delete(second.latch.own_node)
                eventually(lambda: not heir.leads and not second.leads)
                eventually(lambda: participants.leaders() and latches.leaders())
            eventually(lambda: set(participants.ids()) == {"cut", "heir"} and len(latches.nodes()) == 2)

            with Overlaps(lambda: [member.latch.id for member in latches.leaders()]) as latch_overlaps:
                ensemble.wires.isolate(lonely.number)
                eventually(lambda: heir.leads, what="the heir leads")
                eventually(lambda: latches.leaders() == [second], what="the other latch leads")
                assert not cut.leads
                assert not first.leads
                ensemble.wires.heal()
                eventually(lambda: lonely.mode == "follower", within_s=LONG.total_seconds())

        assert (overlaps.seen, latch_overlaps.seen) == ([], [])
        epochs = cut.epochs + heir.epochs
        assert len(epochs) == len(set(epochs))


def test_a_leader_whose_server_is_killed_moves_with_its_session_and_leads_again_with_the_same_node(
    ensemble: Cluster, zk_root: str, eventually: Eventually
) -> None:
    """TestLeaderSelectorCluster.testRestart"""
    with Participants(ensemble.hosts, zk_root) as participants:
        (one,) = participants.queued(eventually, "a")
        assert participants.ids() == ["a"], "its own node is visible when it leads"
        node, session = participants.nodes(), one.session.session_id

        ensemble.kill_one(_server_of(one.session, ensemble))

        eventually(lambda: one.words == ["elected", "revoked", "elected"])
        assert one.session.session_id == session
        eventually(lambda: participants.nodes() == node)


@thorough
def test_when_the_server_of_the_leader_is_killed_one_of_the_others_leads(
    ensemble: Cluster, zk_root: str, eventually: Eventually
) -> None:
    """TestLeaderLatchCluster.testInCluster"""
    survivor = ensemble.servers[2]
    with Latches(survivor.hosts, f"{zk_root}/latch", SESSION) as latches:
        made = []
        for number, server in enumerate(ensemble.servers):
            made.append(latches.started(f"id{number}", latches.session(server.hosts)))
            eventually(lambda n=number: len(latches.nodes()) == n + 1)
        eventually(lambda: latches.leaders() == [made[0]])

        with Overlaps(lambda: [str(member.latch.id) for member in latches.leaders()]) as overlaps:
            ensemble.kill_one(ensemble.servers[0])
            eventually(lambda: made[0].words == ["is", "not"])
            eventually(lambda: latches.leaders() == [made[1]], what="the next leads")

        assert overlaps.seen == []
        ensemble.start_all()
        eventually(lambda: len(latches.nodes()) == 3, what="the first queues again")
        assert latches.leaders() == [made[1]]


@thorough
def test_a_leader_without_any_server_does_not_lead_and_leads_again_when_they_are_back(
    ensemble: Cluster, zk_root: str, eventually: Eventually
) -> None:
    """TestLeaderSelectorCluster.testLostRestart"""
    with Participants(ensemble.hosts, zk_root) as participants:
        first, second = participants.queued(eventually, "a", "b")

        ensemble.kill()
        eventually(lambda: first.words == ["elected", "revoked"])
        assert participants.leaders() == []
        first.queue.add_to_leader_lock_queue()
        ensemble.start()

        eventually(lambda: len(participants.leaders()) == 1, what="one leads again")
        eventually(lambda: len(participants.ids()) == 2)
        epochs = first.epochs + second.epochs
        assert len(epochs) == len(set(epochs))
