"""Curator's LeaderLatch: a lock without guard and fence. `LeaderLockQueue` has both."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Protocol

import structlog

from leader.clock import Clock, Countdown, boottime
from leader.core.latch import model as m
from leader.core.latch.core import LatchCore
from leader.core.latch.machine import SuspendedPolicy
from leader.core.latch.steps import PlainClaimant
from leader.core.lease import LeadershipLease, check_margin
from leader.errors import ElectionConfigError, ElectionStateError
from leader.journal import DeferredJournal, Journal, LogJournal
from leader.protocol.paths import checked_root
from leader.protocol.requests import Steps
from leader.protocol.view import ParticipantView
from leader.runtime.driver import Driver, OnWatch
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.operations import read_latches
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)


class LatchState(Enum):
    """Life cycle of a latch, in this order. It never goes back to an earlier state."""

    LATENT = "latent"
    STARTED = "started"
    CLOSED = "closed"


class CloseMode(Enum):
    """What `close` does for the listeners of a latch that leads: nothing, or call `not_leader`."""

    SILENT = "silent"
    NOTIFY_LEADER = "notify_leader"


class LatchListener(Protocol):
    """Called in order, one call at a time, on its executor or the thread `leader-latch-listeners`."""

    def is_leader(self) -> None:
        """The latch has gained the lock."""

    def not_leader(self) -> None:
        """The latch has lost the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatchConfig:
    """Settings of one latch. Checked once, in the constructor.

    Args:
        path: Absolute path of the queue node.
        id: Id of this participant, for others to read; may be empty, as with Curator.
        suspended_policy: What a broken connection means for the lock.
        close_mode: Default of `close`.
        step_down_margin: The lock counts as lost this long before the session can end.
        retry_max: Longest pause between two tries of a call that failed.
    """

    path: str
    id: str = ""
    suspended_policy: SuspendedPolicy = SuspendedPolicy.STANDARD
    close_mode: CloseMode = CloseMode.SILENT
    step_down_margin: timedelta = timedelta(seconds=1)
    retry_max: timedelta = timedelta(seconds=2)

    def __post_init__(self) -> None:
        checked_root(self.path, "path")
        if self.step_down_margin <= timedelta(0) or self.retry_max <= timedelta(0):
            raise ElectionConfigError(
                f"step_down_margin ({self.step_down_margin}) and retry_max ({self.retry_max}) must be above 0"
            )


