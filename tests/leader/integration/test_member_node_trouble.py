"""A participant whose member node could not be written still joins the queue when ZooKeeper answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta

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
)
from leader.protocol.participant import MemberNode, Rank, encode_member
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy, Op

LONG = timedelta(seconds=60)


class Quiet:
    def elected(self, leadership: Leadership) -> None: ...

    def revoked(self, leadership: Leadership, reason: str) -> None: ...


@pytest.fixture
def queue(proxy: FaultProxy, zk_root: str) -> Iterator[LeaderLockQueue]:
    """The queue of participant `a`, which retries soon after a refusal."""
    session = ZooKeeperSession(ZooKeeperConfig(hosts=proxy.hosts, session_timeout=timedelta(seconds=3)))
    session.start(LONG)
    made = LeaderLockQueue(
        session=session,
        config=ElectionConfig(
            root=zk_root,
            requeue_backoff_min=timedelta(milliseconds=50),
            requeue_backoff_max=timedelta(milliseconds=100),
        ),
        participant=Participant("a", "127.0.0.1", 1, uuid.uuid4().hex),
        guard=lambda: Verdict(True),
        electable=Quiet(),
    )
    yield made
    proxy.heal()
    made.close(LONG)
    session.close(LONG)


@pytest.fixture
def earlier(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperSession]:
    """The session of an earlier start of `a`, which is still live."""
    made = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts))
    made.start(LONG)
    yield made
    made.close(LONG)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_participant_joins_in_the_end_when_the_connection_broke_as_it_wrote_its_member_node(
    queue: LeaderLockQueue,
    earlier: ZooKeeperSession,
    proxy: FaultProxy,
    zk_root: str,
    eventually: Callable[..., None],
    after: bool,
) -> None:
    member = ElectionPaths(zk_root).member("a")
    old = encode_member(
        MemberNode(Participant("a", "127.0.0.1", 1, "earlier"), earlier.session_id or 0, Rank(id="a"))
    )
    earlier.call(earlier.client.create_async, member, old, ephemeral=True, makepath=True)
    # The first write belongs to the connection, the second to the join: for both, the name is in use. The
    # third belongs to the next try to join.
    cut = proxy.cut_after if after else proxy.cut_before
    trap = cut(Op.MULTI, nth=3, when=lambda request: request.mentions(member))

    queue.add_to_leader_lock_queue()
    assert trap.wait(LONG)
    earlier.call(earlier.client.delete_async, member)

    eventually(queue.is_leader, within_s=60, what="it joins")
