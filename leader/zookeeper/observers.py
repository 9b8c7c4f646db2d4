"""Looking at an election from outside, without queueing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from leader.errors import LeaderError
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Steps
from leader.protocol.terms import EpochRecord, LeaderInfo
from leader.protocol.view import ParticipantView, epoch_steps, latches_steps, leader_steps, participants_steps
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession

T = TypeVar("T")


def read_leader(session: ZooKeeperSession, root: str) -> LeaderInfo | None:
    """Read the confirmed leader; None while there is none.

    It may be over by the time you read it. Safe to show, not to decide with.

    Raises:
        ZooKeeperUnavailableError: No answer.
        RecordError: The node holds something else.
    """
    return _read(session, lambda: leader_steps(ElectionPaths(root)))


def read_epoch(session: ZooKeeperSession, root: str) -> EpochRecord | None:
    """Read the newest epoch, and the schema of what the election protects; None in a new election.

    Raises:
        ZooKeeperUnavailableError: No answer.
        RecordError: The node holds something else.
    """
    return _read(session, lambda: epoch_steps(ElectionPaths(root)))


def read_participants(session: ZooKeeperSession, root: str) -> list[ParticipantView]:
    """Read the queue, oldest first. Who leaves while we read is left out.

    Raises:
        ZooKeeperUnavailableError: No answer.
    """
    return _read(session, lambda: participants_steps(ElectionPaths(root)))


def read_latches(session: ZooKeeperSession, queue: str) -> list[ParticipantView]:
    """Read the queue of bare latches at `queue`, ours or Curator's, oldest first; the first is the leader.

    Raises:
        ZooKeeperUnavailableError: No answer.
    """
    return _read(session, lambda: latches_steps(queue))


def _read(session: ZooKeeperSession, steps: Callable[[], Steps[T]]) -> T:
    """Reads may be repeated; three tries, each request with its own limit."""
    retrying = Retrying(
        retry=retry_if_exception(lambda exc: isinstance(exc, LeaderError) and exc.retryable),
        wait=wait_random_exponential(multiplier=0.1, max=1.0),
        stop=stop_after_attempt(3),
        reraise=True,
    )
    executor = SessionExecutor(session)
    return retrying(lambda: executor.run(steps()))
