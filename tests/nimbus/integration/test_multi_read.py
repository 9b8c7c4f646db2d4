"""Many nodes in one request, on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.zookeeper.calls import ZooKeeperCalls
from nimbus.adapters.zookeeper.multi_read import DATA, NAMES, WatchKind, multi_read_async
from nimbus.ports import Enqueue, StoreDeniedError


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
        reads = [(DATA, "/there"), (DATA, "/absent"), (NAMES, "/there")]
        assert calls.session.call(multi_read_async, client, reads) == [b"x", None, []]
        told: list[str] = []
        calls.await_all({"/there": lambda: told.append("there"), "/absent": lambda: told.append("absent")})
        calls.await_watches()
        assert told == ["there"]
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
        calls.session.call(multi_read_async, client, [(DATA, f"{zk_root}/closed")])
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

    assert (names, data) == ([("x",), None], [b"1", None, None])
    assert sent == ["sent", "awaited"]


def test_many_watches_take_one_request_and_each_fires_once(
    calls: ZooKeeperCalls, zk_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"{zk_root}/n{number}" for number in range(250)]
    for path in paths:
        calls.create(path, b"")
    told: list[str] = []
    sent: list[Any] = []
    client, original = calls.session.client, calls.session.client._call
    monkeypatch.setattr(client, "_call", lambda *args: sent.append(args) or original(*args))

    watches = [partial(told.append, path) for path in (*paths, f"{zk_root}/absent")]
    calls.list_and_read([*paths, f"{zk_root}/absent"], watches, [])
    assert len(sent) == 3 + 1
    calls.await_watches()
    assert told == [], "nothing has changed, and a node that does not exist is not watched"

    for number in range(2):
        calls.create(f"{paths[7]}/x{number}", b"")
    calls.delete(paths[8])
    calls.await_watches()
    assert told == [paths[7], paths[8]]


@pytest.mark.parametrize("changes", ["is written", "gets a child", "is removed"])
def test_change_between_a_read_and_its_watch_fires_the_watch(
    calls: ZooKeeperCalls, zk_root: str, monkeypatch: pytest.MonkeyPatch, changes: str
) -> None:
    calls.create(f"{zk_root}/a", b"")
    original = calls._arm

    def late(zxid: int, kind: WatchKind, changed: Mapping[str, Enqueue]) -> None:
        if changes == "is written":
            calls.set(f"{zk_root}/a", b"new")
        elif changes == "gets a child":
            calls.create(f"{zk_root}/a/x", b"")
        else:
            calls.delete(f"{zk_root}/a")
        original(zxid, kind, changed)

    monkeypatch.setattr(calls, "_arm", late)
    told: list[str] = []
    if changes == "is written":
        assert calls.read_watched(zk_root, {"a": lambda: told.append("a")}) == (("a", b""),)
    else:
        assert calls.list_and_read([f"{zk_root}/a"], [lambda: told.append("a")], ()) == ([()], [])

    calls.await_watches()
    assert told == ["a"]
