"""An ensemble without its data: sessions reconnect, and no participant leads in an old epoch."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from datetime import timedelta

from kazoo.client import KazooClient

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
from leader.protocol.terms import EpochRecord, encode_epoch
from nimbus.localstack.zookeeper import ZooKeeperServer

Eventually = Callable[..., None]
LONG = timedelta(seconds=20)


class Told:
    """An electable that records the epochs in which it was elected."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def elected(self, leadership: Leadership) -> None:
        self.epochs.append(leadership.epoch)

    def revoked(self, leadership: Leadership, reason: str) -> None:
        pass


def test_after_a_wipe_a_living_participant_refuses_the_past_and_leads_again_once_the_epoch_is_raised(
    own_zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    session = ZooKeeperSession(
        ZooKeeperConfig(hosts=own_zookeeper.hosts, session_timeout=timedelta(seconds=2))
    )
    session.start(LONG)
    for number in range(30):  # so that the old ensemble's zxid is higher than the new one's
        session.call(session.client.create_async, f"/noise-{number}")
    told = Told()
    queue = LeaderLockQueue(
        session=session,
        config=ElectionConfig(
            root="/wiped",
            step_down_margin=timedelta(milliseconds=400),
            requeue_backoff_min=timedelta(milliseconds=100),
            requeue_backoff_max=timedelta(milliseconds=500),
        ),
        participant=Participant("a", "127.0.0.1", 1, uuid.uuid4().hex),
        guard=lambda: Verdict(True),
        electable=told,
    )
    operator = KazooClient(hosts=own_zookeeper.hosts)
    try:
        queue.add_to_leader_lock_queue()
        eventually(queue.is_leader)
        old = session.session_id

        own_zookeeper.kill()
        for folder in own_zookeeper.data_dir.glob("version-*"):
            shutil.rmtree(folder)
        for folder in own_zookeeper.data_dir.glob("*/version-*"):
            shutil.rmtree(folder)
        own_zookeeper.start()

        eventually(
            lambda: session.is_connected and session.session_id != old, within_s=40, what="a new session"
        )
        eventually(
            lambda: "wiped" in (queue.status().why()), within_s=20, what="it says why it does not lead"
        )
        assert not queue.is_leader()
        assert told.epochs == [1]

        operator.start(timeout=20)
        operator.set(ElectionPaths("/wiped").epoch, encode_epoch(EpochRecord(7)))
        eventually(queue.is_leader, within_s=20, what="it leads above what it has seen")
        eventually(lambda: told.epochs == [1, 8])
    finally:
        operator.stop()
        operator.close()
        queue.close(LONG)
        session.close(LONG)
