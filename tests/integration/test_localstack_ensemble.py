"""Three real ZooKeeper servers: a quorum, the loss of one, of two, of all data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psutil
import pytest
from kazoo.client import KazooClient

from nimbus.localstack.ensemble import Ensemble
from nimbus.localstack.errors import LocalStackError
from nimbus.localstack.process import ManagedProcess

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
    """All three run; what a test has killed is started for the next."""
    yield shared
    for server in shared.servers:
        if server.running:
            server.resume()
    shared.start()


@contextmanager
def _client(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=hosts, timeout=3.0)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def test_ensemble_forms_a_quorum_with_one_leader_and_replicates(ensemble: Ensemble) -> None:
    assert sorted(server.mode for server in ensemble.servers) == ["follower", "follower", "leader"]

    with _client(ensemble.servers[0].hosts) as one, _client(ensemble.servers[2].hosts) as other:
        one.create("/replicated", b"value")
        other.sync("/replicated")
        assert other.get("/replicated")[0] == b"value"


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_ensemble_serves_on_when_one_server_is_killed_and_takes_it_back(
    ensemble: Ensemble, which: str, eventually: Eventually
) -> None:
    victim = next(server for server in ensemble.servers if server.mode == which)
    rest = ",".join(server.hosts for server in ensemble.servers if server is not victim)
    victim.kill()
    eventually(lambda: ensemble.leader is not None, within_s=30, what="the others have a leader")

    with _client(rest) as client:
        client.create(f"/without-{which}", b"value")
    victim.start()

    with _client(victim.hosts) as client:
        client.sync("/")
        assert client.get(f"/without-{which}")[0] == b"value"


def test_ensemble_serves_nobody_without_a_majority_until_a_server_is_back(
    ensemble: Ensemble, eventually: Eventually
) -> None:
    first, second, third = ensemble.servers
    first.kill()
    second.kill()
    eventually(lambda: third.mode == "", within_s=30, what="the last one stops serving")
    assert ensemble.leader is None

    first.spawn()

    eventually(lambda: {first.mode, third.mode} == {"leader", "follower"}, within_s=30)


def test_ensemble_serves_on_while_one_server_is_paused(ensemble: Ensemble, eventually: Eventually) -> None:
    victim = ensemble.leader
    assert victim is not None
    victim.pause()
    eventually(lambda: ensemble.leader not in (None, victim), within_s=30, what="another one leads")
    victim.resume()
    eventually(lambda: victim.mode == "follower", within_s=30, what="the old leader follows")


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


def test_ensemble_leaves_no_process_when_it_is_stopped_and_can_be_stopped_again(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path)
    ensemble.start()
    processes = [psutil.Process(server.pid) for server in ensemble.servers]
    ensemble.servers[1].pause()

    ensemble.stop()
    ensemble.stop()

    assert not any(process.is_running() for process in processes)


def test_ensemble_of_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalStackError, match="use ZooKeeperServer"):
        Ensemble(tmp_path, size=1)
