"""Following a leader on a real ZooKeeper: the calls of the listener, their order, and doubtful leaders."""

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
from leader.protocol.terms import ComponentInfo, encode_component, encode_leader
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy

SESSION = timedelta(seconds=4)
BRIEF = timedelta(seconds=1.5)
"""The session timeout of followers that must notice that it is over."""
LONG = timedelta(seconds=60)
Eventually = Callable[..., None]


class Listener:
    """Records its calls."""

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
    """A session, a retrieval, a listener."""

    def __init__(
        self, hosts: str, root: str, component: str | None = None, session_timeout: timedelta = SESSION
    ) -> None:
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=session_timeout))
        self.session.start(LONG)
        self.retrieval = LeaderRetrievalService(self.session, root, component=component)
        self.listener = Listener()

    def start(self) -> None:
        self.retrieval.start(self.listener)

    def end(self) -> None:
        self.retrieval.stop(LONG)
        self.session.close(LONG)


@pytest.fixture
def follow(zookeeper: ZooKeeperServer, zk_root: str) -> Iterator[Callable[..., Follower]]:
    """Makes started followers of one election, and ends them all."""
    made: list[Follower] = []

    def make(component: str | None = None, session_timeout: timedelta = SESSION) -> Follower:
        made.append(Follower(zookeeper.hosts, zk_root, component, session_timeout))
        made[-1].start()
        return made[-1]

    yield make
    for follower in made:
        follower.end()


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """Simulates the leaders: writes the same nodes."""
    client = KazooClient(hosts=zookeeper.hosts)
    client.start(timeout=60)
    yield client
    client.stop()
    client.close()


def _leads(client: KazooClient, root: str, name: str, epoch: int, host: str = "h") -> None:
    """Write the leader node, like a new leader."""
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
    listener = follower.listener
    eventually(lambda: listener.told == [("current", None, None)], what="nobody leads yet")

    _leads(client, zk_root, "a", 1)
    eventually(lambda: listener.told[1:] == [("current", "a", 1)])
    client.delete(ElectionPaths(zk_root).leader)
    eventually(lambda: listener.told[2:] == [("current", None, None)])
    _leads(client, zk_root, "b", 2, host="::1")
    eventually(lambda: listener.told[3:] == [("current", "b", 2)])
    _leads(client, zk_root, "a", 3)
    eventually(lambda: listener.told[4:] == [("current", "a", 3)])

    assert [view.address for view in listener.views] == [None, "h:1", None, "[::1]:1", "h:1"]
    assert listener.views[1].session == f"{client.client_id[0]:#x}"
    ages = [view.as_of for view in listener.views]
    assert ages == sorted(ages)
    assert listener.threads == {"leader-retrieval-listener"}
    assert follower.retrieval.view() == listener.views[-1]


