"""A participant with a credential restricts open nodes below an election's root when it starts."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from leader import (
    AclEnforcement,
    ElectionConfig,
    LeaderLockQueue,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from leader.cli.doctor import examine
from nimbus.localstack.zookeeper import ZooKeeperServer

Eventually = Callable[..., None]
LONG = timedelta(seconds=20)


class Silent:
    """An electable that does nothing."""

    def elected(self, leadership: object) -> None:
        pass

    def revoked(self, leadership: object, reason: str) -> None:
        pass


def test_a_participant_with_a_credential_closes_what_was_left_open(
    zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    stranger = KazooClient(hosts=zookeeper.hosts)
    stranger.start(timeout=60)
    stranger.create(f"{zk_root}/left/open", b"", makepath=True, acl=OPEN_ACL_UNSAFE)
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts, auth=("digest", "nimbus:secret")))
    session.start(LONG)
    queue = LeaderLockQueue(
        session=session,
        config=ElectionConfig(root=zk_root),
        participant=Participant("a", "127.0.0.1", 1, uuid.uuid4().hex),
        guard=lambda: Verdict(True),
        electable=Silent(),
    )
    try:
        queue.add_to_leader_lock_queue()
        eventually(queue.is_leader)

        def closed() -> bool:
            try:
                stranger.get(f"{zk_root}/left/open")
            except NoAuthError:
                return True
            return False

        eventually(closed, what="the node that was open is closed")
        eventually(lambda: all(one.ok for one in examine(session, zk_root) if one.check == "access lists"))
    finally:
        queue.close(LONG)
        session.close(LONG)
        stranger.stop()
        stranger.close()


def test_a_participant_that_shall_not_mend_leaves_nodes_as_they_are(
    zookeeper: ZooKeeperServer, zk_root: str, eventually: Eventually
) -> None:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=zookeeper.hosts, auth=("digest", "nimbus:secret")))
    session.start(LONG)
    session.call(session.client.create_async, zk_root, b"", acl=OPEN_ACL_UNSAFE)
    queue = LeaderLockQueue(
        session=session,
        config=ElectionConfig(root=zk_root, mend_access_lists=False),
        participant=Participant("a", "127.0.0.1", 1, uuid.uuid4().hex),
        guard=lambda: Verdict(True),
        electable=Silent(),
    )
    try:
        queue.add_to_leader_lock_queue()
        eventually(queue.is_leader)
        queue.close(LONG)

        assert [one.path for one in AclEnforcement(session, zk_root).check()] == [zk_root]
    finally:
        queue.close(LONG)
        session.close(LONG)
