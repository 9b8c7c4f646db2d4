"""Nodes that are cached until they change, with simulated calls; a call without a connection."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from kazoo.protocol.states import KeeperState

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store import watched
from nimbus.adapters.store.watched import WatchedNodes
from nimbus.adapters.zookeeper.calls import ZooKeeperCalls
from nimbus.ports import Enqueue, StoreUnavailableError


class Nodes:
    """Some nodes with their watches. It also simulates the calls."""

    def __init__(self) -> None:
        self.data = {"a": 1, "b": 2}
        self.read: list[str] = []
        self.watches: dict[str, Enqueue] = {}
        self.change_after_read: str | None = None
        self.down = False
        self.told: list[str] = []
        self.watched = WatchedNodes(self._calls(), self._read, lambda: self.told.append("changed"))

    def values(self, *names: str) -> tuple[dict[str, int], list[str]]:
        """The cached values, and the reads for them."""
        self.read = []
        return self.watched.values(names), self.read

    def change(self, name: str) -> None:
        self.data[name] = self.data.get(name, 0) + 10
        if name in self.watches:
            self.watches.pop(name)()

    def _calls(self) -> Any:
        return self

    def await_watches(self) -> None:
        """Does nothing: watches are called at once."""

    def _read(self, changed: Mapping[str, Enqueue]) -> Mapping[str, int]:
        self.read += changed
        found = {name: self.data[name] for name in changed if name in self.data}
        self.watches |= {name: enqueue for name, enqueue in changed.items() if name in found}
        if self.down:
            raise StoreUnavailableError("no answer")
        if self.change_after_read is not None:
            self.change(self.change_after_read)
        return found


def test_a_node_is_read_again_only_after_it_has_changed() -> None:
    nodes = Nodes()

    assert nodes.values("a", "b") == ({"a": 1, "b": 2}, ["a", "b"])
    assert nodes.values("a", "b") == ({"a": 1, "b": 2}, [])
    nodes.change("b")
    assert nodes.told == ["changed"]
    assert nodes.values("a", "b") == ({"a": 1, "b": 12}, ["b"])
    assert nodes.values("a", "b") == ({"a": 1, "b": 12}, [])


def test_a_change_while_nodes_are_read_is_not_lost() -> None:
    nodes = Nodes()
    nodes.change_after_read = "a"
    nodes.values("a", "b")
    nodes.change_after_read = None

    assert nodes.values("a", "b") == ({"a": 11, "b": 2}, ["a"])


def test_a_node_that_is_not_there_is_looked_for_each_time() -> None:
    nodes = Nodes()

    assert nodes.values("c") == ({}, ["c"])
    nodes.change("c")
    assert nodes.values("c") == ({"c": 10}, ["c"])


def test_a_node_that_is_no_more_asked_for_is_forgotten() -> None:
    nodes = Nodes()
    nodes.values("a", "b")

    assert nodes.values("a") == ({"a": 1}, [])
    assert nodes.values("a", "b") == ({"a": 1, "b": 2}, ["b"])


def test_nothing_is_remembered_of_a_look_that_fails() -> None:
    nodes = Nodes()
    nodes.down = True
    with pytest.raises(StoreUnavailableError):
        nodes.values("a", "b")
    nodes.down = False

    assert nodes.values("a", "b") == ({"a": 1, "b": 2}, ["a", "b"])


def test_a_look_beside_one_that_hangs_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes()
    reading, gate = threading.Event(), threading.Event()

    def hangs(_changed: object) -> Mapping[str, int]:
        reading.set()
        gate.wait(60)
        return {}

    monkeypatch.setattr(watched, "PATIENCE_S", 0.01)
    monkeypatch.setattr(nodes.watched, "_read", hangs)
    thread = threading.Thread(target=nodes.watched.values, args=(["a"],))
    thread.start()
    try:
        assert reading.wait(60)
        with pytest.raises(StoreUnavailableError, match="another request"):
            nodes.watched.values(["a"])
    finally:
        gate.set()
        thread.join(60)


def test_watches_on_one_node_are_equal_however_often_it_is_read() -> None:
    """kazoo keeps a set of watches for a path. An unreadable record is read again at each check."""
    nodes = Nodes()
    del nodes.data["a"]
    given: set[Enqueue] = set()
    read = nodes.watched._read

    def noted(changed: Mapping[str, Enqueue]) -> Mapping[str, int]:
        given.update(changed.values())
        return read(changed)

    nodes.watched._read = noted
    for _ in range(3):
        nodes.values("a")

    assert len(given) == 1


def test_request_without_a_connection_waits_for_one_with_less_patience_than_for_an_answer() -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:1", call_timeout=timedelta(seconds=5)))
    session.client._state = KeeperState.CONNECTING

    calls = ZooKeeperCalls(session, timedelta(milliseconds=10))
    for ask in (calls.get, lambda path: calls.read_all(path, ["a", "b"])):
        with pytest.raises(StoreUnavailableError, match=r"no connection .* within 0:00:00\.01"):
            ask("/")
    assert len(session.client._queue) == 0, "nothing is sent when nobody waits for it any more"
