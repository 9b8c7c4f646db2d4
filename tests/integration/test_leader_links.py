"""Links that fail in the ways kazoo does not notice, and replies that get lost."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    ZooKeeperUnavailableError,
    read_participants,
)
from leader.store import ElectionStore
from nimbus.localstack.zookeeper import ZooKeeperServer

SESSION = timedelta(seconds=3)
LONG = timedelta(seconds=10)
WHO = Participant("a", "127.0.0.1", 1, "boot")
Eventually = Callable[..., None]


class Proxy:
    """A TCP relay on loopback that can swallow everything while it keeps connections open."""

    def __init__(self, target_port: int) -> None:
        self.swallow = threading.Event()
        self._target = target_port
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, name="test-proxy", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)
        for sock in [self._listener, *self._pairs]:
            sock.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._listener, *self._pairs], [], [], 0.05)
            for sock in ready:
                if sock is self._listener:
                    self._accept()
                elif sock in self._pairs:
                    self._relay(sock)

    def _accept(self) -> None:
        ours, _ = self._listener.accept()
        theirs = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        self._pairs |= {ours: theirs, theirs: ours}

    def _relay(self, sock: socket.socket) -> None:
        peer = self._pairs[sock]
        try:
            data = sock.recv(65_536)
            if data and not self.swallow.is_set():
                peer.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (sock, peer):
                del self._pairs[end]
                end.close()


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[Proxy]:
    relay = Proxy(zookeeper.port)
    yield relay
    relay.stop()


@pytest.fixture
def connect() -> Iterator[Callable[[str], ZooKeeperSession]]:
    made: list[ZooKeeperSession] = []

    def make(hosts: str) -> ZooKeeperSession:
        config = ZooKeeperConfig(
            hosts=hosts, session_timeout=SESSION, connect_timeout=timedelta(seconds=1), call_timeout=LONG
        )
        made.append(ZooKeeperSession(config))
        made[-1].start(LONG)
        return made[-1]

    yield make
    for session in made:
        session.close(LONG)


class Told:
    def __init__(self) -> None:
        self.words: list[tuple[str, int]] = []

    def elected(self, leadership: Leadership) -> None:
        self.words.append(("elected", leadership.epoch))

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.words.append(("revoked", leadership.epoch))


def _queue(session: ZooKeeperSession, root: str, name: str, told: Told) -> LeaderLockQueue:
    return LeaderLockQueue(
        session=session,
        config=ElectionConfig(root=root, step_down_margin=timedelta(milliseconds=300)),
        participant=Participant(name, "127.0.0.1", 1, name),
        guard=lambda: Verdict(True),
        electable=told,
    )


def test_a_leader_on_a_black_holed_link_is_deposed_before_its_successor_leads(
    connect: Callable[[str], ZooKeeperSession],
    proxy: Proxy,
    zookeeper: ZooKeeperServer,
    zk_root: str,
    eventually: Eventually,
) -> None:
    told, heard = Told(), Told()
    cut = _queue(connect(f"127.0.0.1:{proxy.port}"), zk_root, "cut", told)
    heir = _queue(connect(zookeeper.hosts), zk_root, "heir", heard)
    both: list[bool] = []
    try:
        cut.start()
        eventually(cut.is_leader)
        heir.start()
        eventually(lambda: heir.status().position == 1)

        proxy.swallow.set()

        def heir_leads() -> bool:
            leads = heir.is_leader()
            both.append(leads and cut.is_leader())
            return leads

        eventually(heir_leads, within_s=20)
        assert not any(both)
        eventually(lambda: told.words == [("elected", 1), ("revoked", 1)])

        proxy.swallow.clear()
        eventually(lambda: [v.participant.id for v in heir.participants()] == ["heir", "cut"], within_s=20)
        assert heir.is_leader()
    finally:
        proxy.swallow.clear()
        cut.close(LONG)
        heir.close(LONG)


def _losing_the_reply(session: ZooKeeperSession) -> Callable[..., Any]:
    """kazoo's `create_async`, but the answer about a latch never arrives."""
    create = session.client.create_async

    def applied_but_never_answered(*args: Any, ephemeral: bool = False, **kw: Any) -> Any:
        answer = create(*args, ephemeral=ephemeral, **kw)
        if not ephemeral:
            return answer
        answer.get(timeout=5)
        return session.client.handler.async_result()

    return applied_but_never_answered


