"""Several components that lead together: one election, one ZooKeeper session, one session id for each term.

Flink's leader election service, with an epoch and a fence below it. When the participant is elected, each
registered contender is granted a session id, the same for all and never used again (FLINK-30462). The
contender confirms it with its address, which is then published in `components/<name>`, in a transaction
that is fenced by the epoch. A confirmation of an older session id changes nothing (FLINK-11524, FLINK-11855).

Not guaranteed: that `has_leadership` is still true when its caller acts; write what matters with a
`fenced_transaction`, or through a store that checks the epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

import structlog

from leader.clock import Clock, Countdown, boottime
from leader.elector import Elector
from leader.errors import ElectionConfigError, ElectionStateError, LeaderError
from leader.flink.components import Component, Components, Term
from leader.flink.contender import LeaderContender
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.paths import ElectionPaths, checked_name, checked_root
from leader.protocol.terms import Leadership
from leader.runtime.callbacks import Electable
from leader.runtime.inbox import InboxThread
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)

_STOP_TIMEOUT = timedelta(seconds=10)


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
        self._session, self._new_session = session, new_session
        self._elections: dict[str, LeaderElection] = {}
        self._lock = threading.Lock()  # held for a few instructions, never while calling anybody
        self._started = False
        self._ended = threading.Event()
        self._revocation = threading.Event()  # set when the contenders have been told, or `stop` gives up
        self._components = Components(session, self._on_watch, clock)
        self._thread = InboxThread(
            "leader-service",
            due_at=self._components.due_at,
            expired=self._components.expired,
            clock=clock,
        )
        self._elector = elect(_Told(self))
        self._components.abdicate = self._elector.abdicate

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
                node = EphemeralNode(self._paths.component(component))
                added = self._components.by_name[component] = Component(component, node)
                self._elections[component] = LeaderElection(self, added)
            return self._elections[component]

    def start(self) -> None:
        """Queue. Returns at once.

        Raises:
            ElectionStateError: It was started before.
            LeaderError: The elector cannot be started; nothing is left behind.
        """
        with self._lock:
            if self._started or self._components.stopped:
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

        Safe to repeat; who calls it while another does waits for that one, within its own `timeout`. Safe
        within a callback, where it returns at once and the rest follows the callback. A contender that blocks
        is waited for no longer than half of `timeout`.
        """
        countdown, told = Countdown(timeout), threading.Event()
        with self._lock:
            first, self._components.stopped = not self._components.stopped, True
            self._components.term = None
            if first and self._started:
                self._thread.post(lambda: self._components.finish(told))
                if self._thread.here:
                    self._thread.post(lambda: self._elector.close(timeout))
                    self._thread.post(self._ended.set)
                self._thread.end()
        if first and self._started:
            self._finish(countdown, told)
        elif first:
            self._ended.set()
        elif not self._thread.here:
            self._ended.wait(timeout.total_seconds())

    def _finish(self, countdown: Countdown, told: threading.Event) -> None:
        if self._session is not None:
            self._session.remove_listener(self._on_session)
        if self._thread.here:
            return
        try:
            if not told.wait(countdown.remaining().total_seconds() / 2):
                _log.warning("contender_still_busy")
                self._revocation.set()
            self._elector.close(countdown.remaining())
            if not self._thread.join(countdown.remaining()):
                _log.warning("election_service_still_busy")
        finally:
            self._ended.set()

    def has_leadership(self, session: UUID) -> bool:
        """Whether this session id is the one issued, and we certainly lead at this moment. No I/O."""
        term = self._components.term
        if term is None or term.session != session:
            return False
        leadership = self._elector.leadership()
        return leadership is not None and leadership.epoch == term.leadership.epoch

    # --- called by the elections of components ------------------------------------------------------

    def _register(self, component: Component, contender: LeaderContender) -> None:
        with self._lock:
            if self._components.stopped:
                raise ElectionStateError("this service was stopped; make a new LeaderElectionService")
            present = component.contender
            if present is None:
                component.contender = contender
                self._thread.post(lambda: self._components.enter(component, contender))
        if present is not None:
            raise ElectionStateError(
                f"component {component.name} has a contender ({present.description}); stop that first"
            )

    def _unregister(self, component: Component, timeout: timedelta) -> None:
        told = threading.Event()
        with self._lock:
            contender, component.contender = component.contender, None
            if contender is None or self._components.stopped or not self._started:
                return
            self._thread.post(lambda: self._components.leave(component, told))
        if not self._thread.here and not told.wait(timeout.total_seconds()):
            _log.warning("contender_still_busy", component=component.name)

    def _confirm(self, component: Component, session: UUID, address: str) -> None:
        self._post(lambda: self._components.confirmed(component, session, address))

    # --- called by the elector, on any of its threads --------------------------------------------------

    def _elected(self, leadership: Leadership) -> None:
        term = Term(leadership, self._new_session())
        with self._lock:
            if self._components.stopped:
                return
            self._components.term = term
            self._thread.post(lambda: self._components.grant_all(term))

    def _revoked(self) -> None:
        """Return when the contenders were told, so that the lock is not released before.

        A contender that hangs holds the calling thread: until `revoked` returns, the elector does not let
        this participant lead, and its contenders could not hear that they lead. `stop` ends the wait.
        """
        told = threading.Event()
        with self._lock:
            self._components.term = None
            if self._components.stopped:
                return  # and so they are told already, or about to be
            self._revocation = told
            self._thread.post(lambda: self._components.revoke_all(told))
        if not self._thread.here:  # as with an elector that answers `abdicate` by calling us at once
            told.wait()

    # --- kazoo's threads: only enqueue ----------------------------------------------------------------

    def _on_watch(self, path: str, gone: bool) -> None:  # noqa: ARG002 - the executor's
        if path:
            self._post(lambda: self._components.settle_path(path))

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._post(lambda: self._components.settle_path(""))

    def _post(self, job: Callable[[], None]) -> None:
        with self._lock:
            if not self._components.stopped:
                self._thread.post(job)


