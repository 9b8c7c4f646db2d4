"""Guarded leader election on ZooKeeper.

What is **not** guaranteed: that a process which has just read `is_leader() == True` still leads when it acts.
No election can promise that. What is: two participants never both hold a confirmed leadership as long
as clocks run at about the same speed, and, without any assumption about clocks, a `fenced_transaction` of a
deposed leader is refused.

    session = ZooKeeperSession(ZooKeeperConfig(hosts="127.0.0.1:2181"))
    session.start(timeout=timedelta(seconds=15))
    queue = LeaderLockQueue(session=session, config=ElectionConfig(root="/nimbus"), ...)
    queue.add_to_leader_lock_queue()
    ...
    queue.close(timeout=timedelta(seconds=5))
    session.close(timeout=timedelta(seconds=5))
"""

from leader.clock import Clock, boottime
from leader.config import ElectionConfig, GatePolicy
from leader.contender import LeaderContender
from leader.elector import Elector
from leader.electors.factory import ElectorSetup, make_elector
from leader.electors.memory import MemoryElection, MemoryElector
from leader.electors.single import SingleElector
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
from leader.fencing import FencingToken, fenced_transaction
from leader.guard import Guard, Verdict, all_of, limited, named
from leader.journal import Journal, LogJournal, Move
from leader.latch.machine import SuspendedPolicy
from leader.leader_latch import CloseMode, LatchConfig, LatchListener, LatchState, LeaderLatch
from leader.leader_view import LeaderView, ViewState
from leader.notifier import Electable
from leader.observers import read_epoch, read_latches, read_leader, read_participants
from leader.protocol.card import Card, Rank
from leader.protocol.component import ComponentInfo
from leader.protocol.participant import Participant
from leader.protocol.paths import ElectionPaths
from leader.protocol.terms import EpochRecord, LeaderInfo, Leadership, schema_raised
from leader.protocol.view import ParticipantView
from leader.queue import LeaderLockQueue
from leader.retrieval import LeaderObserver, LeaderRetrievalService
from leader.sentinel.sentinel import CrashSentinel
from leader.service import LeaderElection, LeaderElectionService
from leader.status import ElectionStatus, Phase
from leader.zookeeper.access import Access, Permission
from leader.zookeeper.acl import AclDifference, AclEnforcement
from leader.zookeeper.session import SessionState, ZooKeeperConfig, ZooKeeperSession
from leader.zookeeper.tls import TlsConfig

__all__ = [
    "Access",
    "AclDifference",
    "AclEnforcement",
    "AclError",
    "Card",
    "Clock",
    "CloseMode",
    "ComponentInfo",
    "CrashSentinel",
    "Electable",
    "ElectionConfig",
    "ElectionConfigError",
    "ElectionPaths",
    "ElectionStateError",
    "ElectionStatus",
    "Elector",
    "ElectorSetup",
    "EpochRecord",
    "EpochWentBackwardsError",
    "FencedOutError",
    "FencingToken",
    "ForkedError",
    "GatePolicy",
    "Guard",
    "Journal",
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
    "LeaderObserver",
    "LeaderRetrievalService",
    "LeaderView",
    "Leadership",
    "LogJournal",
    "MemoryElection",
    "MemoryElector",
    "Move",
    "Participant",
    "ParticipantIdInUseError",
    "ParticipantView",
    "Permission",
    "Phase",
    "PublicationError",
    "Rank",
    "RecordError",
    "SessionState",
    "SingleElector",
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
    "all_of",
    "boottime",
    "fenced_transaction",
    "limited",
    "make_elector",
    "named",
    "read_epoch",
    "read_latches",
    "read_leader",
    "read_participants",
    "schema_raised",
]
