"""One component of an election service: its contender, and the node that publishes its address.

Every write of the node is one transaction with a check of the epoch and of the leader's latch, so a deposed
leader publishes nothing. The component watches the node and corrects it when another client changes it. A
write that fails is tried again while the term lasts.

Only the thread `leader-service` calls the methods, and it holds no lock then. The term may end during a call
of a contender, so the present term is read again after the call.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import structlog

from leader.clock import RETRY_FIRST, RETRY_MAX, Clock, jittered
from leader.errors import LeaderError, PublicationError, in_words
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.terms import ComponentInfo, FencingToken, Leadership, encode_component
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)


class LeaderContender(Protocol):
    """Leads one component. Called on the thread `leader-service`, one call at a time.

    All components of a service share this thread: while one contender blocks it, the others wait. Long work
    needs a thread of its own, which must check `has_leadership` before each act that needs leadership. The
    service holds no lock during a call.
    """

    @property
    def description(self) -> str:
        """Name of the contender, for error messages."""

    def grant(self, session: UUID) -> None:
        """Start to lead under this session id; then confirm it with an address.

        If this raises, the participant abdicates, since all components share one leadership.
        """

    def revoke(self) -> None:
        """Stop the work of the last grant. The leadership is already over; return soon."""

    def handle_error(self, error: LeaderError) -> None:
        """Receive the first of several failures in a row to write the leader information.

        The write is tried again while the term lasts. There is no call if the term is over already.
        """


@dataclass(frozen=True, slots=True, eq=False)
class FlinkTerm:
    """One leadership, and the session id issued for it."""

    leadership: Leadership
    session: UUID


class Component:
    """See the module.

    Without a `session`, for an elector without ZooKeeper, nothing is published. `post` puts a job into the
    inbox of the thread `leader-service`; `present` returns the present term.
    """

    def __init__(
        self,
        name: str,
        path: str,
        session: ZooKeeperSession | None,
        *,
        post: Callable[[Callable[[], None]], object],
        present: Callable[[], FlinkTerm | None],
        abdicate: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.name, self._session, self._post = name, session, post
        self._present, self._abdicate, self._clock = present, abdicate, clock
        self.contender: LeaderContender | None = None
        """The registered contender. Changed under the service's lock; any thread may read it."""
        self._granted: tuple[UUID, LeaderContender] | None = None  # not revoked yet
        self._node = EphemeralNode(path)
        self._executor = None if session is None else SessionExecutor(session, self._on_watch)
        self._published: tuple[bytes, FencingToken] | None = None
        self._failures = 0
        self.retry_at: timedelta | None = None
        """When `settle` must run again; None if no retry is due."""

    # --- the contender --------------------------------------------------------------------------------

    def grant(self, term: FlinkTerm) -> None:
        """Call the contender's `grant`, if there is a contender and `term` is the present term."""
        contender = self.contender
        if self._present() is not term or contender is None or self._granted is not None:
            return
        self._granted = (term.session, contender)
        try:
            contender.grant(term.session)
        except BaseException as exc:  # noqa: BLE001 - foreign code
            _log.exception("grant_raised", component=self.name)
            if self._present() is term:
                self._abdicate(f"component {self.name} cannot lead: {in_words(exc)}")

    def revoke(self) -> None:
        """Call the contender's `revoke`, if its `grant` was called."""
        granted, self._granted = self._granted, None
        if granted is None:
            return
        _, contender = granted
        try:
            contender.revoke()
        except BaseException:  # noqa: BLE001 - foreign code: the leadership is over whatever it raises
            _log.exception("revoke_raised", component=self.name)

    def leave(self, contender: LeaderContender) -> None:
        """Revoke `contender`, which is no longer registered, and withdraw what it published."""
        if self._granted is not None and self._granted[1] is contender:
            self.revoke()
            self.withdraw()

    # --- the node -------------------------------------------------------------------------------------

    def confirm(self, session: UUID, address: str) -> None:
        """Publish the address and keep the node correct until `withdraw`, if `session` is the term's."""
        term, granted = self._present(), self._granted
        if term is None or granted is None or not term.session == granted[0] == session:
            _log.info("stale_confirmation_ignored", component=self.name, session=str(session))
            return
        leadership = term.leadership
        info = ComponentInfo(leadership.participant.id, leadership.epoch, session, address)
        self._published, self._failures = (encode_component(info), leadership.token), 0
        self.settle()

    def withdraw(self) -> None:
        """Stop publishing, and delete the node if this component wrote it."""
        self._published = None
        self.settle()

    def settle(self) -> None:
        """Read the node and correct it. If that fails, set `retry_at`."""
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
        except Exception as exc:  # noqa: BLE001 - it is logged, reported to the contender and tried again
            _log.exception("publication_failed_unforeseen", component=self.name)
            self._failed(PublicationError(component=self.name, cause=exc))
        else:
            self._failures = 0

    def _failed(self, error: LeaderError) -> None:
        self._failures += 1
        pause = jittered(RETRY_FIRST, RETRY_MAX, self._failures, random.uniform)
        self.retry_at = self._clock() + pause
        _log.warning("publication_failed", component=self.name, error=str(error))
        if self._failures > 1 or self._published is None or self._granted is None or self._present() is None:
            return
        _, contender = self._granted
        try:
            contender.handle_error(error)
        except BaseException:  # noqa: BLE001 - foreign code
            _log.exception("handle_error_raised", component=self.name)

    def _on_watch(self, path: str, gone: bool) -> None:  # noqa: ARG002 - the executor's
        """Kazoo's connection thread: only enqueue. An empty path means that the connection broke."""
        if path:
            self._post(self.settle)
