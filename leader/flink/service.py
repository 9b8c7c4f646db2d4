"""Several components that lead together: one election, one ZooKeeper session, one session id for each term.

This is Flink's leader election service on an election with epoch and fence. When the participant is elected,
the service grants a session id to the contender of each component. The id is the same for all and never used
again (FLINK-30462). A contender confirms it with its address, which the service publishes in
`components/<name>`. A confirmation of an older session id changes nothing (FLINK-11524, FLINK-11855).

Not guaranteed: that `has_leadership` is still true when its caller acts. Write what matters with a
`fenced_transaction`, or to a store that checks the epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import structlog

from leader.clock import Clock, Countdown, boottime
from leader.elector import Electable, Elector
from leader.errors import ElectionConfigError, ElectionStateError, LeaderError
from leader.flink.component import Component, FlinkTerm, LeaderContender
from leader.protocol.paths import ElectionPaths, checked_name, checked_root
from leader.protocol.terms import Leadership
from leader.runtime.driver import InboxThread
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)

STOP_TIMEOUT = timedelta(seconds=10)


class LeaderElectionService:
    """See the module.

    Threads: those of the elector, and `leader-service` from `start` until `stop`, which calls the contenders
    and writes their nodes.

    Args:
        elect: Makes the elector for the given electable, for example with `make_elector`.
        session: The elector's session, which publishes leader information. None: nothing is published, for an
            elector without ZooKeeper.
        clock: Times the retries.

    Raises:
        ElectionConfigError: The root cannot be a path in ZooKeeper.
    """

    def __init__(
        self,
        *,
        elect: Callable[[Electable], Elector],
        root: str,
        session: ZooKeeperSession | None = None,
        clock: Clock = boottime,
    ) -> None:
        self._paths, self._session, self._clock = ElectionPaths(checked_root(root)), session, clock
        self._lock = threading.RLock()  # held for a few instructions, never while calling foreign code
        self._elections: dict[str, LeaderElection] = {}
        self._term: FlinkTerm | None = None
        self._started = self._stopped = False
        self._ended = threading.Event()
        self._revocation = threading.Event()  # set when all are revoked and withdrawn, or `stop` gives up
        self._thread = InboxThread(
            "leader-service", due_at=self._due_at, expired=self._settle_due, clock=clock
        )
        self._elector = elect(self)

    # --- any thread -----------------------------------------------------------------------------------

    @property
    def elector(self) -> Elector:
        """The elector of all components: status, participants, abdication."""
        return self._elector

    def election(self, component: str) -> LeaderElection:
        """The election of one component; the same object each time.

        ElectionConfigError if the name cannot name a ZooKeeper node.
        """
        path = self._paths.component(checked_name(component, "component"))
        with self._lock:
            if component not in self._elections:
                made = Component(
                    component,
                    path,
                    self._session,
                    post=self._post,
                    present=lambda: self._term,
                    abdicate=self._elector.abdicate,
                    clock=self._clock,
                )
                self._elections[component] = LeaderElection(self, made)
            return self._elections[component]

    def start(self) -> None:
        """Join the queue. Returns at once.

        Raises:
            ElectionStateError: It was started or stopped before.
            LeaderError: The elector cannot be started. The service is then as before.
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

    def stop(self, timeout: timedelta = STOP_TIMEOUT) -> None:
        """Revoke every contender that leads, withdraw what was published, and leave the election for ever.

        Safe to repeat: a second caller waits for the first, within its own `timeout`. Safe within a callback:
        it returns at once, and the rest happens after the callback. A contender that blocks delays it by half
        of `timeout` at most.
        """
        countdown, done = Countdown(timeout), threading.Event()
        with self._lock:
            first, self._stopped = not self._stopped, True
            self._term = None
            if first and self._started:
                self._thread.post(partial(self._revoke_all, done))
                if self._thread.here:
                    self._thread.post(lambda: self._elector.close(timeout))
                    self._thread.post(self._ended.set)
                self._thread.end()
        if first and self._started:
            self._finish(countdown, done)
        elif first:
            self._ended.set()
        elif not self._thread.here:
            self._ended.wait(timeout.total_seconds())

    def _finish(self, countdown: Countdown, done: threading.Event) -> None:
        if self._session is not None:
            self._session.remove_listener(self._on_session)
        if self._thread.here:
            return
        try:
            if not done.wait(countdown.remaining().total_seconds() / 2):
                _log.warning("contender_still_busy")
                self._revocation.set()
            self._elector.close(countdown.remaining())
            if not self._thread.join(countdown.remaining()):
                _log.warning("election_service_still_busy")
        finally:
            self._ended.set()

    def has_leadership(self, session: UUID) -> bool:
        """True when `session` was issued for the present term and the participant certainly leads. No I/O."""
        term = self._term
        if term is None or term.session != session:
            return False
        leadership = self._elector.leadership()
        return leadership is not None and leadership.epoch == term.leadership.epoch

    def _post(self, job: Callable[[], None]) -> bool:
        """Give the thread `leader-service` a job. False if the service does not run: the job is dropped."""
        with self._lock:
            runs = self._started and not self._stopped
            if runs:
                self._thread.post(job)
            return runs

    # --- the elector's threads ------------------------------------------------------------------------

    def elected(self, leadership: Leadership) -> None:
        """See `Electable.elected`. Only the elector calls it."""
        term = FlinkTerm(leadership, uuid4())
        with self._lock:
            if self._stopped:
                return
            self._term = term
            self._thread.post(partial(self._grant_all, term))

    def revoked(self, leadership: Leadership, reason: str) -> None:  # noqa: ARG002 - the port's
        """See `Electable.revoked`. Only the elector calls it.

        Returns when all components are revoked and withdrawn, so the elector does not release the lock
        before. A contender that hangs blocks the calling thread. Until this call returns, the elector takes
        no further term, because the contenders could not be called for it. `stop` ends the wait.
        """
        done = threading.Event()
        with self._lock:
            self._term = None
            if self._stopped:
                return  # `stop` revokes the contenders
            self._revocation = done
            self._thread.post(partial(self._revoke_all, done))
        if not self._thread.here:  # an elector may call `revoked` within `abdicate`, on this very thread
            done.wait()

    # --- the thread `leader-service` ------------------------------------------------------------------

    @property
    def _components(self) -> list[Component]:
        return [election._component for election in list(self._elections.values())]

    def _grant_all(self, term: FlinkTerm) -> None:
        for component in self._components:
            component.grant(term)

    def _revoke_all(self, done: threading.Event) -> None:
        """Revoke all, then withdraw all. `done` is set when both have ended."""
        components = self._components
        try:
            for component in components:
                component.revoke()
            for component in components:
                component.withdraw()
        finally:
            done.set()

    def _settle_all(self) -> None:
        """Correct all nodes after a reconnect, without waiting for `retry_at`."""
        for component in self._components:
            component.settle()

    def _settle_due(self) -> None:
        now = self._clock()
        for component in self._components:
            if component.retry_at is not None and component.retry_at <= now:
                component.settle()

    def _due_at(self) -> timedelta | None:
        times = [component.retry_at for component in self._components]
        return min((at for at in times if at is not None), default=None)

    # --- kazoo's threads: only enqueue ----------------------------------------------------------------

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._post(self._settle_all)


