"""A fault proxy before the shared ZooKeeper; latches and participants, directly or through the proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from leader import ElectionPaths, LeaderError
from leader.protocol.terms import decode_component
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy
from tests.leader.integration.curator.latches import Latches
from tests.leader.integration.curator.participants import Participants
from tests.leader.integration.service_nodes import Node, Published


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[FaultProxy]:
    """A proxy before the shared server. Taken down, it looks like a server that was killed."""
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as made:
        yield made


@pytest.fixture
def latches(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Latches]:
    """Makes latches of one queue."""
    with Latches(zookeeper.hosts, f"{zk_root}/latch") as made:
        yield made


@pytest.fixture
def far_latches(proxy: FaultProxy, zk_root: str) -> Iterator[Latches]:
    """The same queue through `proxy`."""
    with Latches(proxy.hosts, f"{zk_root}/latch") as made:
        yield made


@pytest.fixture
def participants(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Participants]:
    """Makes participants of one election."""
    with Participants(zookeeper.hosts, zk_root) as made:
        yield made


@pytest.fixture
def far_participants(proxy: FaultProxy, zk_root: str) -> Iterator[Participants]:
    """The same election through `proxy`."""
    with Participants(proxy.hosts, zk_root) as made:
        yield made


@pytest.fixture
def operator(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """An operator's client, with its own session."""
    client = KazooClient(hosts=zookeeper.hosts)
    client.start(timeout=60)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def nodes(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Callable[..., Node]]:
    """Makes nodes of one election service, and ends them all."""
    made: list[Node] = []

    def make(name: str, **settings: Any) -> Node:
        made.append(Node(zookeeper.hosts, zk_root, name, **settings))
        return made[-1]

    yield make
    for node in made:
        node.end()


@pytest.fixture
def published(operator: KazooClient, zk_root: str) -> Published:
    """Reads the published information of a component: participant, epoch, session, address."""

    def read(component: str) -> tuple[str, int, UUID, str] | None:
        path = ElectionPaths(zk_root).component(component)
        try:
            info = decode_component(operator.get(path)[0], path)
        except (NoNodeError, LeaderError):
            return None
        return (info.participant_id, info.epoch, info.session, info.address)

    return read
