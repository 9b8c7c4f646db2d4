"""How a session begins: missing servers, credentials, chroots."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from leader import (
    SessionState,
    ZooKeeperAuthError,
    ZooKeeperConfig,
    ZooKeeperSession,
    ZooKeeperUnreachableError,
)
from leader.protocol.requests import EnsurePath
from leader.zookeeper.executor import SessionExecutor
from nimbus.localstack.ports import free_port
from nimbus.localstack.zookeeper import ZooKeeperServer

SESSION = timedelta(seconds=4)
LONG = timedelta(seconds=60)
Eventually = Callable[..., None]


def test_a_session_that_reaches_no_server_says_where_it_looked() -> None:
    port = free_port()
    session = ZooKeeperSession(ZooKeeperConfig(hosts=f"127.0.0.1:{port}"))

    with pytest.raises(ZooKeeperUnreachableError, match=f"127.0.0.1:{port}"):
        session.start(timedelta(milliseconds=500))

    assert session.state is SessionState.LOST


def test_nodes_made_with_a_credential_are_closed_to_others(
    zookeeper: ZooKeeperServer, operator: KazooClient, zk_root: str
) -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts, auth=("digest", "nimbus:secret")))
    try:
        session.start(LONG)
        session.call(session.client.create_async, zk_root, b"private")

        assert session.call(session.client.get_async, zk_root)[0] == b"private"
        with pytest.raises(NoAuthError):
            operator.get(zk_root)
    finally:
        session.close(LONG)


def test_a_scheme_the_server_does_not_know_is_an_auth_error(zookeeper: ZooKeeperServer) -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts, auth=("nosuchscheme", "a:b")))

    with pytest.raises(ZooKeeperAuthError, match="scheme nosuchscheme"):
        session.start(LONG)


@pytest.mark.parametrize("chroot", ["", "/prod/nimbus"])
def test_a_chroot_is_made_on_first_use_with_all_that_is_above_it_and_open_for_others(
    zookeeper: ZooKeeperServer, operator: KazooClient, zk_root: str, chroot: str
) -> None:
    above = f"{zk_root}{chroot}"
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts + above, auth=("digest", "us:secret")))
    try:
        session.start(LONG)
        session.call(session.client.create_async, "/inside", b"")
        operator.create(f"{above}/of-others")
        assert sorted(operator.get_children(above)) == ["inside", "of-others"]
    finally:
        session.close(LONG)


def test_root_of_an_election_closes_itself_and_not_what_is_above_it(
    zookeeper: ZooKeeperServer, operator: KazooClient, zk_root: str
) -> None:
    root = f"{zk_root}/team/ours"
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts, auth=("digest", "us:secret")))
    try:
        session.start(LONG)
        SessionExecutor(session).answer(EnsurePath(f"{root}/leader-lock"))
        operator.create(f"{zk_root}/team/theirs")
        with pytest.raises(NoAuthError):
            operator.create(f"{root}/intruder")
    finally:
        session.close(LONG)
