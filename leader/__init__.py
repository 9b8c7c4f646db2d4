"""Guarded leader election on ZooKeeper.

**Not** guaranteed: that a process which has just read `is_leader() == True` still leads when it acts. No
election can guarantee that. Guaranteed:

- `is_leader()` is true for at most one participant at a time, if clocks run at about the same speed and no
  leader is deposed by hand while it is cut off (docs/election.md).
- Without any assumption about clocks: a `fenced_transaction` of a deposed leader is refused.

    session = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:2181"))
    session.start(timeout=timedelta(seconds=15))
    queue = LeaderLockQueue(session=session, config=ElectionConfig(root="/nimbus"), ...)
    queue.add_to_leader_lock_queue()
    ...
    queue.close(timeout=timedelta(seconds=5))
    session.close(timeout=timedelta(seconds=5))
"""

from leader.clock import Clock, boottime
from leader.config import ElectionConfig
from leader.core.latch.machine import SuspendedPolicy
from leader.elector import Electable, ElectionStatus, Elector, Guard, Phase, Verdict
from leader.errors import (
    AclError,
    ElectionConfigError,
    ElectionStateError,
    EpochWentBackwardsError,
    FencedOutError,
    ForkedError,
    LeaderError,
    ParticipantIdInUseError,
    PublicationError,
    RecordError,
    TransactionRefusedError,
    ZooKeeperAuthError,
    ZooKeeperTlsError,
    ZooKeeperUnavailableError,
    ZooKeeperUnreachableError,
)
from leader.factory import ElectorSetup, make_elector
from leader.flink.component import LeaderContender
from leader.flink.retrieval import LeaderRetrievalListener, LeaderRetrievalService
from leader.flink.service import LeaderElection, LeaderElectionService
from leader.flink.view import LeaderView, ViewState
from leader.journal import Entry, Granted, Journal, Judged, LogJournal, Move, Revoked
from leader.latch import CloseMode, LatchConfig, LatchListener, LatchState, LeaderLatch
from leader.local.memory import MemoryElection, MemoryElector
from leader.local.single import SingleElector
from leader.protocol.control import StepDownWish, asked_to_step_down
from leader.protocol.participant import MemberNode, Participant, Rank
from leader.protocol.paths import ElectionPaths
from leader.protocol.terms import EpochRecord, FencingToken, LeaderInfo, Leadership, schema_raised
from leader.protocol.view import ParticipantView, next_in_line
from leader.queue import LeaderLockQueue
from leader.sentinel.sentinel import CrashSentinel
from leader.zookeeper.acl import AclDifference, AclEnforcement
from leader.zookeeper.config import Access, Permission, TlsConfig
from leader.zookeeper.fencing import fenced_transaction
from leader.zookeeper.operations import (
    NobodyLeadsError,
    NoSuchParticipantError,
    read_epoch,
    read_leader,
    read_participants,
    request_switchover,
)
from leader.zookeeper.session import SessionState, ZooKeeperConfig, ZooKeeperSession

__all__ = [
    "Access",
    "AclDifference",
    "AclEnforcement",
    "AclError",
    "Clock",
    "CloseMode",
    "CrashSentinel",
    "Electable",
    "ElectionConfig",
    "ElectionConfigError",
    "ElectionPaths",
    "ElectionStateError",
    "ElectionStatus",
    "Elector",
    "ElectorSetup",
    "Entry",
    "EpochRecord",
    "EpochWentBackwardsError",
    "FencedOutError",
    "FencingToken",
    "ForkedError",
    "Granted",
    "Guard",
    "Journal",
    "Judged",
    "LatchConfig",
    "LatchListener",
    "LatchState",
    "LeaderContender",
    "LeaderElection",
    "LeaderElectionService",
    "LeaderError",
    "LeaderInfo",
    "LeaderLatch",
    "LeaderLockQueue",
    "LeaderRetrievalListener",
    "LeaderRetrievalService",
    "LeaderView",
    "Leadership",
    "LogJournal",
    "MemberNode",
    "MemoryElection",
    "MemoryElector",
    "Move",
    "NoSuchParticipantError",
    "NobodyLeadsError",
    "Participant",
    "ParticipantIdInUseError",
    "ParticipantView",
    "Permission",
    "Phase",
    "PublicationError",
    "Rank",
    "RecordError",
    "Revoked",
    "SessionState",
    "SingleElector",
    "StepDownWish",
    "SuspendedPolicy",
    "TlsConfig",
    "TransactionRefusedError",
    "Verdict",
    "ViewState",
    "ZooKeeperAuthError",
    "ZooKeeperConfig",
    "ZooKeeperSession",
    "ZooKeeperTlsError",
    "ZooKeeperUnavailableError",
    "ZooKeeperUnreachableError",
    "asked_to_step_down",
    "boottime",
    "fenced_transaction",
    "make_elector",
    "next_in_line",
    "read_epoch",
    "read_leader",
    "read_participants",
    "request_switchover",
    "schema_raised",
]