def test_a_latch_whose_reply_was_lost_is_found_and_not_made_twice(
    connect: Callable[[str], ZooKeeperSession],
    zookeeper: ZooKeeperServer,
    zk_root: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = connect(zookeeper.hosts)
    store = ElectionStore(session, zk_root, WHO, lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(session.client, "create_async", _losing_the_reply(session))
        with pytest.raises(ZooKeeperUnavailableError, match="outcome unknown"):
            store.join()

    joined = store.join()

    assert [view.node for view in read_participants(session, zk_root)] == [joined.latch.name]


def test_a_latch_of_an_older_session_is_not_adopted_but_deleted(
    connect: Callable[[str], ZooKeeperSession], zookeeper: ZooKeeperServer, zk_root: str
) -> None:
    older, newer = connect(zookeeper.hosts), connect(zookeeper.hosts)
    store = ElectionStore(older, zk_root, WHO, lambda: None)
    first = store.join().latch
    store._session = newer  # as when a client is started again while its old session still lives

    second = store.join().latch

    assert second.name != first.name
    assert second.session_id == newer.session_id
    assert [view.node for view in read_participants(newer, zk_root)] == [second.name]


def test_withdrawing_leaves_nothing_even_of_a_latch_we_never_heard_of(
    connect: Callable[[str], ZooKeeperSession],
    zookeeper: ZooKeeperServer,
    zk_root: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = connect(zookeeper.hosts)
    store = ElectionStore(session, zk_root, WHO, lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(session.client, "create_async", _losing_the_reply(session))
        with pytest.raises(ZooKeeperUnavailableError):
            store.join()
    assert len(read_participants(session, zk_root)) == 1

    store.withdraw()

    assert read_participants(session, zk_root) == []


def test_an_epoch_whose_reply_was_lost_grants_nothing_and_the_next_is_higher(
    connect: Callable[[str], ZooKeeperSession],
    zookeeper: ZooKeeperServer,
    zk_root: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, told = connect(zookeeper.hosts), Told()
    queue = _queue(session, zk_root, "a", told)
    real = session.client.transaction
    lost: list[str] = []

    def transaction() -> Any:
        made = real()
        if not lost:
            lost.append("epoch")
            commit = made.commit_async

            def applied_but_never_answered() -> Any:
                commit().get(timeout=5)
                return session.client.handler.async_result()

            made.commit_async = applied_but_never_answered
        return made

    monkeypatch.setattr(session.client, "transaction", transaction)
    try:
        queue.start()
        eventually(queue.is_leader)
        assert told.words == [("elected", 2)]
    finally:
        queue.close(LONG)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_kazoo_is_started_again_when_its_connection_thread_died(
    connect: Callable[[str], ZooKeeperSession],
    zookeeper: ZooKeeperServer,
    zk_root: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, told = connect(zookeeper.hosts), Told()
    queue = _queue(session, zk_root, "a", told)
    try:
        queue.start()
        eventually(queue.is_leader)

        connection, died = session.client._connection, threading.Event()
        read = connection._read_socket

        def dies_once(*args: Any) -> Any:
            if died.is_set():
                return read(*args)
            died.set()
            raise RuntimeError("as kazoo does on an answer it cannot read")

        monkeypatch.setattr(connection, "_read_socket", dies_once)
        eventually(lambda: ("revoked", 1) in told.words)
        eventually(queue.is_leader, within_s=20, what="it leads again with a new session")
        assert told.words[-1][1] > 1
    finally:
        queue.close(LONG)
