"""Connections that fail in ways that kazoo does not notice, and lost replies, during an election."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from leader import (
    ElectionConfig,
    ElectionPaths,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    read_participants,
)
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy

SESSION = timedelta(seconds=3)
LONG = timedelta(seconds=60)
Eventually = Callable[..., None]
Connect = Callable[[str], ZooKeeperSession]


class Told:
    def __init__(self) -> None:
        self.words: list[tuple[str, int]] = []

    def elected(self, leadership: Leadership) -> None:
        self.words.append(("elected", leadership.epoch))

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.words.append(("revoked", leadership.epoch))


@pytest.fixture
def connect(proxy: FaultProxy) -> Iterator[Connect]:
    made: list[ZooKeeperSession] = []

    def make(hosts: str) -> ZooKeeperSession:
        made.append(ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=SESSION)))
        made[-1].start(LONG)
        return made[-1]

    yield make
    proxy.heal()
    for session in made:
        session.close(LONG)


def _queue(session: ZooKeeperSession, root: str, name: str, told: Told) -> LeaderLockQueue:
    return LeaderLockQueue(
        session=session,
        config=ElectionConfig(root=root, step_down_margin=timedelta(milliseconds=300)),
        participant=Participant(name, "127.0.0.1", 1, name),
        guard=lambda: Verdict(True),
        electable=told,
    )


def test_a_leader_on_a_black_holed_link_is_deposed_before_its_successor_leads(
    connect: Connect, proxy: FaultProxy, zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    told, heard = Told(), Told()
    cut = _queue(connect(proxy.hosts), zk_root, "cut", told)
    heir = _queue(connect(zookeeper.hosts), zk_root, "heir", heard)
    both: list[bool] = []
    try:
        cut.add_to_leader_lock_queue()
        eventually(cut.is_leader)
        heir.add_to_leader_lock_queue()
        eventually(lambda: heir.status().position == 1)

        proxy.black_hole()

        def heir_leads() -> bool:
            leads = heir.is_leader()
            both.append(leads and cut.is_leader())
            return leads

        eventually(heir_leads)
        assert not any(both)
        eventually(lambda: len(told.words) == 2)
        assert told.words == [("elected", 1), ("revoked", 1)]

        proxy.heal()
        eventually(lambda: [v.participant.id for v in heir.get_all_participants()] == ["heir", "cut"])
        assert heir.is_leader()
    finally:
        proxy.heal()
        cut.close(LONG)
        heir.close(LONG)


@pytest.mark.parametrize("nth", range(1, 11))
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "never-sent"])
def test_whichever_request_of_the_way_to_leadership_breaks_there_is_one_latch_and_one_leader(
    connect: Connect,
    proxy: FaultProxy,
    zookeeper: ZooKeeperServer,
    zk_root: str,
    eventually: Eventually,
    nth: int,
    applied: bool,
) -> None:
    onlooker, session, told = connect(zookeeper.hosts), connect(proxy.hosts), Told()
    queue = _queue(session, zk_root, "a", told)
    (proxy.cut_after if applied else proxy.cut_before)(nth=nth)
    try:
        queue.add_to_leader_lock_queue()

        def settled() -> bool:
            words = list(told.words)
            return queue.is_leader() and len(words) % 2 == 1 and words[-1][0] == "elected"

        eventually(settled)
        assert [view.participant.id for view in read_participants(onlooker, zk_root)] == ["a"]
        eventually(lambda: _count(onlooker, zk_root) == 1, what="a latch nobody heard of is removed")
        granted = [epoch for word, epoch in told.words if word == "elected"]
        assert granted == sorted(set(granted)), "each epoch is granted once, and they rise"
    finally:
        queue.close(LONG)
    eventually(lambda: _count(onlooker, zk_root) == 0, what="nothing of it is left")


@pytest.mark.parametrize("nth", range(1, 6))
def test_whichever_reply_is_lost_while_leaving_no_latch_stays_behind(
    connect: Connect,
    proxy: FaultProxy,
    zookeeper: ZooKeeperServer,
    zk_root: str,
    eventually: Eventually,
    nth: int,
) -> None:
    onlooker, queue = connect(zookeeper.hosts), _queue(connect(proxy.hosts), zk_root, "a", Told())
    try:
        queue.add_to_leader_lock_queue()
        eventually(queue.is_leader)
        proxy.cut_after(nth=nth)
        queue.remove_from_leader_lock_queue()

        eventually(lambda: _count(onlooker, zk_root) == 0)
        assert not queue.is_leader()
    finally:
        queue.close(LONG)


def _count(session: ZooKeeperSession, root: str) -> int:
    names: list[str] = session.call(session.client.get_children_async, ElectionPaths(root).queue)
    return len(names)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_kazoo_is_started_again_when_its_connection_thread_died(
    connect: Connect,
    zookeeper: ZooKeeperServer,
    zk_root: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, told = connect(zookeeper.hosts), Told()
    queue = _queue(session, zk_root, "a", told)
    try:
        queue.add_to_leader_lock_queue()
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
        eventually(queue.is_leader, what="it leads again with a new session")
        eventually(lambda: told.words[-1][1] > 1, what="it is told")
    finally:
        queue.close(LONG)
