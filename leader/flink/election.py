"""The election of one component: its contender, and what the contender is told.

The second half of `LeaderElection` runs on the thread `leader-service`, which calls foreign code with no lock
held. The term may end during a call, so it is read again after it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import structlog

from leader.errors import ElectionConfigError, ElectionStateError, LeaderError, in_words
from leader.flink.publication import Publication
from leader.protocol.terms import ComponentInfo, Leadership

if TYPE_CHECKING:
    from leader.flink.service import LeaderElectionService

_log = structlog.get_logger(__name__)

STOP_TIMEOUT = timedelta(seconds=10)


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


class LeaderElection:
    """The election of one component. Made by `LeaderElectionService.election`. Any thread may use it."""

    def __init__(self, service: LeaderElectionService, component: str, path: str) -> None:
        self._service, self._component = service, component
        self._contender: LeaderContender | None = None  # registered; under the service's lock
        self._granted: tuple[UUID, LeaderContender] | None = None  # not revoked yet; on `leader-service`
        self._publication = Publication(
            component,
            path,
            service._session,
            post=service._post,
            on_error=self._on_error,
            clock=service._clock,
        )

    @property
    def component(self) -> str:
        """Its name."""
        return self._component

    def start(self, contender: LeaderContender) -> None:
        """Register a contender. It is granted leadership when the participant leads, or leads already.

        Raises:
            ElectionStateError: There is a contender already, or the service was stopped.
        """
        with self._service._lock:
            if self._service._stopped:
                raise ElectionStateError("this service was stopped; make a new LeaderElectionService")
            present, term = self._contender, self._service._term
            if present is None:
                self._contender = contender
                if term is not None:
                    self._service._post(partial(self._grant, term))
        if present is not None:
            raise ElectionStateError(
                f"component {self._component} has a contender ({present.description}); stop that first"
            )

    def stop(self, timeout: timedelta = STOP_TIMEOUT) -> None:
        """Unregister the contender: it is revoked, if granted, and told nothing more. Other components go on.

        Safe to repeat; safe within a callback, where it returns at once and `revoke` follows the callback.
        """
        told = threading.Event()
        with self._service._lock:
            contender, self._contender = self._contender, None
            if contender is None or not self._service._post(partial(self._unregistered, contender, told)):
                return  # a service that does not run has revoked it, or is about to
        if not self._service._thread.here and not told.wait(timeout.total_seconds()):
            _log.warning("contender_still_busy", component=self._component)

    def confirm_leadership(self, session: UUID, address: str) -> None:
        """Publish where this component can be reached. Returns at once; ignored if `session` is over.

        Raises:
            ElectionConfigError: The address is empty.
        """
        if not address:
            raise ElectionConfigError(f"the address of component {self._component} is empty; give one")
        self._service._post(partial(self._confirm, session, address))

    def has_leadership(self, session: UUID) -> bool:
        """Whether this component leads under this session id at this moment. No I/O."""
        return self._contender is not None and self._service.has_leadership(session)

    # --- the thread `leader-service` ------------------------------------------------------------------

    def _grant(self, term: Term) -> None:
        contender = self._contender
        if self._service._term is not term or contender is None or self._granted is not None:
            return
        self._granted = (term.session, contender)
        try:
            contender.grant(term.session)
        except BaseException as exc:  # noqa: BLE001 - foreign code
            _log.exception("grant_raised", component=self._component, contender=contender.description)
            if self._service._term is term:
                self._service.elector.abdicate(f"component {self._component} cannot lead: {in_words(exc)}")

    def _confirm(self, session: UUID, address: str) -> None:
        term, granted = self._service._term, self._granted
        if term is None or granted is None or not term.session == granted[0] == session:
            _log.info("stale_confirmation_ignored", component=self._component, session=str(session))
            return
        leadership = term.leadership
        info = ComponentInfo(leadership.participant.id, leadership.epoch, session, address)
        self._publication.publish(info, leadership.token)

    def _revoke(self) -> None:
        granted, self._granted = self._granted, None
        if granted is None:
            return
        _, contender = granted
        try:
            contender.revoke()
        except BaseException:  # noqa: BLE001 - foreign code: the leadership is over whatever it raises
            _log.exception("revoke_raised", component=self._component, contender=contender.description)

    def _unregistered(self, contender: LeaderContender, told: threading.Event) -> None:
        try:
            if self._granted is not None and self._granted[1] is contender:
                self._revoke()
                self._publication.withdraw()
        finally:
            told.set()

    def _on_error(self, error: LeaderError) -> None:
        if self._granted is None or self._service._stopped:
            return
        _, contender = self._granted
        try:
            contender.handle_error(error)
        except BaseException:  # noqa: BLE001 - foreign code
            _log.exception("handle_error_raised", component=self._component, contender=contender.description)
