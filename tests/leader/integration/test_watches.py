"""Watches of closed latches, electors and retrievals: a session that lives long does not keep them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from leader import (
    ElectionConfig,
    LatchConfig,
    LeaderLatch,
    LeaderLockQueue,
    LeaderRetrievalService,
    Leadership,
    Participant,
    Verdict,
    ViewState,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from nimbus.localstack.zookeeper import ZooKeeperServer

Eventually = Callable[..., None]
Cycle = Callable[[ZooKeeperSession, str, Eventually], None]
LONG = timedelta(seconds=20)


class Silent:
    """An electable that does nothing."""

    def elected(self, leadership: Leadership) -> None:
        pass

    def revoked(self, leadership: Leadership, reason: str) -> None:
        pass


def _queue(session: ZooKeeperSession, root: str) -> LeaderLockQueue:
    return LeaderLockQueue(
        session=session,
        config=ElectionConfig(root=root),
        participant=Participant(uuid.uuid4().hex),
        guard=lambda: Verdict(True),
        electable=Silent(),
    )


def _latch_cycle(session: ZooKeeperSession, root: str, eventually: Eventually) -> None:
    latch = LeaderLatch(session, LatchConfig(path=f"{root}/leader-lock"))
    latch.start()
    eventually(lambda: latch._latch.place is not None)
    latch.close(timeout=LONG)


def _queue_cycle(session: ZooKeeperSession, root: str, eventually: Eventually) -> None:
    queue = _queue(session, root)
    queue.add_to_leader_lock_queue()
    eventually(lambda: queue.status().position == 1)
    queue.close(LONG)


def _retrieval_cycle(session: ZooKeeperSession, root: str, eventually: Eventually) -> None:
    retrieval = LeaderRetrievalService(session, root)
    retrieval.start()
    eventually(lambda: retrieval.view().state is ViewState.CURRENT)
    retrieval.stop(LONG)


@pytest.fixture
def session(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    made = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    made.start(LONG)
    yield made
    made.close(LONG)


@pytest.mark.parametrize("cycle", [_latch_cycle, _queue_cycle, _retrieval_cycle])
def test_what_is_closed_leaves_no_watcher_in_its_session(
    cycle: Cycle, session: ZooKeeperSession, zk_root: str, eventually: Eventually
) -> None:
    leader = _queue(session, zk_root)
    leader.add_to_leader_lock_queue()
    try:
        eventually(lambda: leader.get_leader() is not None)
        cycle(session, zk_root, eventually)
        before = _watchers(session)

        for _ in range(5):
            cycle(session, zk_root, eventually)

        assert leader.is_leader()
        assert _watchers(session) <= before
    finally:
        leader.close(LONG)


def _watchers(session: ZooKeeperSession) -> int:
    return sum(map(len, session.client._data_watchers.values()))
