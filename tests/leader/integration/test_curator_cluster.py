"""Curator's tests with a cluster, at an ensemble of three servers. Docstrings name the cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from leader.zookeeper.session import ZooKeeperSession
from nimbus.localstack.ensemble import Ensemble, EnsembleServer
from nimbus.localstack.ports import LOOPBACK, free_port
from tests.conftest import LongLived
from tests.fault_proxy.proxy import FaultProxy
from tests.leader.integration.curator.latches import LONG, Latches
from tests.leader.integration.curator.overlaps import Overlaps
from tests.leader.integration.curator.participants import Participants

SESSION = timedelta(seconds=4)
TICK = timedelta(milliseconds=500)
Eventually = Callable[..., None]

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, long_lived: LongLived) -> Iterator[Ensemble]:
    made = Ensemble(tmp_path_factory.mktemp("ensemble"), tick=TICK)
    made.start()
    long_lived.processes.extend(made.servers)
    yield made
    made.stop()


@pytest.fixture
def ensemble(servers: Ensemble, eventually: Eventually) -> Ensemble:
    """An ensemble whose servers all run."""
    servers.start()
    eventually(lambda: servers.leader is not None)
    return servers


def _server_of(session: ZooKeeperSession, ensemble: Ensemble) -> EnsembleServer:
    """The server that the session is connected to."""
    sock = session.client._connection._socket
    port = sock.getpeername()[1]
    return next(server for server in ensemble.servers if server.port == port)


def test_when_the_server_of_the_leader_is_killed_one_of_the_others_leads(
    ensemble: Ensemble, zk_root: str, eventually: Eventually
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
            ensemble.servers[0].kill()
            eventually(lambda: made[0].words == ["is", "not"])
            eventually(lambda: latches.leaders() == [made[1]], what="the next leads")

        assert overlaps.seen == []
        ensemble.servers[0].start()
        eventually(lambda: len(latches.nodes()) == 3, what="the first queues again")
        assert latches.leaders() == [made[1]]


def test_a_leader_whose_server_is_killed_moves_with_its_session_and_leads_again_with_the_same_node(
    ensemble: Ensemble, zk_root: str, eventually: Eventually
) -> None:
    """TestLeaderSelectorCluster.testRestart"""
    with Participants(ensemble.hosts, zk_root) as participants:
        (one,) = participants.queued(eventually, "a")
        assert participants.ids() == ["a"], "its own node is visible when it leads"
        node, session = participants.nodes(), one.session.session_id

        _server_of(one.session, ensemble).kill()

        eventually(lambda: one.words == ["elected", "revoked", "elected"])
        assert one.session.session_id == session
        eventually(lambda: participants.nodes() == node)


def test_a_leader_without_any_server_does_not_lead_and_leads_again_when_they_are_back(
    ensemble: Ensemble, zk_root: str, eventually: Eventually
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


class PatientServer(EnsembleServer):
    """A follower that still serves for ten seconds without its leader, which is ZooKeeper's default."""

    def _settings(self) -> dict[str, object]:
        return super()._settings() | {"syncLimit": 20}


class Island:
    """Three servers. The first one can be isolated from the others, but not from its clients."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        real: dict[int, tuple[int, int]] = {}
        taken: list[int] = []
        for number in (1, 2, 3):
            ports = (free_port(taken=taken), free_port(taken=[*taken, 0]))
            while ports[0] == ports[1]:
                ports = (ports[0], free_port(taken=[*taken, ports[0]]))
            taken += ports
            real[number] = ports
        self.bridges: list[FaultProxy] = []

        def bridged(ports: tuple[int, int]) -> tuple[int, int]:
            made = [FaultProxy([(LOOPBACK, port)], plain=True) for port in ports]
            self.bridges += made
            for bridge in made:
                stack.enter_context(bridge)
            return made[0].port, made[1].port

        from_island = {1: real[1], 2: bridged(real[2]), 3: bridged(real[3])}
        from_mainland = {1: bridged(real[1]), 2: real[2], 3: real[3]}
        self.servers = [
            PatientServer(
                folder / f"zookeeper-{number}",
                number=number,
                port=free_port(taken=taken),
                peers=from_island if number == 1 else from_mainland,
                tick=TICK,
            )
            for number in (1, 2, 3)
        ]

    def start(self) -> None:
        for server in self.servers:
            server.spawn()
        for server in self.servers:
            server.wait_ready()

    def stop(self) -> None:
        for server in self.servers:
            server.kill()

    def cut_off(self) -> None:
        for bridge in self.bridges:
            bridge.black_hole()

    def heal(self) -> None:
        for bridge in self.bridges:
            bridge.heal()


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Island]:
    with ExitStack() as stack:
        made = Island(tmp_path, stack)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def test_a_leader_whose_server_is_cut_off_from_the_ensemble_is_deposed_before_the_next_leads(
    island: Island, eventually: Eventually
) -> None:
    """TestLeaderLatchIsolatedZookeeper (CURATOR-444): the server still answers reads and pings.

    It does so for ten seconds, its syncLimit. The session expires at the ensemble after four.
    """
    lonely, *mainland = island.servers
    assert lonely.mode == "follower", "the highest number leads at first"
    hosts = ",".join(server.hosts for server in mainland)
    with (
        Participants(hosts, "/election", SESSION) as participants,
        Latches(hosts, "/latch", SESSION) as latches,
    ):
        cut, heir = (
            participants.candidate("cut", participants.session(lonely.hosts)),
            participants.candidate("heir"),
        )
        first, second = latches.latch("cut", cut.session), latches.latch("heir", heir.session)
        heir.queue.add_to_leader_lock_queue()
        second.latch.start()
        eventually(lambda: heir.leads and second.leads)

        with Overlaps(lambda: [one.name for one in participants.leaders()]) as overlaps:
            cut.queue.add_to_leader_lock_queue()
            first.latch.start()
            for number in range(1, 3):
                eventually(lambda: set(participants.ids()) == {"cut", "heir"} and len(latches.nodes()) == 2)
                while not (cut.leads and first.leads):  # a busy machine may depose it again
                    if heir.leads:
                        heir.queue.abdicate("the other's turn")
                    if second.leads:  # checked separately: the two servers may notify the next one first
                        latches.delete(second.latch.own_node)
                    eventually(lambda: not heir.leads and not second.leads)
                    eventually(lambda: participants.leaders() and latches.leaders())

                with Overlaps(lambda: [member.latch.id for member in latches.leaders()]) as latch_overlaps:
                    island.cut_off()
                    eventually(lambda: heir.leads, what=f"the heir leads, round {number}")
                    eventually(
                        lambda: latches.leaders() == [second], what=f"the other latch leads, round {number}"
                    )
                    assert not cut.leads
                    assert not first.leads
                    island.heal()
                    eventually(lambda: lonely.mode == "follower", within_s=LONG.total_seconds())
                assert latch_overlaps.seen == []

        assert overlaps.seen == []
        epochs = cut.epochs + heir.epochs
        assert len(epochs) == len(set(epochs))
