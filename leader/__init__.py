"""Guarded leader election on ZooKeeper.

What is **not** guaranteed: that a process which has just read `is_leader() == True` still leads when it acts.
No election can promise that. What is: two participants never both hold a confirmed leadership as long
as clocks run at about the same speed, and, without any assumption about clocks, a `fenced_transaction` of a
deposed leader is refused.

    session = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:2181"))
    session.start(timeout=timedelta(seconds=15))
    queue = LeaderLockQueue(session=session, config=ElectionConfig(root="/nimbus"), ...)
    queue.start()
    ...
    queue.close(timeout=timedelta(seconds=5))
    session.close(timeout=timedelta(seconds=5))
"""

from leader.clock import Clock, boottime
from leader.config import ElectionConfig
from leader.errors import (
    ElectionConfigError,
    ElectionStateError,
    EpochWentBackwardsError,
    FencedOutError,
    LeaderError,
    RecordError,
    TransactionRefusedError,
    ZooKeeperAuthError,
    ZooKeeperUnavailableError,
    ZooKeeperUnreachableError,
)
from leader.fencing import FencingToken, fenced_transaction
from leader.guard import Guard, Verdict
from leader.notifier import Electable
from leader.observers import read_leader, read_participants
from leader.protocol.paths import ElectionPaths
from leader.protocol.records import LeaderInfo, Leadership, Participant, ParticipantView
from leader.queue import LeaderLockQueue
from leader.status import ElectionStatus, Phase
from leader.zookeeper.session import SessionState, ZooKeeperConfig, ZooKeeperSession

__all__ = [
    "Clock",
    "Electable",
    "ElectionConfig",
    "ElectionConfigError",
    "ElectionPaths",
    "ElectionStateError",
    "ElectionStatus",
    "EpochWentBackwardsError",
    "FencedOutError",
    "FencingToken",
    "Guard",
    "LeaderError",
    "LeaderInfo",
    "LeaderLockQueue",
    "Leadership",
    "Participant",
    "ParticipantView",
    "Phase",
    "RecordError",
    "SessionState",
    "TransactionRefusedError",
    "Verdict",
    "ZooKeeperAuthError",
    "ZooKeeperConfig",
    "ZooKeeperSession",
    "ZooKeeperUnavailableError",
    "ZooKeeperUnreachableError",
    "boottime",
    "fenced_transaction",
    "read_leader",
    "read_participants",
]
