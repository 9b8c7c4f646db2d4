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
from typing import Protocol
from uuid import UUID

import structlog

from leader.backoff import jittered
from leader.clock import Clock
from leader.contender import LeaderContender
from leader.errors import LeaderError, PublicationError
from leader.protocol.component import ComponentInfo, encode_component
from leader.protocol.terms import Leadership
from leader.publication import ComponentNode
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


class Seat:
    """One component. `contender` is set by its owner, on any thread; the rest is the service's thread's."""

    def __init__(self, name: str, node: ComponentNode) -> None:
        self.name, self.node = name, node
        self.contender: LeaderContender | None = None
        self.serving: LeaderContender | None = None
        """The contender as the thread knows it: registered, and not yet told of its end."""
        self.granted: UUID | None = None
        self.confirmed: tuple[Term, bytes] | None = None
        self.failures = 0
        self.retry_at: timedelta | None = None


class Situation(Protocol):
    """What may change at any moment, on any thread."""

    @property
    def term(self) -> Term | None:
        """The present term; None if we do not lead."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether nothing but revocations may be told any more."""
        ...

    def abdicate(self, reason: str) -> None:
        """Give the leadership back."""
        ...


class Components:
    """See the module.

    Args:
        seats: Of all components; others may be added by other threads.
        situation: Asked anew each time.
        session: Where to publish; nowhere without it.
        on_watch: See `SessionExecutor`.
        clock: Times the retries.
    """

    def __init__(
        self,
        *,
        seats: dict[str, Seat],
        situation: Situation,
        session: ZooKeeperSession | None,
        on_watch: Callable[[str, bool], None],
        clock: Clock,
    ) -> None:
        self._seats, self._now, self._session, self._clock = seats, situation, session, clock
        self._executor = None if session is None else SessionExecutor(session, on_watch)

    def enter(self, seat: Seat, contender: LeaderContender) -> None:
        """A contender was registered; grant it what the others have, if we lead."""
        seat.serving = contender
        term = self._now.term
        if term is not None:
            self._grant(seat, term)

    def leave(self, seat: Seat, told: threading.Event) -> None:
        """A contender was unregistered: revoke, if it was granted, and take away what it published."""
        try:
            self._revoke(seat)
            seat.serving = None
            self._settle(seat)
        finally:
            told.set()

    def grant_all(self, term: Term) -> None:
        """We lead."""
        for seat in list(self._seats.values()):
            self._grant(seat, term)

    def _grant(self, seat: Seat, term: Term) -> None:
        contender = seat.serving
        # What was revoked, stopped or unregistered meanwhile is not granted any more.
        if self._now.term is not term or contender is None or contender is not seat.contender:
            return
        if seat.granted == term.session:
            return
        seat.granted = term.session
        try:
            contender.grant(term.session)
        except BaseException as exc:  # noqa: BLE001 - foreign code: who cannot take office must not keep it
            _log.exception("grant_raised", component=seat.name, contender=contender.description)
            if self._now.term is term:
                self._now.abdicate(f"component {seat.name} cannot lead: {type(exc).__name__}: {exc}")

    def revoke_all(self, told: threading.Event) -> None:
        """We lead no more. `told` is set when all have heard and what they published is taken away."""
        seats = list(self._seats.values())
        try:
            for seat in seats:
                self._revoke(seat)
            for seat in seats:
                self._settle(seat)
        finally:
            told.set()

    def _revoke(self, seat: Seat) -> None:
        contender = seat.serving
        granted, seat.granted, seat.confirmed = seat.granted, None, None
        if granted is None or contender is None:
            return
        try:
            contender.revoke()
        except BaseException:  # noqa: BLE001 - foreign code: it is over whatever it says
            _log.exception("revoke_raised", component=seat.name, contender=contender.description)

    def confirmed(self, seat: Seat, session: UUID, address: str) -> None:
        """A contender says where it can be reached, under a session id that may be over."""
        term = self._now.term
        if term is None or term.session != session or seat.granted != session:
            _log.info("stale_confirmation_ignored", component=seat.name, session=str(session))
            return
        leadership = term.leadership
        info = ComponentInfo(leadership.participant.id, leadership.epoch, session, address)
        seat.confirmed = (term, encode_component(info))
        seat.failures = 0
        self._settle(seat)

    def _settle(self, seat: Seat) -> None:
        """Bring the component's node to what it should be; later again, if that fails now."""
        if self._executor is None or self._session is None:
            return
        session_id, confirmed = self._session.session_id, seat.confirmed
        seat.retry_at = None
        try:
            if confirmed is not None and confirmed[0] is self._now.term:
                token = confirmed[0].leadership.token
                if not self._executor.run(seat.node.keep(token, confirmed[1], session_id or 0)):
                    # Whoever leads now is none of our business; the elector revokes us.
                    _log.info("publication_refused", component=seat.name, epoch=token.epoch)
            elif seat.node.may_be_ours:
                self._executor.run(seat.node.withdraw(session_id))
        except LeaderError as exc:
            self._failed(seat, exc)
        except Exception as exc:  # noqa: BLE001 - never silence: what nobody foresaw is tried again, too
            _log.exception("publication_failed_unforeseen", component=seat.name)
            self._failed(seat, PublicationError(component=seat.name, cause=exc))
        else:
            seat.failures = 0

    def _failed(self, seat: Seat, error: LeaderError) -> None:
        seat.failures += 1
        seat.retry_at = self._clock() + jittered(_RETRY_FIRST, _RETRY_MAX, seat.failures, random.uniform)
        _log.warning("publication_failed", component=seat.name, error=str(error))
        if seat.failures == 1 and seat.confirmed is not None:
            self._complain(seat, error)

    def _complain(self, seat: Seat, error: LeaderError) -> None:
        contender = seat.serving
        if self._now.stopped or contender is None:
            return
        try:
            contender.handle_error(error)
        except BaseException:  # noqa: BLE001 - foreign code
            _log.exception("handle_error_raised", component=seat.name, contender=contender.description)

    def finish(self, told: threading.Event) -> None:
        """The service stops."""
        self.revoke_all(told)
        for seat in self._seats.values():
            seat.serving = seat.contender = None

    def due_at(self) -> timedelta | None:
        """When `expired` wants to be called."""
        times = [seat.retry_at for seat in list(self._seats.values()) if seat.retry_at is not None]
        return min(times, default=None)

    def expired(self) -> None:
        """Try again what is due."""
        now = self._clock()
        for seat in list(self._seats.values()):
            if seat.retry_at is not None and seat.retry_at <= now:
                self._settle(seat)

    def settle_path(self, path: str) -> None:
        """A node has changed, or any may have (""): put ours right; leave alone what is not ours."""
        for seat in list(self._seats.values()):
            if path in ("", seat.node.path) and (seat.confirmed is not None or seat.node.may_be_ours):
                self._settle(seat)