class LeaderLatch:
    """Keeps a latch node in a queue until it is closed. Leads while that node is the oldest.

    On the wire it is Curator's LeaderLatch, so both libraries can share one queue. It has no epoch, no guard
    and no fence. A process that has just read `has_leadership() == True` may have lost the lock since.

    Threads: `leader-latch`, and `leader-latch-listeners` for listeners without an executor.

    Raises:
        ElectionConfigError: The margin does not fit the session timeout that ZooKeeper granted.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        config: LatchConfig,
        *,
        journal: Journal | None = None,
        clock: Clock = boottime,
    ) -> None:
        check_margin(config.step_down_margin, session.negotiated_timeout)
        self._session, self._config = session, config
        self._lease = LeadershipLease(
            session.liveness,
            clock,
            config.step_down_margin,
            any_connection=config.suspended_policy is SuspendedPolicy.SESSION,
        )
        deferred = DeferredJournal(journal or LogJournal(config.id))
        self._latch = LatchCore(
            session=session,
            queue=config.path,
            data=config.id.encode(),
            claimant=PlainClaimant(config.path),
            lease=self._lease,
            clock=clock,
            uniform=random.uniform,
            retry_max=config.retry_max,
            tell=self._on_news,
            journal=deferred,
            policy=config.suspended_policy,
        )
        self._driver = Driver(
            self._latch, session, self._asking, clock=clock, journal=deferred, name="leader-latch"
        )
        self._listeners: list[_Mailbox] = []
        self._condition = threading.Condition()
        self._state = LatchState.LATENT
        self._ended = threading.Event()
        self._close_mode = config.close_mode
        self._notified = False  # True from `is_leader` until the lock is lost; driver thread only

    @property
    def id(self) -> str:
        """Id from the configuration."""
        return self._config.id

    @property
    def state(self) -> LatchState:
        """Present state of the life cycle."""
        return self._state

    @property
    def own_node(self) -> str | None:
        """Name of the latch node; None without one."""
        node = getattr(self._latch.state, "node", None)
        return None if node is None else node.name

    @property
    def trouble(self) -> str | None:
        """The last failure with ZooKeeper; None after a success. The latch keeps trying."""
        return self._latch.trouble

    def start(self) -> None:
        """Join the queue. Returns at once, also without a connection. ElectionStateError unless LATENT."""
        with self._condition:
            if self._state is not LatchState.LATENT:
                raise ElectionStateError(f"this latch is {self._state.value}; make a new LeaderLatch")
            self._state = LatchState.STARTED
        self._driver.start()
        self._driver.post(lambda: self._latch.handle(m.Started()))

    def close(self, mode: CloseMode | None = None, *, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Leave the queue for ever. Safe to repeat: a second caller, except a listener, waits for the first.

        Args:
            mode: Overrides the configured close mode.
            timeout: Limit of the wait for ZooKeeper's confirmation and for the listeners. After it, the node
                may stay until the session ends.
        """
        with self._condition:
            before, self._state = self._state, LatchState.CLOSED
            self._close_mode = mode or self._close_mode
            self._condition.notify_all()
        if before is LatchState.STARTED:
            try:
                self._end(Countdown(timeout))
            finally:
                self._ended.set()
        elif before is LatchState.LATENT:
            self._ended.set()
        elif not any(mailbox.here for mailbox in self._listeners):
            self._ended.wait(timeout.total_seconds())

    def _end(self, countdown: Countdown) -> None:
        self._driver.post(lambda: self._latch.handle(m.LatchCloseAsked()))
        if not self._driver.stop(countdown.remaining()):
            _log.warning("latch_not_confirmed_deleted", advice="ZooKeeper deletes it when the session ends")
        self._driver.join(countdown.remaining())
        self._executor.forget_watches()
        for mailbox in self._listeners:
            mailbox.close(countdown.remaining())

    def _asking(self, on_watch: OnWatch) -> Callable[[Steps[None]], None]:
        self._executor = SessionExecutor(self._session, on_watch)
        return self._executor.run

    def has_leadership(self) -> bool:
        """True when this latch certainly holds the lock at this moment. No I/O; any thread."""
        return self._state is LatchState.STARTED and self._lease.stands(self._lease.hold)

    def await_leadership(self, timeout: timedelta | None = None) -> bool:
        """Wait until this latch leads. False if `timeout` passed before, or the latch was closed."""
        countdown = None if timeout is None else Countdown(timeout)
        with self._condition:
            while self._state is not LatchState.CLOSED:
                if self.has_leadership():
                    return True
                left_s = None if countdown is None else countdown.remaining().total_seconds()
                if left_s == 0:
                    return False
                self._condition.wait(left_s)
        return False

    def get_leader(self) -> ParticipantView | None:
        """Read the first in the queue; None if the queue is empty. See `get_participants`."""
        return next(iter(self.get_participants()), None)

    def get_participants(self) -> list[ParticipantView]:
        """Read the queue, oldest first; the first is the leader.

        ZooKeeperUnavailableError if there is no answer.
        """
        return read_latches(self._session, self._config.path)

    def add_listener(self, listener: LatchListener, executor: Executor | None = None) -> None:
        """Add a listener; it is called for each change from now on.

        Args:
            listener: The listener.
            executor: Runs the calls, one at a time and in order. Without one, a thread of the latch does.
        """
        with self._condition:
            self._listeners = [*self._listeners, _Mailbox(listener, executor)]

    def remove_listener(self, listener: LatchListener) -> None:
        """Undo `add_listener`. Does nothing if the listener was not added."""
        with self._condition:
            gone = [mailbox for mailbox in self._listeners if mailbox.listener is listener]
            self._listeners = [mailbox for mailbox in self._listeners if mailbox.listener is not listener]
        for mailbox in gone:
            mailbox.close(timedelta(0))

    def _on_news(self, news: m.News) -> None:
        """Runs on the driver thread."""
        match news:
            case m.Gained() if self._state is LatchState.STARTED:
                self._notified = True
                self._notify(lambda listener: listener.is_leader())
            case m.LatchLost() if self._notified:
                self._notified = False
                if self._state is LatchState.STARTED or self._close_mode is CloseMode.NOTIFY_LEADER:
                    self._notify(lambda listener: listener.not_leader())
            case m.Gained() | m.LatchLost() | m.LatchVetoed() | m.LatchEnded():
                pass  # of no interest to listeners; or gained after `close`, so none was called
        with self._condition:
            self._condition.notify_all()

    def _notify(self, call: Callable[[LatchListener], None]) -> None:
        for mailbox in self._listeners:
            mailbox.put(call)


class _Mailbox:
    """Runs the calls of one listener in order, one at a time, on its executor or on a thread of the latch."""

    def __init__(self, listener: LatchListener, executor: Executor | None) -> None:
        self.listener = listener
        self._executor = executor
        self._calls: deque[Callable[[LatchListener], None]] = deque()
        self._condition = threading.Condition()
        self._busy = False
        self._caller: threading.Thread | None = None

    @property
    def here(self) -> bool:
        return self._caller is threading.current_thread()

    def put(self, call: Callable[[LatchListener], None]) -> None:
        with self._condition:
            self._calls.append(call)
            if self._busy:
                return
            self._busy = True
        try:
            if self._executor is not None:
                self._executor.submit(self._deliver)
            else:
                threading.Thread(target=self._deliver, name="leader-latch-listeners", daemon=True).start()
        except RuntimeError as exc:
            with self._condition:
                self._busy = False
                if self._executor is None:  # the calls stay, in order, for the thread of the next call
                    _log.warning("listener_thread_not_started", error=str(exc))
                else:  # it was shut down: its owner wants no more calls
                    _log.warning("listener_executor_closed")
                    self._calls.clear()

    def close(self, timeout: timedelta) -> None:
        """Wait until all calls have returned, `timeout` at most. Does not wait within such a call."""
        with self._condition:
            if self.here:
                return
            if not self._condition.wait_for(lambda: not self._busy, timeout.total_seconds()):
                _log.warning("listener_still_busy")

    def _deliver(self) -> None:
        while True:
            with self._condition:
                if not self._calls:
                    self._busy, self._caller = False, None
                    self._condition.notify_all()
                    return
                self._caller = threading.current_thread()
                call = self._calls.popleft()
            try:
                call(self.listener)
            except BaseException:  # noqa: BLE001 - foreign code: its exceptions do not change the lock
                _log.exception("latch_listener_raised")
