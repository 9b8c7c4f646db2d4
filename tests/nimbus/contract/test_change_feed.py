"""ChangeFeed: one suite in a dict, in SQLite and in a real ZooKeeper."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.sqlite.calls import SqliteChanges
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.zookeeper.calls import ZooKeeperChanges
from nimbus.domain.commands import Abdicate
from nimbus.ports import ChangeFeed, LiveChanges
from tests.nimbus.contract import test_cluster_views as views
from tests.nimbus.dict_cluster import DictCluster

LONG_S = 30.0
session, sqlite_session = views.session, views.sqlite_session


@dataclass
class Followed:
    """A started feed, and the cluster that it follows."""

    feed: ChangeFeed
    cluster: views.Bench
    told: threading.Event = field(default_factory=threading.Event)

    def start(self) -> LiveChanges:
        self.feed.start(self.told.set)
        return self.feed.take(beats=True)

    def take(self, topic: str, *, beats: bool = False) -> LiveChanges:
        """Read until `topic` has changed."""
        while True:
            found = self.feed.take(beats=beats)
            if topic in found.topics:
                return found
            self.told.clear()
            assert self.told.wait(LONG_S), f"{topic} has not changed"


def _dict() -> tuple[views.Bench, ChangeFeed]:
    cluster = DictCluster()
    return views.dict_bench(cluster), cluster.changes()


def own_session(hosts: str) -> ZooKeeperSession:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
    session.start(timedelta(seconds=30))
    return session


@pytest.fixture(params=["dict", "sqlite", "zookeeper"])
def followed(request: pytest.FixtureRequest) -> Iterator[Followed]:
    cluster, feed = _made(request)
    yield Followed(feed, cluster)
    feed.stop()


def _made(request: pytest.FixtureRequest) -> tuple[views.Bench, ChangeFeed]:
    if request.param == "dict":
        return _dict()
    if request.param == "sqlite":
        session = request.getfixturevalue("sqlite_session")
        bench = views._bench(
            calls_on(session),
            "/nimbus",
            views.begin_term(session, views.FencingToken(path="/nimbus/epoch", version=0, epoch=1)),
        )
        return bench, SqliteChanges(session, "/nimbus")
    main, root = request.getfixturevalue("session"), request.getfixturevalue("zk_root")
    hosts = request.getfixturevalue("zookeeper").hosts
    bench = views.zookeeper_bench(main, root)
    return bench, ZooKeeperChanges(lambda: own_session(hosts), root, lambda: main.last_zxid)


CHANGES: dict[str, tuple[Callable[[views.Bench], Any], set[str]]] = {
    "run": (lambda cluster: cluster.put(views.RUN), {"runs", "run/r"}),
    "pipeline": (lambda cluster: cluster.put(views.RECORD), {"pipelines", "pipeline/p"}),
    "scheduler": (lambda cluster: cluster.put(views.SCHEDULER), {"cluster", "election"}),
    "worker": (lambda cluster: cluster.put(views.WORKER), {"workers"}),
    "settings": (lambda cluster: cluster.put(views.ClusterSettings(pools={"db": 1})), {"cluster", "workers"}),
    "command": (
        lambda cluster: cluster.queue.submit(Abdicate(reason="x"), submitted_by="me"),
        {"commands"},
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_told_by_its_topics(followed: Followed, kind: str) -> None:
    change, topics = CHANGES[kind]
    first = followed.start()

    change(followed.cluster)

    seen = set[str]()
    for topic in sorted(topics):
        if topic not in seen:
            seen |= followed.take(topic).topics
    assert first.lost
    assert topics <= seen


def test_versions_grow_and_no_change_is_later_than_upto(followed: Followed) -> None:
    first = followed.start()
    followed.cluster.put(views.RUN)

    changed = followed.take("run/r")

    assert first.version < changed.version <= changed.upto
    assert not changed.lost
    assert followed.feed.version() >= first.version
    quiet = followed.feed.take(beats=True)
    assert (quiet.topics, quiet.lost) == (frozenset(), False)


def test_who_only_says_that_it_lives_is_told_with_the_beats_alone(followed: Followed) -> None:
    followed.cluster.put(views.WORKER)
    followed.start()
    followed.feed.take(beats=True)
    followed.told.clear()

    followed.cluster.put(replace(views.WORKER, slots=2))
    followed.cluster.put(views.RUN)

    found = followed.take("run/r")
    assert "workers" not in found.topics
    assert "workers" in followed.take("workers", beats=True).topics


def test_all_is_lost_after_the_connection_broke(request: pytest.FixtureRequest, zk_root: str) -> None:
    hosts = request.getfixturevalue("zookeeper").hosts
    main, own = request.getfixturevalue("session"), list[ZooKeeperSession]()

    def connect() -> ZooKeeperSession:
        own.append(own_session(hosts))
        return own[-1]

    followed = Followed(
        ZooKeeperChanges(connect, zk_root, lambda: main.last_zxid), views.zookeeper_bench(main, zk_root)
    )
    try:
        followed.start()
        followed.told.clear()

        own[0].reconnect()

        assert followed.told.wait(LONG_S)
        while not (found := followed.feed.take(beats=False)).lost:
            assert followed.told.wait(LONG_S)
        followed.cluster.put(views.RUN)
        assert followed.take("run/r").version >= found.version
    finally:
        followed.feed.stop()
