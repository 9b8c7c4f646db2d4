"""The fault proxy with a real ZooKeeper: which requests were executed, checked without the proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy, Op

Eventually = Callable[..., None]
SOON = timedelta(seconds=60)


@pytest.fixture
def connect() -> Iterator[Callable[[str], KazooClient]]:
    made: list[KazooClient] = []

    def make(hosts: str) -> KazooClient:
        client = KazooClient(hosts=hosts, timeout=3.0, connection_retry={"max_tries": -1, "max_delay": 0.5})
        made.append(client)
        client.start(timeout=60)
        return client

    yield make
    for client in made:
        client.stop()
        client.close()


Connect = Callable[[str], KazooClient]


def test_node_is_there_when_the_reply_to_its_creation_was_lost(
    proxy: FaultProxy, connect: Connect, zookeeper: ZooKeeperServer, zk_root: str
) -> None:
    cut, witness = connect(proxy.hosts), connect(zookeeper.hosts)
    session = cut.client_id
    trap = proxy.cut_after(when=lambda request: request.op in (Op.CREATE, Op.CREATE2))

    with pytest.raises(ConnectionLoss):
        cut.create_async(zk_root).get(timeout=60)

    assert trap.wait(SOON)
    assert trap.request is not None
    assert trap.request.mentions(zk_root)
    assert witness.exists(zk_root)
    assert cut.exists_async(zk_root).get(timeout=60)
    assert cut.client_id == session, "it has connected again with the same session"
    witness.delete(zk_root)


def test_node_is_not_there_when_the_connection_was_cut_before_its_creation(
    proxy: FaultProxy, connect: Connect, zookeeper: ZooKeeperServer, zk_root: str
) -> None:
    cut, witness = connect(proxy.hosts), connect(zookeeper.hosts)
    trap = proxy.cut_before(when=lambda request: request.op in (Op.CREATE, Op.CREATE2))

    with pytest.raises(ConnectionLoss):
        cut.create_async(zk_root).get(timeout=60)

    assert trap.wait(SOON)
    witness.sync("/")
    assert witness.exists(zk_root) is None


def test_transaction_is_caught_by_a_path_inside_it(
    proxy: FaultProxy, connect: Connect, zookeeper: ZooKeeperServer, zk_root: str
) -> None:
    cut = connect(proxy.hosts)
    trap = proxy.cut_after(Op.MULTI, when=lambda request: request.mentions(f"{zk_root}/inside"))
    for path in (zk_root, f"{zk_root}/inside"):
        transaction = cut.transaction()
        transaction.create(path)
        answer = transaction.commit_async()
        if path == zk_root:
            assert answer.get(timeout=60) == [zk_root]
    with pytest.raises(ConnectionLoss):
        answer.get(timeout=60)

    assert trap.sprung or trap.wait(SOON)
    cut.delete_async(f"{zk_root}/inside").get(timeout=60)
    cut.delete_async(zk_root).get(timeout=60)


def test_session_ends_behind_a_black_hole_and_the_client_finds_out_when_it_is_healed(
    proxy: FaultProxy, connect: Connect, zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    cut, witness = connect(proxy.hosts), connect(zookeeper.hosts)
    cut.create_async(zk_root, ephemeral=True).get(timeout=60)
    session = cut.client_id

    proxy.black_hole()

    with pytest.raises(KazooTimeoutError):
        cut.exists_async(zk_root).get(timeout=0.3)
    eventually(lambda: witness.exists(zk_root) is None, what="the session runs out")
    proxy.heal()
    eventually(lambda: cut.connected and cut.client_id != session, what="it has a new session")


def test_requests_of_one_step_are_counted(proxy: FaultProxy, connect: Connect, zk_root: str) -> None:
    client = connect(proxy.hosts)
    before = proxy.traffic()

    for _ in range(3):
        client.exists_async(zk_root).get(timeout=60)

    after = proxy.traffic()
    assert after.requests[Op.EXISTS] - before.requests.get(Op.EXISTS, 0) == 3
    assert after.bytes_to_server > before.bytes_to_server
