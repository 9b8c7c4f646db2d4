"""Several components that lead together: one election, one ZooKeeper session, one session id for each term.

Flink's leader election service, with an epoch and a fence below it. When the participant is elected, each
registered contender is granted a session id, the same for all and never used again (FLINK-30462). The
contender confirms it with its address, which is then published in `components/<name>`, in a transaction
that is fenced by the epoch. A confirmation of an older session id changes nothing (FLINK-11524, FLINK-11855).

Not guaranteed: that `has_leadership` is still true when its caller acts; write what matters with a
`fenced_transaction`, or through a store that checks the epoch.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import structlog

from leader.backoff import jittered
from leader.clock import Clock, Countdown, boottime
from leader.contender import LeaderContender
from leader.elector import Elector
from leader.errors import ElectionConfigError, ElectionStateError, LeaderError
from leader.inbox import InboxThread
from leader.notifier import Electable
from leader.protocol.component import ComponentInfo, encode_component
from leader.protocol.paths import ElectionPaths, checked_name, checked_root
from leader.protocol.records import Leadership
from leader.publication import ComponentNode
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)

_RETRY_FIRST = timedelta(milliseconds=100)
_RETRY_MAX = timedelta(seconds=2)
_STOP_TIMEOUT = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """One leadership, and the session id issued for it."""

    leadership: Leadership
    session: UUID


class _Seat:
    """One component. But for `contender`, the service's thread alone uses what is in it."""

    def __init__(self, name: str, node: ComponentNode) -> None:
        self.name, self.node = name, node
        self.contender: LeaderContender | None = None
        self.serving: LeaderContender | None = None
        """The contender as the thread knows it: registered, and not yet told of its end."""
        self.granted: UUID | None = None
        self.confirmed: tuple[_Term, bytes] | None = None
        self.failures = 0
        self.retry_at: timedelta | None = None


