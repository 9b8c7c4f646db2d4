"""Following a leader on a real ZooKeeper: what observers are told, in which order, and when it is doubted."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from kazoo.client import KazooClient

from leader import (
    ElectionConfig,
    ElectionConfigError,
    ElectionPaths,
    ElectionStateError,
    LeaderInfo,
    LeaderLockQueue,
    Participant,
    SessionState,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from leader.flink.retrieval import LeaderRetrievalService
from leader.flink.view import LeaderView, ViewState
from leader.protocol.component import ComponentInfo, encode_component
from leader.protocol.terms import encode_leader
from nimbus.localstack.zookeeper import ZooKeeperServer

SESSION = timedelta(seconds=4)
LONG = timedelta(seconds=10)
Eventually = Callable[..., None]


class Observer:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.views: list[LeaderView] = []
        self.threads: set[str] = set()
        self.on_view: Callable[[LeaderView], None] = lambda _view: None

    def leader_changed(self, view: LeaderView) -> None:
        self.threads.add(threading.current_thread().name)
        self.views.append(view)
        self.on_view(view)

    @property
    def told(self) -> list[tuple[str, str | None, int | None]]:
        return [(view.state.value, view.id, view.epoch) for view in self.views]


class Follower:
    """A session, a retrieval, an observer."""

    def __init__(self, hosts: str, root: str, component: str | None = None) -> None:
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=SESSION))
        self.session.start(LONG)
        self.retrieval = LeaderRetrievalService(self.session, root, component=component)
        self.observer = Observer()
        self.retrieval.add_observer(self.observer)

    def end(self) -> None:
        self.retrieval.stop(LONG)
        self.session.close(LONG)


@pytest.fixture
def follow(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Callable[..., Follower]]:
    """Makes followers of one election, started; ends them all."""
    made: list[Follower] = []

    def make(component: str | None = None) -> Follower:
        made.append(Follower(zookeeper.hosts, zk_root, component))
        made[-1].retrieval.start()
        return made[-1]

    yield make
    for follower in made:
        follower.end()


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """Plays the leaders: writes what they would write."""
    client = KazooClient(hosts=zookeeper.hosts)
    client.start(timeout=10)
    yield client
    client.stop()
    client.close()


def _leads(client: KazooClient, root: str, name: str, epoch: int, host: str = "h") -> None:
    """Take the leader node, as a new leader does."""
    session_id = client.client_id[0]
    data = encode_leader(LeaderInfo(Participant(name, host, 1, "boot"), epoch, session_id))
    path = ElectionPaths(root).leader
    client.ensure_path(root)
    transaction = client.transaction()
    if client.exists(path):
        transaction.delete(path)
    transaction.create(path, data, ephemeral=True)
    results = transaction.commit()
    assert not [one for one in results if isinstance(one, Exception)], results


def test_each_leader_is_told_in_order_and_no_leader_too(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    observer = follower.observer
    eventually(lambda: observer.told == [("current", None, None)], what="nobody leads yet")

    _leads(client, zk_root, "a", 1)
    eventually(lambda: observer.told[1:] == [("current", "a", 1)])
    client.delete(ElectionPaths(zk_root).leader)
    eventually(lambda: observer.told[2:] == [("current", None, None)])
    _leads(client, zk_root, "b", 2, host="::1")
    eventually(lambda: observer.told[3:] == [("current", "b", 2)])
    _leads(client, zk_root, "a", 3)
    eventually(lambda: observer.told[4:] == [("current", "a", 3)])

    assert [view.address for view in observer.views] == [None, "h:1", None, "[::1]:1", "h:1"]
    assert observer.views[1].session == f"{client.client_id[0]:#x}"
    ages = [view.as_of for view in observer.views]
    assert ages == sorted(ages)
    assert observer.threads == {"leader-observers"}
    assert follower.retrieval.view() == observer.views[-1]


def test_a_node_that_is_written_again_with_the_same_content_is_no_change(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    observer = follow().observer
    _leads(client, zk_root, "a", 1)
    eventually(lambda: observer.told[-1:] == [("current", "a", 1)])
    before = len(observer.told)

    path = ElectionPaths(zk_root).leader
    client.set(path, client.get(path)[0])
    _leads(client, zk_root, "a", 2)

    eventually(lambda: observer.told[-1] == ("current", "a", 2))
    assert observer.told[before:] == [("current", "a", 2)]


def test_a_real_leader_and_its_successor_are_followed(
    follow: Callable[..., Follower], zk_root: str, eventually: Eventually, zookeeper: ZooKeeperServer
) -> None:
    observer = follow().observer
    sessions, queues = [], []
    try:
        for name in ("a", "b"):
            session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
            session.start(LONG)
            sessions.append(session)
            queue = LeaderLockQueue(
                session=session,
                config=ElectionConfig(root=zk_root),
                participant=Participant(name, name, 7, uuid.uuid4().hex),
                guard=lambda: Verdict(True),
                electable=_Silent(),
            )
            queue.add_to_leader_lock_queue()
            queues.append(queue)
            eventually(lambda: len(queues[0].get_all_participants()) == len(queues))
        eventually(lambda: observer.views[-1:] and observer.views[-1].address == "a:7")

        queues[0].close(LONG)

        eventually(lambda: observer.views[-1].address == "b:7")
        epochs = [view.epoch for view in observer.views if view.epoch is not None]
        assert epochs == sorted(epochs)
    finally:
        for queue in queues:
            queue.close(LONG)
        for session in sessions:
            session.close(LONG)


class _Silent:
    def elected(self, leadership: object) -> None:
        pass

    def revoked(self, leadership: object, reason: str) -> None:
        pass


def test_a_component_is_followed(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    observer = follow("rest").observer
    eventually(lambda: observer.told == [("current", None, None)])
    session = uuid.uuid4()

    path = ElectionPaths(zk_root).component("rest")
    info = ComponentInfo("a", 4, session, "http://a:8080")
    client.create(path, encode_component(info), ephemeral=True, makepath=True)

    eventually(lambda: observer.told[1:] == [("current", "a", 4)])
    assert (observer.views[-1].address, observer.views[-1].session) == ("http://a:8080", str(session))


def test_an_epoch_below_one_that_was_seen_is_unknown_with_a_reason(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    _leads(client, zk_root, "a", 9)
    eventually(lambda: follower.observer.told[-1:] == [("current", "a", 9)])

    _leads(client, zk_root, "b", 2)

    eventually(lambda: follower.observer.told[-1] == ("unknown", None, None))
    assert "wiped or restored" in follower.observer.views[-1].reason
    assert follower.retrieval.view().state is ViewState.UNKNOWN
    _leads(client, zk_root, "b", 10)
    eventually(lambda: follower.observer.told[-1] == ("current", "b", 10), what="above again, believed again")


@pytest.mark.parametrize("content", [b"", b"mine now", b'{"schema": 99}', b"\xff"])
def test_what_no_leader_wrote_is_unknown_until_it_is_corrected(
    follow: Callable[..., Follower],
    client: KazooClient,
    zk_root: str,
    eventually: Eventually,
    content: bytes,
) -> None:
    observer = follow().observer
    _leads(client, zk_root, "a", 1)
    eventually(lambda: observer.told[-1:] == [("current", "a", 1)])

    client.set(ElectionPaths(zk_root).leader, content)
    eventually(lambda: observer.told[-1] == ("unknown", None, None))
    assert ElectionPaths(zk_root).leader in observer.views[-1].reason

    _leads(client, zk_root, "a", 1)
    eventually(lambda: observer.told[-1] == ("current", "a", 1))


def test_a_leader_node_that_its_leader_does_not_own_is_unknown(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    observer = follow().observer
    eventually(lambda: len(observer.told) == 1)
    forged = encode_leader(LeaderInfo(Participant("a", "h", 1), 1, session_id=12345))

    client.create(ElectionPaths(zk_root).leader, forged, ephemeral=True, makepath=True)

    eventually(lambda: observer.told[-1] == ("unknown", None, None))
    assert "was not written by the leader" in observer.views[-1].reason


def test_a_broken_connection_makes_it_stale_and_the_next_one_reads_and_watches_anew(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    observer = follower.observer
    _leads(client, zk_root, "a", 1)
    eventually(lambda: observer.told[-1:] == [("current", "a", 1)])
    before = len(observer.told)

    follower.session.reconnect()

    eventually(lambda: observer.told[before:] == [("stale", "a", 1), ("current", "a", 1)])
    assert follower.session.is_connected
    _leads(client, zk_root, "b", 2)
    eventually(lambda: observer.told[-1] == ("current", "b", 2), what="it is watched again")


def test_a_session_that_ends_makes_it_unknown_and_the_next_session_reads_anew(
    follow: Callable[..., Follower],
    client: KazooClient,
    zk_root: str,
    eventually: Eventually,
    zookeeper: ZooKeeperServer,
) -> None:
    follower = follow()
    observer = follower.observer
    _leads(client, zk_root, "a", 1)
    eventually(lambda: observer.told[-1:] == [("current", "a", 1)])
    before = len(observer.told)

    thief = KazooClient(hosts=zookeeper.hosts, client_id=follower.session.client.client_id)
    thief.start(timeout=10)
    thief.stop()
    thief.close()

    eventually(lambda: observer.told[-1] == ("current", "a", 1) and len(observer.told) > before)
    assert ("unknown", None, None) in observer.told[before:]
    _leads(client, zk_root, "b", 2)
    eventually(lambda: observer.told[-1] == ("current", "b", 2))


def test_an_outage_longer_than_the_session_timeout_makes_it_unknown_without_a_word_from_zookeeper(
    own_zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    follower = Follower(own_zookeeper.hosts, "/outage")
    observer = follower.observer
    follower.retrieval.start()
    try:
        client = KazooClient(hosts=own_zookeeper.hosts)
        client.start(timeout=10)
        _leads(client, "/outage", "a", 1)
        eventually(lambda: observer.told[-1:] == [("current", "a", 1)])
        client.stop()
        client.close()
        eventually(lambda: observer.told[-1] == ("current", None, None), what="it left")
        before = len(observer.told)

        own_zookeeper.kill()
        eventually(lambda: observer.told[before:] == [("stale", None, None)])
        assert follower.retrieval.view().state is ViewState.STALE
        eventually(lambda: observer.told[before + 1 :] == [("unknown", None, None)], within_s=20)
        assert follower.session.state is SessionState.SUSPENDED, "nobody said that the session is over"
        assert "longer than the session lasts" in observer.views[-1].reason
        assert follower.retrieval.view().state is ViewState.UNKNOWN

        own_zookeeper.start()
        eventually(lambda: observer.told[-1] == ("current", None, None), within_s=30)
    finally:
        follower.end()


def test_a_slow_observer_delays_neither_the_view_nor_another_retrieval_and_is_told_all_in_order(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    release = threading.Event()
    eventually(lambda: len(follower.observer.told) == 1)
    follower.observer.on_view = lambda _view: (release.wait(60), None)[1]
    try:
        _leads(client, zk_root, "a", 1)
        eventually(lambda: follower.observer.told[-1] == ("current", "a", 1))
        _leads(client, zk_root, "b", 2)
        eventually(lambda: follower.retrieval.view().id == "b", what="the view is ahead")
        assert follower.observer.told[-1] == ("current", "a", 1)
    finally:
        release.set()
    eventually(lambda: follower.observer.told[-1] == ("current", "b", 2))


def test_an_observer_that_raises_is_told_again_and_the_others_too(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower, second = follow(), Observer()
    eventually(lambda: len(follower.observer.told) == 1)

    def fail(_view: LeaderView) -> None:
        raise OSError("disk full")

    follower.observer.on_view = fail
    follower.retrieval.add_observer(second)
    eventually(lambda: second.told == [("current", None, None)], what="a late one is told what is known")

    for epoch in (1, 2):
        _leads(client, zk_root, "a", epoch)
        eventually(lambda epoch=epoch: second.told[-1] == ("current", "a", epoch))

    eventually(lambda: follower.observer.told == second.told)


def test_after_stop_nothing_is_told_and_stop_within_a_callback_returns(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    stopped = threading.Event()

    def stop(_view: LeaderView) -> None:
        follower.retrieval.stop(LONG)
        follower.retrieval.stop(LONG)
        stopped.set()

    follower.observer.on_view = stop
    eventually(stopped.is_set)

    _leads(client, zk_root, "a", 1)
    follower.session.call(follower.session.client.exists_async, ElectionPaths(zk_root).leader)

    assert follower.observer.told == [("current", None, None)]
    assert follower.retrieval.view().state is ViewState.UNKNOWN
    with pytest.raises(ElectionStateError):
        follower.retrieval.start()


def test_what_is_queued_for_a_slow_observer_is_not_told_after_stop(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    release = threading.Event()
    follower.observer.on_view = lambda _view: (release.wait(60), None)[1]
    try:
        eventually(lambda: follower.observer.told == [("current", None, None)])
        _leads(client, zk_root, "a", 1)
        eventually(lambda: follower.retrieval.view().id == "a", what="another view is queued")
        follower.retrieval.stop(timedelta(milliseconds=100))
    finally:
        release.set()
    eventually(lambda: not _alive("leader-observers"))

    assert follower.observer.told == [("current", None, None)]


def _alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_a_path_that_cannot_be_is_refused(follow: Callable[..., Follower]) -> None:
    session = follow().session

    with pytest.raises(ElectionConfigError, match="absolute ZooKeeper path"):
        LeaderRetrievalService(session, "relative")
    with pytest.raises(ElectionConfigError, match="component"):
        LeaderRetrievalService(session, "/there", component="a/b")