def test_a_node_that_is_written_again_with_the_same_content_is_no_change(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    listener = follow().listener
    _leads(client, zk_root, "a", 1)
    eventually(lambda: listener.told[-1:] == [("current", "a", 1)])
    before = len(listener.told)

    path = ElectionPaths(zk_root).leader
    client.set(path, client.get(path)[0])
    _leads(client, zk_root, "a", 2)

    eventually(lambda: listener.told[-1] == ("current", "a", 2))
    assert listener.told[before:] == [("current", "a", 2)]


def test_a_real_leader_and_its_successor_are_followed(
    follow: Callable[..., Follower], zk_root: str, eventually: Eventually, zookeeper: ZooKeeperServer
) -> None:
    listener = follow().listener
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
        eventually(lambda: listener.views[-1:] and listener.views[-1].address == "a:7")

        queues[0].close(LONG)

        eventually(lambda: listener.views[-1].address == "b:7")
        epochs = [view.epoch for view in listener.views if view.epoch is not None]
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
    listener = follow("rest").listener
    eventually(lambda: listener.told == [("current", None, None)])
    session = uuid.uuid4()

    path = ElectionPaths(zk_root).component("rest")
    info = ComponentInfo("a", 4, session, "http://a:8080")
    client.create(path, encode_component(info), ephemeral=True, makepath=True)

    eventually(lambda: listener.told[1:] == [("current", "a", 4)])
    assert (listener.views[-1].address, listener.views[-1].session) == ("http://a:8080", str(session))


def test_an_epoch_below_one_that_was_seen_is_unknown_with_a_reason(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    _leads(client, zk_root, "a", 9)
    eventually(lambda: follower.listener.told[-1:] == [("current", "a", 9)])

    _leads(client, zk_root, "b", 2)

    eventually(lambda: follower.listener.told[-1] == ("unknown", None, None))
    assert "wiped or restored" in follower.listener.views[-1].reason
    assert follower.retrieval.view().state is ViewState.UNKNOWN
    _leads(client, zk_root, "b", 10)
    eventually(lambda: follower.listener.told[-1] == ("current", "b", 10), what="above again, believed again")


@pytest.mark.parametrize("content", [b"", b"mine now", b'{"schema": 99}', b"\xff"])
def test_what_no_leader_wrote_is_unknown_until_it_is_corrected(
    follow: Callable[..., Follower],
    client: KazooClient,
    zk_root: str,
    eventually: Eventually,
    content: bytes,
) -> None:
    listener = follow().listener
    _leads(client, zk_root, "a", 1)
    eventually(lambda: listener.told[-1:] == [("current", "a", 1)])

    client.set(ElectionPaths(zk_root).leader, content)
    eventually(lambda: listener.told[-1] == ("unknown", None, None))
    assert ElectionPaths(zk_root).leader in listener.views[-1].reason

    _leads(client, zk_root, "a", 1)
    eventually(lambda: listener.told[-1] == ("current", "a", 1))


def test_a_leader_node_that_its_leader_does_not_own_is_unknown(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    listener = follow().listener
    eventually(lambda: len(listener.told) == 1)
    forged = encode_leader(LeaderInfo(Participant("a", "h", 1), 1, session_id=12345))

    client.create(ElectionPaths(zk_root).leader, forged, ephemeral=True, makepath=True)

    eventually(lambda: listener.told[-1] == ("unknown", None, None))
    assert "was not written by the leader" in listener.views[-1].reason


def test_a_broken_connection_makes_it_stale_and_the_next_one_reads_and_watches_anew(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    listener = follower.listener
    _leads(client, zk_root, "a", 1)
    eventually(lambda: listener.told[-1:] == [("current", "a", 1)])
    before = len(listener.told)

    follower.session.reconnect()

    eventually(lambda: listener.told[before:] == [("stale", "a", 1), ("current", "a", 1)])
    assert follower.session.is_connected
    _leads(client, zk_root, "b", 2)
    eventually(lambda: listener.told[-1] == ("current", "b", 2), what="it is watched again")


def test_a_session_that_ends_makes_it_unknown_and_the_next_session_reads_anew(
    follow: Callable[..., Follower],
    client: KazooClient,
    zk_root: str,
    eventually: Eventually,
    zookeeper: ZooKeeperServer,
) -> None:
    follower = follow()
    listener = follower.listener
    _leads(client, zk_root, "a", 1)
    eventually(lambda: listener.told[-1:] == [("current", "a", 1)])
    before = len(listener.told)

    thief = KazooClient(hosts=zookeeper.hosts, client_id=follower.session.client.client_id)
    thief.start(timeout=60)
    thief.stop()
    thief.close()

    eventually(lambda: listener.told[-1] == ("current", "a", 1) and len(listener.told) > before)
    assert ("unknown", None, None) in listener.told[before:]
    _leads(client, zk_root, "b", 2)
    eventually(lambda: listener.told[-1] == ("current", "b", 2))


def test_a_connection_thread_that_has_ended_is_started_again_though_nobody_else_uses_the_session(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow(session_timeout=BRIEF)
    _leads(client, zk_root, "a", 1)
    eventually(lambda: follower.listener.told[-1:] == [("current", "a", 1)])

    follower.session.client.stop()  # as after a credential that a server refused
    eventually(lambda: follower.listener.told[-1] == ("unknown", None, None))
    _leads(client, zk_root, "b", 2)

    eventually(lambda: follower.listener.told[-1] == ("current", "b", 2))


def test_an_outage_longer_than_the_session_timeout_makes_it_unknown_without_a_word_from_zookeeper(
    zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        follower = Follower(proxy.hosts, zk_root, session_timeout=BRIEF)
        listener = follower.listener
        follower.start()
        try:
            eventually(lambda: listener.told == [("current", None, None)], what="nobody leads")

            proxy.take_down()
            eventually(lambda: listener.told[1:] == [("stale", None, None)])
            assert follower.retrieval.view().state is ViewState.STALE
            eventually(lambda: listener.told[2:] == [("unknown", None, None)])
            assert follower.session.state is SessionState.SUSPENDED, "nobody said that the session is over"
            assert "longer than the session lasts" in listener.views[-1].reason
            assert follower.retrieval.view().state is ViewState.UNKNOWN

            proxy.heal()
            eventually(lambda: listener.told[-1] == ("current", None, None))
        finally:
            follower.end()


def test_a_slow_listener_delays_neither_the_view_nor_another_retrieval_and_is_told_all_in_order(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    release = threading.Event()
    eventually(lambda: len(follower.listener.told) == 1)
    follower.listener.on_view = lambda _view: (release.wait(60), None)[1]
    try:
        _leads(client, zk_root, "a", 1)
        eventually(lambda: follower.listener.told[-1] == ("current", "a", 1))
        _leads(client, zk_root, "b", 2)
        eventually(lambda: follower.retrieval.view().id == "b", what="the view is ahead")
        assert follower.listener.told[-1] == ("current", "a", 1)
    finally:
        release.set()
    eventually(lambda: follower.listener.told[-1] == ("current", "b", 2))


def test_a_listener_that_raises_is_told_again(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    eventually(lambda: follower.listener.told == [("current", None, None)])

    def fail(_view: LeaderView) -> None:
        raise OSError("disk full")

    follower.listener.on_view = fail

    for epoch in (1, 2):
        _leads(client, zk_root, "a", epoch)
        eventually(lambda epoch=epoch: follower.listener.told[-1] == ("current", "a", epoch))


def test_without_a_listener_the_view_is_kept_all_the_same(
    zookeeper: ZooKeeperServer, client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = Follower(zookeeper.hosts, zk_root)
    follower.retrieval.start()
    try:
        _leads(client, zk_root, "a", 1)
        eventually(lambda: follower.retrieval.view().id == "a")
    finally:
        follower.end()


def test_after_stop_nothing_is_told_and_stop_within_a_callback_returns(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    stopped = threading.Event()

    def stop(_view: LeaderView) -> None:
        follower.retrieval.stop(LONG)
        follower.retrieval.stop(LONG)
        stopped.set()

    follower.listener.on_view = stop
    eventually(stopped.is_set)

    _leads(client, zk_root, "a", 1)
    follower.session.call(follower.session.client.exists_async, ElectionPaths(zk_root).leader)

    assert follower.listener.told == [("current", None, None)]
    assert follower.retrieval.view().state is ViewState.UNKNOWN
    with pytest.raises(ElectionStateError):
        follower.retrieval.start()


def test_what_is_queued_for_a_slow_listener_is_not_told_after_stop(
    follow: Callable[..., Follower], client: KazooClient, zk_root: str, eventually: Eventually
) -> None:
    follower = follow()
    release = threading.Event()
    follower.listener.on_view = lambda _view: (release.wait(60), None)[1]
    try:
        eventually(lambda: follower.listener.told == [("current", None, None)])
        _leads(client, zk_root, "a", 1)
        eventually(lambda: follower.retrieval.view().id == "a", what="another view is queued")
        follower.retrieval.stop(timedelta(milliseconds=100))
    finally:
        release.set()
    eventually(lambda: not _alive("leader-retrieval-listener"))

    assert follower.listener.told == [("current", None, None)]


def _alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_a_path_that_cannot_be_is_refused(follow: Callable[..., Follower]) -> None:
    session = follow().session

    with pytest.raises(ElectionConfigError, match="absolute ZooKeeper path"):
        LeaderRetrievalService(session, "relative")
    with pytest.raises(ElectionConfigError, match="component"):
        LeaderRetrievalService(session, "/there", component="a/b")