class LeaderElectionService:
    """See the module.

    Threads: those of the elector, and `leader-service` from `start` until `stop`, which calls the contenders
    and writes their nodes. No lock of ours is held while a contender is called.

    Args:
        elect: Makes the elector, given whom to tell, as `LeaderLockQueue` and `make_elector` do.
        root: That of the election.
        session: Where leader information is published, the elector's own; nothing is published without it, as
            befits a single node.
        new_session: Makes session ids.
        clock: Times the retries.

    Raises:
        ElectionConfigError: The root is none.
    """

    def __init__(
        self,
        *,
        elect: Callable[[Electable], Elector],
        root: str,
        session: ZooKeeperSession | None = None,
        new_session: Callable[[], UUID] = uuid4,
        clock: Clock = boottime,
    ) -> None:
        self._paths = ElectionPaths(checked_root(root))
        self._session, self._new_session, self._clock = session, new_session, clock
        self._executor = None if session is None else SessionExecutor(session, self._on_watch)
        self._seats: dict[str, _Seat] = {}
        self._elections: dict[str, LeaderElection] = {}
        self._term: _Term | None = None  # replaced as a whole; read by any thread
        self._lock = threading.Lock()  # held for a few instructions, never while calling anybody
        self._started = self._stopped = False
        self._thread = InboxThread(
            "leader-service", due_at=self._due_at, expired=self._retry_due, clock=clock
        )
        self._elector = elect(_Told(self))

    # --- asked by any thread ----------------------------------------------------------------------

    @property
    def elector(self) -> Elector:
        """The election below: its status, its participants, abdication."""
        return self._elector

    def election(self, component: str) -> LeaderElection:
        """The election of one component; the same object each time.

        Raises:
            ElectionConfigError: The name cannot name a ZooKeeper node.
        """
        checked_name(component, "component")
        with self._lock:
            if component not in self._elections:
                seat = self._seats[component] = _Seat(component, ComponentNode(self._paths, component))
                self._elections[component] = LeaderElection(self, seat)
            return self._elections[component]

    def start(self) -> None:
        """Queue. Returns at once.

        Raises:
            ElectionStateError: It was started before.
            LeaderError: The elector cannot be started; nothing is left behind.
        """
        with self._lock:
            if self._started or self._stopped:
                raise ElectionStateError("this service was started before; make a new LeaderElectionService")
            self._started = True
        try:
            self._elector.add_to_leader_lock_queue()
        except LeaderError:
            with self._lock:
                self._started = False
            raise
        if self._session is not None:
            self._session.add_listener(self._on_session)
        self._thread.start()

    def stop(self, timeout: timedelta = _STOP_TIMEOUT) -> None:
        """Revoke every contender that leads, take away what was published, leave the election. For good.

        Safe to repeat; safe within a callback, where it returns at once and the rest follows the callback.
        A contender that blocks is waited for no longer than half of `timeout`.
        """
        countdown, told = Countdown(timeout), threading.Event()
        with self._lock:
            first, self._stopped = not self._stopped, True
            self._term = None
            if not first or not self._started:
                return
            self._thread.post(lambda: self._finish(told))
            if self._thread.here:
                self._thread.post(lambda: self._elector.close(timeout))
            self._thread.end()
        if self._session is not None:
            self._session.remove_listener(self._on_session)
        if self._thread.here:
            return
        if not told.wait(timeout.total_seconds() / 2):
            _log.warning("contender_still_busy")
        self._elector.close(countdown.remaining())
        if not self._thread.join(countdown.remaining()):
            _log.warning("election_service_still_busy")

    def has_leadership(self, session: UUID) -> bool:
        """Whether this session id is the one issued, and we certainly lead at this moment. No I/O."""
        term = self._term
        if term is None or term.session != session:
            return False
        leadership = self._elector.leadership()
        return leadership is not None and leadership.epoch == term.leadership.epoch

    # --- called by the elections of components ------------------------------------------------------

    def _register(self, seat: _Seat, contender: LeaderContender) -> None:
        with self._lock:
            if self._stopped:
                raise ElectionStateError("this service was stopped; make a new LeaderElectionService")
            if seat.contender is not None:
                raise ElectionStateError(
                    f"component {seat.name} has a contender ({seat.contender.description}); stop that first"
                )
            seat.contender = contender
            self._thread.post(lambda: self._enter(seat, contender))

    def _unregister(self, seat: _Seat, timeout: timedelta) -> None:
        told = threading.Event()
        with self._lock:
            contender, seat.contender = seat.contender, None
            if contender is None or self._stopped or not self._started:
                return
            self._thread.post(lambda: self._leave(seat, told))
        if not self._thread.here and not told.wait(timeout.total_seconds()):
            _log.warning("contender_still_busy", component=seat.name)

    def _confirm(self, seat: _Seat, session: UUID, address: str) -> None:
        self._post(lambda: self._confirmed(seat, session, address))

    # --- called by the elector, on its notifier's thread ----------------------------------------------

    def _elected(self, leadership: Leadership) -> None:
        term = _Term(leadership, self._new_session())
        with self._lock:
            if self._stopped:
                return
            self._term = term
            self._thread.post(lambda: self._grant_all(term))

    def _revoked(self) -> None:
        """Return when the contenders were told, so that the lock is not let go before."""
        told = threading.Event()
        with self._lock:
            self._term = None
            if self._stopped:
                return  # and so they are told already, or about to be
            self._thread.post(lambda: self._revoke_all(told))
        told.wait()

    # --- the service's thread -------------------------------------------------------------------------

    def _enter(self, seat: _Seat, contender: LeaderContender) -> None:
        seat.serving = contender
        if self._term is not None:
            self._grant(seat, self._term)

    def _leave(self, seat: _Seat, told: threading.Event) -> None:
        try:
            self._revoke(seat)
            seat.serving = None
            self._settle(seat)
        finally:
            told.set()

    def _grant_all(self, term: _Term) -> None:
        for seat in list(self._seats.values()):
            self._grant(seat, term)

    def _grant(self, seat: _Seat, term: _Term) -> None:
        contender = seat.serving
        # What was revoked, stopped or unregistered meanwhile is not granted any more.
        if self._term is not term or contender is None or contender is not seat.contender:
            return
        if seat.granted == term.session:
            return
        seat.granted = term.session
        try:
            contender.grant(term.session)
        except Exception as exc:  # noqa: BLE001 - foreign code: who cannot take office must not keep it
            _log.exception("grant_raised", component=seat.name, contender=contender.description)
            if self._term is term:
                self._elector.abdicate(f"component {seat.name} cannot lead: {type(exc).__name__}: {exc}")

    def _revoke_all(self, told: threading.Event) -> None:
        seats = list(self._seats.values())
        try:
            for seat in seats:
                self._revoke(seat)
            for seat in seats:
                self._settle(seat)
        finally:
            told.set()

    def _revoke(self, seat: _Seat) -> None:
        contender = seat.serving
        granted, seat.granted, seat.confirmed = seat.granted, None, None
        if granted is None or contender is None:
            return
        try:
            contender.revoke()
        except Exception:  # noqa: BLE001 - foreign code: it is over whatever it says
            _log.exception("revoke_raised", component=seat.name, contender=contender.description)

    def _confirmed(self, seat: _Seat, session: UUID, address: str) -> None:
        term = self._term
        if term is None or term.session != session or seat.granted != session:
            _log.info("stale_confirmation_ignored", component=seat.name, session=str(session))
            return
        leadership = term.leadership
        info = ComponentInfo(leadership.participant.id, leadership.epoch, session, address)
        seat.confirmed = (term, encode_component(info))
        seat.failures = 0
        self._settle(seat)

    def _settle(self, seat: _Seat) -> None:
        """Bring the component's node to what it should be; later again, if that fails now."""
        if self._executor is None or self._session is None:
            return
        session_id, confirmed = self._session.session_id, seat.confirmed
        seat.retry_at = None
        try:
            if confirmed is not None and confirmed[0] is self._term:
                token = confirmed[0].leadership.token
                if not self._executor.run(seat.node.keep(token, confirmed[1], session_id or 0)):
                    # Whoever leads now is none of our business; the elector revokes us.
                    _log.info("publication_refused", component=seat.name, epoch=token.epoch)
            elif seat.node.may_be_ours:
                self._executor.run(seat.node.withdraw(session_id))
        except LeaderError as exc:
            seat.failures += 1
            seat.retry_at = self._clock() + jittered(_RETRY_FIRST, _RETRY_MAX, seat.failures, random.uniform)
            _log.warning("publication_failed", component=seat.name, error=str(exc))
            if seat.failures == 1 and confirmed is not None:
                self._complain(seat, exc)
        else:
            seat.failures = 0

    def _complain(self, seat: _Seat, error: LeaderError) -> None:
        contender = seat.serving
        if self._stopped or contender is None:
            return
        try:
            contender.handle_error(error)
        except Exception:  # noqa: BLE001 - foreign code
            _log.exception("handle_error_raised", component=seat.name, contender=contender.description)

    def _finish(self, told: threading.Event) -> None:
        self._revoke_all(told)
        for seat in self._seats.values():
            seat.serving = seat.contender = None

    def _due_at(self) -> timedelta | None:
        times = [seat.retry_at for seat in list(self._seats.values()) if seat.retry_at is not None]
        return min(times, default=None)

    def _retry_due(self) -> None:
        now = self._clock()
        for seat in list(self._seats.values()):
            if seat.retry_at is not None and seat.retry_at <= now:
                self._settle(seat)

    def _settle_path(self, path: str) -> None:
        for seat in list(self._seats.values()):
            if path in ("", seat.node.path) and (seat.confirmed is not None or seat.node.may_be_ours):
                self._settle(seat)

    # --- kazoo's threads: only enqueue ----------------------------------------------------------------

    def _on_watch(self, path: str, gone: bool) -> None:  # noqa: ARG002 - the executor's
        if path:
            self._post(lambda: self._settle_path(path))

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._post(lambda: self._settle_path(""))

    def _post(self, job: Callable[[], None]) -> None:
        with self._lock:
            if not self._stopped:
                self._thread.post(job)