class LeaderElection:
    """The election of one component. Made by `LeaderElectionService.election`. Any thread may use it."""

    def __init__(self, service: LeaderElectionService, component: Component) -> None:
        self._service, self._component = service, component

    @property
    def component(self) -> str:
        """Its name."""
        return self._component.name

    def start(self, contender: LeaderContender) -> None:
        """Register a contender. It is granted leadership when we lead; soon, if we lead already.

        Raises:
            ElectionStateError: There is one already, or the service was stopped.
        """
        self._service._register(self._component, contender)

    def stop(self, timeout: timedelta = _STOP_TIMEOUT) -> None:
        """Unregister: revoke, if granted; then nothing is told any more. The other components go on.

        Safe to repeat; safe within a callback, where it returns at once and `revoke` follows the callback.
        """
        self._service._unregister(self._component, timeout)

    def confirm_leadership(self, session: UUID, address: str) -> None:
        """Publish where this component can be reached. Returns at once; ignored if `session` is over.

        Raises:
            ElectionConfigError: The address is empty.
        """
        if not address:
            raise ElectionConfigError(f"the address of component {self.component} is empty; give one")
        self._service._confirm(self._component, session, address)

    def has_leadership(self, session: UUID) -> bool:
        """Whether this component leads under this session id at this moment. No I/O."""
        return self._component.contender is not None and self._service.has_leadership(session)


class _Told:
    """What the elector tells the service, kept out of the service's public methods."""

    def __init__(self, service: LeaderElectionService) -> None:
        self._service = service

    def elected(self, leadership: Leadership) -> None:
        self._service._elected(leadership)

    def revoked(self, leadership: Leadership, reason: str) -> None:  # noqa: ARG002 - the port's
        self._service._revoked()
