"""The contenders of one participant, and the nodes they are published in. The thread `leader-service` alone.

Foreign code is called here, with no lock held. Whatever is read of the present term is read again after each
call into it, since the term may have ended meanwhile.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog

from leader.clock import Clock
from leader.core.backoff import jittered
from leader.errors import LeaderError, PublicationError
from leader.flink.contender import LeaderContender
from leader.protocol.component import ComponentInfo, encode_component
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.terms import Leadership
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)

_RETRY_FIRST = timedelta(milliseconds=100)
_RETRY_MAX = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One leadership, and the session id issued for it."""

    leadership: Leadership
    session: UUID


class Component:
    """One component. `contender` is set by its owner, on any thread; the rest is the service's thread's."""

    def __init__(self, name: str, node: EphemeralNode) -> None:
        self.name, self.node = name, node
        self.contender: LeaderContender | None = None
        self.serving: LeaderContender | None = None
        """The contender as the thread knows it: registered, and not yet told of its end."""
        self.granted: UUID | None = None
        self.confirmed: tuple[Term, bytes] | None = None
        self.failures = 0
        self.retry_at: timedelta | None = None


class Components:
    """See the module. `by_name`, `term` and `stopped` are set by any thread, under the service's lock.

    Args:
        session: Where to publish; nowhere without it.
        on_watch: See `SessionExecutor`.
        clock: Times the retries.
    """

    def __init__(
        self, session: ZooKeeperSession | None, on_watch: Callable[[str, bool], None], clock: Clock
    ) -> None:
        self._session, self._clock = session, clock
        self._executor = None if session is None else SessionExecutor(session, on_watch)
        self.by_name: dict[str, Component] = {}
        self.term: Term | None = None
        """The present term; None if we do not lead."""
        self.stopped = False
        """Whether nothing but revocations may be told any more."""
        self.abdicate: Callable[[str], None] = lambda _reason: None
        """Gives the leadership back, for the reason given."""

    def enter(self, component: Component, contender: LeaderContender) -> None:
        """A contender was registered; grant it what the others have, if we lead."""
        component.serving = contender
        term = self.term
        if term is not None:
            self._grant(component, term)

    def leave(self, component: Component, told: threading.Event) -> None:
        """A contender was unregistered: revoke, if it was granted, and take away what it published."""
        try:
            self._revoke(component)
            component.serving = None
            self._settle(component)
        finally:
            told.set()

    def grant_all(self, term: Term) -> None:
        """We lead."""
        for component in list(self.by_name.values()):
            self._grant(component, term)

    def _grant(self, component: Component, term: Term) -> None:
        contender = component.serving
        # What was revoked, stopped or unregistered meanwhile is not granted any more.
        if self.term is not term or contender is None or contender is not component.contender:
            return
        if component.granted == term.session:
            return
        component.granted = term.session
        try:
            contender.grant(term.session)
        except BaseException as exc:  # noqa: BLE001 - foreign code: who cannot take the lead must not keep it
            _log.exception("grant_raised", component=component.name, contender=contender.description)
            if self.term is term:
                self.abdicate(f"component {component.name} cannot lead: {type(exc).__name__}: {exc}")

    def revoke_all(self, told: threading.Event) -> None:
        """We lead no more. `told` is set when all have heard and what they published is taken away."""
        components = list(self.by_name.values())
        try:
            for component in components:
                self._revoke(component)
            for component in components:
                self._settle(component)
        finally:
            told.set()

    def _revoke(self, component: Component) -> None:
        contender = component.serving
        granted, component.granted, component.confirmed = component.granted, None, None
        if granted is None or contender is None:
            return
        try:
            contender.revoke()
        except BaseException:  # noqa: BLE001 - foreign code: it is over whatever it says
            _log.exception("revoke_raised", component=component.name, contender=contender.description)

    def confirmed(self, component: Component, session: UUID, address: str) -> None:
        """A contender says where it can be reached, under a session id that may be over."""
        term = self.term
        if term is None or term.session != session or component.granted != session:
            _log.info("stale_confirmation_ignored", component=component.name, session=str(session))
            return
        leadership = term.leadership
        info = ComponentInfo(leadership.participant.id, leadership.epoch, session, address)
        component.confirmed = (term, encode_component(info))
        component.failures = 0
        self._settle(component)

    def _settle(self, component: Component) -> None:
        """Bring the component's node to what it should be; later again, if that fails now."""
        if self._executor is None or self._session is None:
            return
        session_id, confirmed = self._session.session_id, component.confirmed
        component.retry_at = None
        try:
            if confirmed is not None and confirmed[0] is self.term:
                token = confirmed[0].leadership.token
                steps = component.node.keep(confirmed[1], session_id or 0, token.checks(), watch=True)
                if self._executor.run(steps) is not None:
                    # Whoever leads now is none of our business; the elector revokes us.
                    _log.info("publication_refused", component=component.name, epoch=token.epoch)
            elif component.node.may_be_ours:
                self._executor.run(component.node.withdraw(session_id))
        except LeaderError as exc:
            self._failed(component, exc)
        except Exception as exc:  # noqa: BLE001 - never silence: what nobody foresaw is tried again, too
            _log.exception("publication_failed_unforeseen", component=component.name)
            self._failed(component, PublicationError(component=component.name, cause=exc))
        else:
            component.failures = 0

    def _failed(self, component: Component, error: LeaderError) -> None:
        component.failures += 1
        component.retry_at = self._clock() + jittered(
            _RETRY_FIRST, _RETRY_MAX, component.failures, random.uniform
        )
        _log.warning("publication_failed", component=component.name, error=str(error))
        if component.failures == 1 and component.confirmed is not None:
            self._complain(component, error)

    def _complain(self, component: Component, error: LeaderError) -> None:
        contender = component.serving
        if self.stopped or contender is None:
            return
        try:
            contender.handle_error(error)
        except BaseException:  # noqa: BLE001 - foreign code
            _log.exception("handle_error_raised", component=component.name, contender=contender.description)

    def finish(self, told: threading.Event) -> None:
        """The service stops."""
        self.revoke_all(told)
        for component in self.by_name.values():
            component.serving = component.contender = None

    def due_at(self) -> timedelta | None:
        """When `expired` wants to be called."""
        times = [
            component.retry_at for component in list(self.by_name.values()) if component.retry_at is not None
        ]
        return min(times, default=None)

    def expired(self) -> None:
        """Try again what is due."""
        now = self._clock()
        for component in list(self.by_name.values()):
            if component.retry_at is not None and component.retry_at <= now:
                self._settle(component)

    def settle_path(self, path: str) -> None:
        """A node has changed, or any may have (""): put ours right; leave alone what is not ours."""
        for component in list(self.by_name.values()):
            if path in ("", component.node.path) and (
                component.confirmed is not None or component.node.may_be_ours
            ):
                self._settle(component)
