"""The only module of the election's chaos tests that uses `leader`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from kazoo.client import TransactionRequest
from kazoo.exceptions import NodeExistsError, NoNodeError

from leader import (
    ElectionConfig,
    FencedOutError,
    FencingToken,
    LeaderLockQueue,
    Leadership,
    Participant,
    TransactionRefusedError,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    ZooKeeperUnavailableError,
    ZooKeeperUnreachableError,
    fenced_transaction,
)

_START_TRY = timedelta(seconds=10)

Told = Callable[[str, int, str], None]
"""Gets `elected` or `revoked`, the epoch, and the reason."""


class OutcomeUnknownError(Exception):
    """There was no answer, so the write may have happened."""


class Seat:
    """One participant in one election, with a node that only the leader may write.

    Args:
        hosts: Addresses of ZooKeeper.
        root: Path of the election.
        name: The participant's id.
        boot: New for each process.
        session: Timeout of the session.
        told: Called on the thread that calls the electable.
    """

    def __init__(
        self, *, hosts: str, root: str, name: str, boot: str, session: timedelta, told: Told
    ) -> None:
        self._zookeeper = ZooKeeperConfig(
            hosts=hosts, session_timeout=session, connect_timeout=session / 4, call_timeout=session
        )
        self._election = ElectionConfig(
            root=root, step_down_margin=session / 10, requeue_backoff_min=timedelta(milliseconds=200)
        )
        self._participant = Participant(name, "127.0.0.1", 1, boot)
        self._told = told
        self._path = f"{root}/chaos"

    def open(self, stopping: threading.Event) -> bool:
        """Connect, without a time limit, and join the queue. Returns False if it must stop before that."""
        while not stopping.is_set():
            self._session = ZooKeeperSession(self._zookeeper)
            try:
                self._session.start(_START_TRY)
            except ZooKeeperUnreachableError:
                continue  # it was closed
            self._queue = LeaderLockQueue(
                session=self._session,
                config=self._election,
                participant=self._participant,
                guard=lambda: Verdict(True),
                electable=self,
            )
            self._queue.add_to_leader_lock_queue()
            return True
        return False

    def elected(self, leadership: Leadership) -> None:
        """See `leader.Electable`."""
        self._told("elected", leadership.epoch, "")

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """See `leader.Electable`."""
        self._told("revoked", leadership.epoch, reason)

    def is_leader(self) -> bool:
        """True while this participant leads."""
        return self._queue.is_leader()

    def token(self) -> FencingToken | None:
        """The token of the current leadership, if this participant leads."""
        leadership = self._queue.leadership()
        return None if leadership is None else leadership.token

    def write(self, token: FencingToken, data: bytes) -> int | None:
        """Write with a token, which may be old.

        Returns:
            The transaction's id; None if the write was refused because the token is void.

        Raises:
            OutcomeUnknownError: there was no answer.
        """

        def build(transaction: TransactionRequest) -> None:
            transaction.set_data(self._path, data)

        try:
            (stat,) = fenced_transaction(self._session, token, build)
        except FencedOutError:
            return None
        except ZooKeeperUnavailableError as exc:
            raise OutcomeUnknownError from exc
        except TransactionRefusedError as exc:
            if not isinstance(exc.cause, NoNodeError):
                raise
            self._make_node()
            raise OutcomeUnknownError from exc
        written: int = stat.mzxid
        return written

    def _make_node(self) -> None:
        try:
            self._session.call(self._session.client.create_async, self._path)
        except (NodeExistsError, NoNodeError, ZooKeeperUnavailableError):
            return  # the next write shows it

    def close(self, limit: timedelta) -> None:
        """Leave the queue and end the session."""
        self._queue.close(limit)
        self._session.close(limit)