class LeaderElection:
    """The election of one component. Made by `LeaderElectionService.election`. Any thread may use it."""

    def __init__(self, service: LeaderElectionService, seat: _Seat) -> None:
        self._service, self._seat = service, seat

    @property
    def component(self) -> str:
        """Its name."""
        return self._seat.name

    def start(self, contender: LeaderContender) -> None:
        """Register a contender. It is granted leadership when we lead; soon, if we lead already.

        Raises:
            ElectionStateError: There is one already, or the service was stopped.
        """
        self._service._register(self._seat, contender)

    def stop(self, timeout: timedelta = _STOP_TIMEOUT) -> None:
        """Unregister: revoke, if granted; then nothing is told any more. The other components go on.

        Safe to repeat; safe within a callback, where it returns at once and `revoke` follows the callback.
        """
        self._service._unregister(self._seat, timeout)

    def confirm_leadership(self, session: UUID, address: str) -> None:
        """Publish where this component can be reached. Returns at once; ignored if `session` is over.

        Raises:
            ElectionConfigError: The address is empty.
        """
        if not address:
            raise ElectionConfigError(f"the address of component {self.component} is empty; give one")
        self._service._confirm(self._seat, session, address)

    def has_leadership(self, session: UUID) -> bool:
        """Whether this component leads under this session id at this moment. No I/O."""
        return self._seat.contender is not None and self._service.has_leadership(session)


class _Told:
    """What the elector tells the service, kept out of the service's public face."""

    def __init__(self, service: LeaderElectionService) -> None:
        self._service = service

    def elected(self, leadership: Leadership) -> None:
        self._service._elected(leadership)

    def revoked(self, leadership: Leadership, reason: str) -> None:  # noqa: ARG002 - the port's
        self._service._revoked()
