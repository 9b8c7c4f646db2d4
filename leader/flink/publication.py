"""The node in which one component's leader information is published. Thread `leader-service` alone.

Every write is one transaction with a check of the epoch and of the leader's latch, so a deposed leader
publishes nothing. The node is watched and corrected when somebody else changes it. A write that fails is
tried again while the term lasts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import structlog

from leader.clock import Clock, jittered
from leader.errors import LeaderError, PublicationError
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.terms import ComponentInfo, FencingToken, encode_component
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)

_RETRY_FIRST = timedelta(milliseconds=100)
_RETRY_MAX = timedelta(seconds=2)


class Publication:
    """See the module.

    Args:
        component: Its name, for logs.
        path: Of the node.
        session: The elector's. Without one nothing is published, as with an elector that needs no ZooKeeper.
        post: Puts a job into the inbox of the thread `leader-service`.
        on_error: Called with the first failure of each row of failures.
        clock: Times the retries.
    """

    def __init__(
        self,
        component: str,
        path: str,
        session: ZooKeeperSession | None,
        *,
        post: Callable[[Callable[[], None]], object],
        on_error: Callable[[LeaderError], None],
        clock: Clock,
    ) -> None:
        self._component, self._session, self._post = component, session, post
        self._on_error, self._clock = on_error, clock
        self._node = EphemeralNode(path)
        self._executor = None if session is None else SessionExecutor(session, self._on_watch)
        self._published: tuple[bytes, FencingToken] | None = None
        self._failures = 0
        self.retry_at: timedelta | None = None
        """When `settle` is due again; None if the node is as it should be."""

    def publish(self, info: ComponentInfo, token: FencingToken) -> None:
        """Write the node, and keep it so until `withdraw`. Once the term is over, nothing is written."""
        self._published, self._failures = (encode_component(info), token), 0
        self.settle()

    def withdraw(self) -> None:
        """Delete the node, if it is ours."""
        self._published = None
        self.settle()

    def settle(self) -> None:
        """Compare the node with what it should be, and correct it. If that fails, set `retry_at`."""
        self.retry_at = None
        if self._session is None or self._executor is None:
            return
        session_id = self._session.session_id
        try:
            if self._published is not None:
                data, token = self._published
                steps = self._node.keep(data, session_id or 0, token.checks(), watch=True)
                if self._executor.run(steps) is not None:  # the term is over; the elector will revoke it
                    _log.info("publication_refused", component=self._component, epoch=token.epoch)
            elif self._node.may_be_ours:
                self._executor.run(self._node.withdraw(session_id))
        except LeaderError as exc:
            self._failed(exc)
        except Exception as exc:  # noqa: BLE001 - whatever it was, it is logged, told and tried again
            _log.exception("publication_failed_unforeseen", component=self._component)
            self._failed(PublicationError(component=self._component, cause=exc))
        else:
            self._failures = 0

    def _failed(self, error: LeaderError) -> None:
        self._failures += 1
        pause = jittered(_RETRY_FIRST, _RETRY_MAX, self._failures, random.uniform)
        self.retry_at = self._clock() + pause
        _log.warning("publication_failed", component=self._component, error=str(error))
        if self._failures == 1 and self._published is not None:
            self._on_error(error)

    def _on_watch(self, path: str, gone: bool) -> None:  # noqa: ARG002 - the executor's
        """Kazoo's connection thread: only enqueue. Without a path, it is the connection that broke."""
        if path:
            self._post(self.settle)
