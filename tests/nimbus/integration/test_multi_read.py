"""Many nodes in one request, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.zookeeper.calls import ZooKeeperCalls
from nimbus.adapters.zookeeper.multi_read import multi_read_async
from nimbus.ports import StoreDeniedError


@pytest.fixture
def calls(request: pytest.FixtureRequest, zk_root: str) -> Iterator[ZooKeeperCalls]:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=request.getfixturevalue("zookeeper").hosts))
    session.start(timedelta(seconds=30))
    try:
        session.call(session.client.ensure_path_async, zk_root)
        yield ZooKeeperCalls(session)
    finally:
        session.close(timedelta(seconds=10))


def test_many_nodes_are_read_in_order_when_some_are_not_there(calls: ZooKeeperCalls, zk_root: str) -> None:
    names = [f"n{number}" for number in range(250)]
    for name in names[::2]:
        calls.create(f"{zk_root}/{name}", name.encode() if name != "n0" else b"")

    found = calls.read_all(zk_root, names)

    assert found == (("n0", b""), *((name, name.encode()) for name in names[2::2]))
    assert calls.read_all(zk_root, []) == ()


def test_many_nodes_take_few_requests(
    calls: ZooKeeperCalls, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = calls.session.client
    sent: list[Any] = []
    original = client._call
    monkeypatch.setattr(client, "_call", lambda *args: sent.append(args) or original(*args))

    calls.read_all(zk_root, [f"n{number}" for number in range(250)])

    assert len(sent) == 3


def test_paths_are_below_the_root_of_the_connection(calls: ZooKeeperCalls, zk_root: str) -> None:
    calls.create(f"{zk_root}/there", b"x")
    client = calls.session.client
    before, client.chroot = client.chroot, zk_root
    try:
        assert calls.session.call(multi_read_async, client, ["/there", "/absent"]) == [b"x", None]
    finally:
        client.chroot = before


def test_a_node_that_may_not_be_read_is_an_error_and_not_an_absence(
    calls: ZooKeeperCalls, zk_root: str
) -> None:
    client = calls.session.client
    only_create = [make_acl("world", "anyone", create=True)]
    calls.create(f"{zk_root}/open", b"x")
    calls.session.call(client.create_async, f"{zk_root}/closed", b"x", acl=only_create)

    with pytest.raises(StoreDeniedError, match="access list"):
        calls.read_all(zk_root, ["open", "closed"])
    with pytest.raises(NoAuthError):
        calls.session.call(multi_read_async, client, [f"{zk_root}/closed"])
    assert calls.read_all(zk_root, ["open"]) == (("open", b"x"),), "the connection lives on"


def test_names_and_data_take_one_round_trip(
    calls: ZooKeeperCalls, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls.create(f"{zk_root}/a", b"")
    calls.create(f"{zk_root}/a/x", b"1")
    sent: list[Any] = []
    session = calls.session
    client, original, wait = session.client, session.client._call, session.call
    monkeypatch.setattr(client, "_call", lambda *args: sent.append("sent") or original(*args))
    monkeypatch.setattr(session, "call", lambda *args, **kw: sent.append("awaited") or wait(*args, **kw))

    names, data = calls.list_and_read(
        [f"{zk_root}/a", f"{zk_root}/b"], [None, None], [f"{zk_root}/a/x", f"{zk_root}/a/y", f"{zk_root}/b/x"]
    )

    assert (names, data) == ([("x",), ()], [b"1", None, None])
    assert sent == ["sent"] * 3 + ["awaited"] * 3
