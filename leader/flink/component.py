"""One component of an election service: its contender, and the node that says where it can be reached.

Every write of the node is one transaction with a check of the epoch and of the leader's latch, so a deposed
leader publishes nothing. The node is watched and corrected when somebody else changes it. A write that fails
is tried again while the term lasts.

The thread `leader-service` calls all of it, with no lock held. The term may end while a contender is called,
so it is asked for again after each call.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import structlog

from leader.clock import Clock, jittered
from leader.errors import LeaderError, PublicationError, in_words
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.terms import ComponentInfo, FencingToken, Leadership, encode_component
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)

_RETRY_FIRST = timedelta(milliseconds=100)
_RETRY_MAX = timedelta(seconds=2)


class LeaderContender(Protocol):
    """Wants to lead as one component. Called on the thread `leader-service`, one call at a time.

    All components of a service share this thread: while one contender blocks it, the others wait. A contender
    that starts something long does so on a thread of its own, and asks `has_leadership` where it matters.
    The service holds no lock during a call.
    """

    @property
    def description(self) -> str:
        """Name of the contender, for logs."""
        ...

    def grant(self, session: UUID) -> None:
        """Lead under this session id; then confirm it with an address.

        If this raises, the participant abdicates, since all components share one leadership.
        """
        ...

    def revoke(self) -> None:
        """Stop what the last grant began. The leadership is over already; return soon."""
        ...

    def handle_error(self, error: LeaderError) -> None:
        """The leader information could not be written. It is tried again; only the first failure is told."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One leadership, and the session id issued for it."""

    leadership: Leadership
    session: UUID


class Component:
    """See the module.

    Args:
        name: Of the component, for logs.
        path: Of the node.
        session: The elector's. Without one nothing is published, as with an elector that needs no ZooKeeper.
        post: Puts a job into the inbox of the thread `leader-service`.
        present: The present term.
        abdicate: Ends it, for this reason.
        clock: Times the retries.
    """

    def __init__(
        self,
        name: str,
        path: str,
        session: ZooKeeperSession | None,
        *,
        post: Callable[[Callable[[], None]], object],
        present: Callable[[], Term | None],
        abdicate: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.name, self._session, self._post = name, session, post
        self._present, self._abdicate, self._clock = present, abdicate, clock
        self.contender: LeaderContender | None = None
        """Who is registered. Changed under the service's lock; any thread may read it."""
        self._granted: tuple[UUID, LeaderContender] | None = None  # not revoked yet
        self._node = EphemeralNode(path)
        self._executor = None if session is None else SessionExecutor(session, self._on_watch)
        self._published: tuple[bytes, FencingToken] | None = None
        self._failures = 0
        self.retry_at: timedelta | None = None
        """When `settle` is due again; None if the node is as it should be."""

    # --- the contender --------------------------------------------------------------------------------

    def grant(self, term: Term) -> None:
        """Tell the contender that it leads, if there is one and `term` is the present one."""
        contender = self.contender
        if self._present() is not term or contender is None or self._granted is not None:
            return
        self._granted = (term.session, contender)
        try:
            contender.grant(term.session)
        except BaseException as exc:  # noqa: BLE001 - foreign code
            _log.exception("grant_raised", component=self.name, contender=contender.description)
            if self._present() is term:
                self._abdicate(f"component {self.name} cannot lead: {in_words(exc)}")

    def revoke(self) -> None:
        """Tell the contender that it leads no more, if it was told that it does."""
        granted, self._granted = self._granted, None
        if granted is None:
            return
        _, contender = granted
        try:
            contender.revoke()
        except BaseException:  # noqa: BLE001 - foreign code: the leadership is over whatever it raises
            _log.exception("revoke_raised", component=self.name, contender=contender.description)

    def leave(self, contender: LeaderContender) -> None:
        """Revoke `contender`, which is not registered any more, and withdraw what it published."""
        if self._granted is not None and self._granted[1] is contender:
            self.revoke()
            self.withdraw()

    # --- the node -------------------------------------------------------------------------------------

    def confirm(self, session: UUID, address: str) -> None:
        """Publish the address, and keep the node so until `withdraw`, if `session` is that of the term."""
        term, granted = self._present(), self._granted
        if term is None or granted is None or not term.session == granted[0] == session:
            _log.info("stale_confirmation_ignored", component=self.name, session=str(session))
            return
        leadership = term.leadership
        info = ComponentInfo(leadership.participant.id, leadership.epoch, session, address)
        self._published, self._failures = (encode_component(info), leadership.token), 0
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
                    _log.info("publication_refused", component=self.name, epoch=token.epoch)
            elif self._node.may_be_ours:
                self._executor.run(self._node.withdraw(session_id))
        except LeaderError as exc:
            self._failed(exc)
        except Exception as exc:  # noqa: BLE001 - whatever it was, it is logged, told and tried again
            _log.exception("publication_failed_unforeseen", component=self.name)
            self._failed(PublicationError(component=self.name, cause=exc))
        else:
            self._failures = 0

    def _failed(self, error: LeaderError) -> None:
        self._failures += 1
        pause = jittered(_RETRY_FIRST, _RETRY_MAX, self._failures, random.uniform)
        self.retry_at = self._clock() + pause
        _log.warning("publication_failed", component=self.name, error=str(error))
        if self._failures > 1 or self._published is None or self._granted is None or self._present() is None:
            return
        _, contender = self._granted
        try:
            contender.handle_error(error)
        except BaseException:  # noqa: BLE001 - foreign code
            _log.exception("handle_error_raised", component=self.name, contender=contender.description)

    def _on_watch(self, path: str, gone: bool) -> None:  # noqa: ARG002 - the executor's
        """Kazoo's connection thread: only enqueue. Without a path, it is the connection that broke."""
        if path:
            self._post(self.settle)