class LeaderElection:
    """The election of one component. Made by `LeaderElectionService.election`. Any thread may use it."""

    def __init__(self, service: LeaderElectionService, component: Component) -> None:
        self._service, self._component = service, component

    @property
    def component(self) -> str:
        """Name of the component."""
        return self._component.name

    def start(self, contender: LeaderContender) -> None:
        """Register a contender. It is granted leadership when the participant leads, or leads already.

        ElectionStateError if another contender is registered, or the service was stopped.
        """
        service = self._service
        with service._lock:
            if service._stopped:
                raise ElectionStateError("this service was stopped; make a new LeaderElectionService")
            present, term = self._component.contender, service._term
            if present is None:
                self._component.contender = contender
                if term is not None:
                    service._post(partial(self._component.grant, term))
        if present is not None:
            raise ElectionStateError(
                f"component {self.component} has a contender ({present.description}); stop it first"
            )

    def stop(self, timeout: timedelta = STOP_TIMEOUT) -> None:
        """Unregister the contender: revoke it if it leads, and call it no more. Other components continue.

        Safe to repeat. Safe within a callback: it returns at once, and `revoke` is called after the callback.
        """
        done = threading.Event()
        with self._service._lock:
            contender, self._component.contender = self._component.contender, None
            if contender is None or not self._service._post(partial(self._leave, contender, done)):
                return  # no contender; or the service does not run, and its `stop` revokes the contender
        if not self._service._thread.here and not done.wait(timeout.total_seconds()):
            _log.warning("contender_still_busy", component=self.component)

    def _leave(self, contender: LeaderContender, done: threading.Event) -> None:
        try:
            self._component.leave(contender)
        finally:
            done.set()

    def confirm_leadership(self, session: UUID, address: str) -> None:
        """Publish the address of this component. Returns at once. Ignored if `session` is over.

        ElectionConfigError if the address is empty.
        """
        if not address:
            raise ElectionConfigError(f"the address of component {self.component} is empty; give one")
        self._service._post(partial(self._component.confirm, session, address))

    def has_leadership(self, session: UUID) -> bool:
        """True when this component certainly leads under this session id at this moment. No I/O."""
        return self._component.contender is not None and self._service.has_leadership(session)
