"""Three real ZooKeeper servers: a quorum, the loss of one, of two, of all data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import psutil
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from nimbus.localstack.errors import LocalStackError
from nimbus.localstack.process import ManagedProcess
from tests.fault_proxy.proxy import FaultProxy
from tests.leader.zookeeper_ensemble import Ensemble, EnsembleServer
from tests.thorough import thorough

Eventually = Callable[..., None]


class LongLived(Protocol):
    processes: list[ManagedProcess]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, long_lived: LongLived) -> Iterator[Ensemble]:
    made = Ensemble(tmp_path_factory.mktemp("ensemble"))
    try:
        made.start()
        long_lived.processes.extend(made.servers)
        yield made
    finally:
        made.stop()


@pytest.fixture
def ensemble(shared: Ensemble) -> Iterator[Ensemble]:
    """All three servers run. Servers that a test has killed are started for the next test."""
    yield shared
    for server in shared.servers:
        if server.running:
            server.resume()
    shared.start()


@contextmanager
def _client(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=hosts)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_ensemble_forms_a_quorum_with_one_leader_and_replicates(
    ensemble: Ensemble, eventually: Eventually
) -> None:
    # A slow server has no mode for a moment.
    modes = ["follower", "follower", "leader"]
    eventually(lambda: sorted(server.mode for server in ensemble.servers) == modes)

    with _client(ensemble.servers[0].hosts) as one, _client(ensemble.servers[2].hosts) as other:
        one.create("/replicated", b"value")
        other.sync("/replicated")
        assert other.get("/replicated")[0] == b"value"


@thorough
@pytest.mark.parametrize("which", ["leader", "follower"])
def test_ensemble_serves_on_when_one_server_is_killed_and_takes_it_back(
    ensemble: Ensemble, which: str, eventually: Eventually
) -> None:
    modes: dict[str, EnsembleServer] = {}

    def known() -> bool:
        modes.update({server.mode: server for server in ensemble.servers})
        return which in modes

    eventually(known, what=f"a {which} says so")
    victim = modes[which]
    rest = ",".join(server.hosts for server in ensemble.servers if server is not victim)
    victim.kill()
    eventually(lambda: ensemble.leader is not None, within_s=60, what="the others have a leader")

    with _client(rest) as client:
        client.create(f"/without-{which}", b"value")
    victim.start()

    with _client(victim.hosts) as client:
        client.sync("/")
        assert client.get(f"/without-{which}")[0] == b"value"


@thorough
def test_ensemble_serves_nobody_without_a_majority_until_a_server_is_back(
    ensemble: Ensemble, eventually: Eventually
) -> None:
    first, second, third = ensemble.servers
    first.kill()
    second.kill()
    eventually(lambda: third.mode == "", within_s=60, what="the last one stops serving")
    assert ensemble.leader is None

    first.spawn()

    eventually(lambda: {first.mode, third.mode} == {"leader", "follower"}, within_s=60)


@thorough
def test_ensemble_serves_on_while_one_server_is_paused(ensemble: Ensemble, eventually: Eventually) -> None:
    eventually(lambda: ensemble.leader is not None, what="one leads")
    victim = ensemble.leader
    assert victim is not None
    victim.pause()
    eventually(lambda: ensemble.leader not in (None, victim), within_s=60, what="another one leads")
    victim.resume()
    eventually(lambda: victim.mode == "follower", within_s=60, what="the old leader follows")


@thorough
def test_wiped_ensemble_has_forgotten_everything_and_keeps_its_addresses(ensemble: Ensemble) -> None:
    hosts = ensemble.hosts
    with _client(hosts) as client:
        client.create("/forgotten", b"value")

    ensemble.wipe()

    assert ensemble.hosts == hosts
    with _client(hosts) as client:
        assert client.get_children("/") == ["zookeeper"]


def test_running_server_is_not_wiped(ensemble: Ensemble) -> None:
    with pytest.raises(LocalStackError, match="ZooKeeper 1 runs"):
        ensemble.servers[0].wipe()


@thorough
def test_ensemble_leaves_no_process_when_it_is_stopped_and_can_be_stopped_again(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path)
    ensemble.start()
    processes = [psutil.Process(server.pid) for server in ensemble.servers]
    ensemble.servers[1].pause()

    ensemble.stop()
    ensemble.stop()

    assert not any(process.is_running() for process in processes)


@thorough
def test_servers_reach_each_other_by_the_given_route_and_a_cut_follower_answers_reads_alone(
    tmp_path: Path, eventually: Eventually
) -> None:
    links: list[tuple[int, int, FaultProxy]] = []

    def route(number: int, other: int, port: int) -> int:
        proxy = FaultProxy([("127.0.0.1", port)], plain=True)
        proxy.start()
        links.append((number, other, proxy))
        return proxy.port

    ensemble = Ensemble(tmp_path, tick=timedelta(seconds=1), route=route)
    try:
        ensemble.start()
        assert len(links) == 12
        cut = _follower(ensemble, eventually)
        with _client(cut.hosts) as inside:
            for number, other, proxy in links:
                if cut.number in (number, other):
                    proxy.black_hole()
            assert inside.get_children_async("/").get(timeout=60) == ["zookeeper"]
            with pytest.raises((KazooTimeoutError, ConnectionLoss)):
                inside.create_async("/never").get(timeout=1)
            eventually(lambda: cut.mode == "", what="it gives up its leader")
            for _, _, proxy in links:
                proxy.heal()
            eventually(lambda: cut.mode == "follower", what="it follows again")
    finally:
        ensemble.stop()
        for _, _, proxy in links:
            proxy.close()


def _follower(ensemble: Ensemble, eventually: Eventually) -> EnsembleServer:
    """A server that follows. A slow one has no mode for a moment."""
    found: list[EnsembleServer] = []

    def look() -> bool:
        found[:] = [server for server in ensemble.servers if server.mode == "follower"]
        return bool(found)

    eventually(look, what="one follows")
    return found[0]


def test_ensemble_of_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="use ZooKeeperServer"):
        Ensemble(tmp_path, size=1)
