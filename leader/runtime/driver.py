"""The driver: one thread that runs a core, and alone calls ZooKeeper for it.

Work arrives in the driver's inbox, from kazoo's threads (which only enqueue), from the callback thread, and
from the owner. The driver takes one piece of work at a time and runs it to its end. It calls no foreign code
but the journal, so a guard or an electable that hangs cannot hold it up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Protocol

import structlog

from leader.clock import Clock
from leader.core.latch import model as latch_m
from leader.journal import DeferredJournal
from leader.protocol.requests import Steps
from leader.runtime.inbox import InboxThread, Job
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)

_IDLE = timedelta(milliseconds=5)
"""When nothing has happened for so long, there is time for the journal."""

Work = Callable[[], Steps[None]]
"""Something for the core to do. Made on any thread, run by the driver."""


class Core(Protocol):
    """What a driver can run."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        ...

    @property
    def due_at(self) -> timedelta | None:
        """When `expired` wants to be called."""
        ...

    def heard(self, path: str, gone: bool) -> Steps[None]:
        """A watch has fired: this node has changed, or is gone."""
        ...

    def link(self, event: latch_m.LinkEvent) -> Steps[None]:
        """The session changed its state."""
        ...

    def expired(self) -> Steps[None]:
        """`due_at` has come."""
        ...

    def abort(self, reason: str) -> None:
        """The driver ends, whatever the state."""
        ...


class Driver:
    """See the module.

    Args:
        core: What is run.
        run: Takes steps to their end. Called on the driver's thread.
        last_wait: Longest request that may be under way when the core is ended by force.
        journal: Flushed when there is nothing else to do.
        name: Of the thread.
        on_end: Called on the thread when the core has ended, or was ended.
    """

    def __init__(
        self,
        core: Core,
        run: Callable[[Steps[None]], object],
        *,
        last_wait: Callable[[], timedelta],
        clock: Clock,
        journal: DeferredJournal,
        name: str,
        on_end: Job = lambda: None,
    ) -> None:
        self._core, self._run, self._last_wait = core, run, last_wait
        self._clock, self._journal, self._on_end = clock, journal, on_end
        self._halted = False
        self._ended = threading.Event()
        self._thread = InboxThread(
            name, due_at=self._due_at, expired=self._expired, at_end=self._end, clock=clock
        )

    @property
    def here(self) -> bool:
        """Whether the caller runs on the driver's thread, so that nothing goes on until it returns."""
        return self._thread.here

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: There is no room for it. What is posted is forgotten.
        """
        try:
            self._thread.start()
        except RuntimeError:
            self._ended.set()
            raise

    def post(self, work: Work) -> None:
        """Put work into the inbox. Never blocks. Does nothing after the end."""
        if not self._ended.is_set():
            self._thread.post(partial(self._do, work))

    def stop(self, timeout: timedelta) -> bool:
        """Wait for the core to end by itself; then end it all the same.

        Returns:
            False if it had not ended: its latch node may stay until the session ends.
        """
        if self.here or not self._thread.is_alive:
            return True
        ended = self._ended.wait(timeout.total_seconds())
        if not ended:
            self._halted = True
            self.post(_nothing)
            self._ended.wait(self._last_wait().total_seconds())
        return ended

    def join(self, timeout: timedelta) -> bool:
        """Wait until the thread has ended, but not on it. False if it has not in time."""
        return self._thread.join(timeout)

    # --- on the thread ------------------------------------------------------------------------------

    @property
    def _is_over(self) -> bool:
        return self._halted or self._core.ended

    def _do(self, work: Work) -> None:
        if not self._is_over:
            try:
                self._run(work())
            except BaseException:  # noqa: BLE001 - a core handles what it foresees; this it did not
                _log.exception("election_driver_failed")
                self._core.abort("the election's driver failed")
        if self._is_over:
            self._thread.end()

    def _due_at(self) -> timedelta | None:
        if self._is_over:
            return None
        due_at = self._core.due_at
        if self._journal.empty:
            return due_at
        idle_at = self._clock() + _IDLE
        return idle_at if due_at is None else min(due_at, idle_at)

    def _expired(self) -> None:
        due_at = self._core.due_at
        if due_at is not None and due_at <= self._clock():
            self._do(self._core.expired)
        else:
            self._journal.flush()

    def _end(self) -> None:
        try:
            self._core.abort("the election's driver ended")
            self._journal.flush()
        finally:
            self._ended.set()
            self._on_end()


class SessionDriver(Driver):
    """A driver whose core asks a ZooKeeper session, and hears of it.

    While there is no connection the core has a timer: then the session is healed first.

    Args:
        core: See `Driver`.
        session: Started; stays the caller's.
        journal: See `Driver`.
        name: See `Driver`.
        on_end: See `Driver`.
    """

    def __init__(
        self,
        core: Core,
        session: ZooKeeperSession,
        *,
        clock: Clock,
        journal: DeferredJournal,
        name: str,
        on_end: Job = lambda: None,
    ) -> None:
        self._session = session
        super().__init__(
            core,
            SessionExecutor(session, self._on_watch).run,
            last_wait=lambda: session.negotiated_timeout / 3,
            clock=clock,
            journal=journal,
            name=name,
            on_end=on_end,
        )

    def start(self) -> None:
        """See `Driver`. The core is told that the link is up, if it is."""
        self._session.add_listener(self._on_session)
        if self._session.is_connected:
            self._on_session(SessionState.CONNECTED)
        try:
            super().start()
        except RuntimeError:
            self._session.remove_listener(self._on_session)
            raise

    def _expired(self) -> None:
        if not self._session.is_connected:
            self._session.heal()
        super()._expired()

    def _end(self) -> None:
        try:
            super()._end()
        finally:
            self._session.remove_listener(self._on_session)

    def _on_watch(self, path: str, gone: bool) -> None:
        """Kazoo's connection thread: only enqueue."""
        if path:
            self.post(lambda: self._core.heard(path, gone))

    def _on_session(self, state: SessionState) -> None:
        """Kazoo's connection thread: only enqueue."""
        event = link_event(state, self._session.session_id)
        if event is not None:
            self.post(lambda: self._core.link(event))


def link_event(state: SessionState, session_id: int | None) -> latch_m.LinkEvent | None:
    """Put a session's state into a latch's words."""
    if state is SessionState.CONNECTED:
        return None if session_id is None else latch_m.LinkUp(session_id)
    return latch_m.LinkDown() if state is SessionState.SUSPENDED else latch_m.SessionGone()


def _nothing() -> Steps[None]:
    yield from ()
