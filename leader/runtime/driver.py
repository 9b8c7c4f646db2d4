"""The driver: one thread that runs a core, and alone calls ZooKeeper for it.

Work arrives in the driver's inbox, from kazoo's threads (which only enqueue), from the callback thread, and
from the owner. The driver takes one piece of work at a time and runs it to its end. It calls no foreign code
but the journal, so a guard or an electable that hangs cannot hold it up.

The thread with an inbox below it is also that of the callbacks and of the services above.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

from leader.clock import Clock, boottime
from leader.core.latch import model as latch_m
from leader.core.lease import SessionView
from leader.journal import DeferredJournal
from leader.protocol.requests import Steps
from leader.zookeeper.states import Listener, SessionState

_log = structlog.get_logger(__name__)

_IDLE = timedelta(milliseconds=5)
"""When nothing has happened for so long, there is time for the journal."""

Work = Callable[[], Steps[None]]
"""Something for the core to do. Made on any thread, run by the driver."""

OnWatch = Callable[[str, bool], None]
"""Told that a watch has fired: of which path, and whether the node is gone. It only enqueues."""

Job = Callable[[], None]


def _do_nothing() -> None:
    pass


class InboxThread:
    """A thread that does the jobs in its inbox, one at a time, in order.

    `post` and `end` never block. Any thread may call them, also in a signal handler.

    Args:
        name: Of the thread.
        due_at: When `expired` wants to be called; asked after each job, on the thread.
        expired: Called on the thread when `due_at` has come.
        at_end: The last thing called on the thread, whatever ends it.
        clock: Of `due_at`.
    """

    def __init__(
        self,
        name: str,
        *,
        due_at: Callable[[], timedelta | None] = lambda: None,
        expired: Job = _do_nothing,
        at_end: Job = _do_nothing,
        clock: Clock = boottime,
    ) -> None:
        self._due_at, self._expired, self._at_end, self._clock = due_at, expired, at_end, clock
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def here(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        """Whether it runs. False before `start`, and in a forked child."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. RuntimeError if there is no room for it."""
        self._thread.start()

    def post(self, job: Job) -> None:
        """Put a job into the inbox. It is done if the thread was started and `end` was not called before."""
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread after what is in the inbox now."""
        self._jobs.put(None)

    def join(self, timeout: timedelta) -> bool:
        """Wait for the end, but not on the thread itself. False if it was not reached in time."""
        if self.here or not self.is_alive:
            return True
        self._thread.join(timeout.total_seconds())
        return not self.is_alive

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                try:
                    job()
                except BaseException:  # noqa: BLE001 - top of a thread: one job's failure is not the others'
                    _log.exception("job_failed", thread=self._thread.name)
        finally:
            self._at_end()

    def _next(self) -> Job | None:
        due_at = self._due_at()
        if due_at is None:
            return self._jobs.get()
        wait_s = (due_at - self._clock()).total_seconds()
        if wait_s <= 0:
            return self._expired
        try:
            return self._jobs.get(timeout=min(wait_s, threading.TIMEOUT_MAX))
        except Empty:
            return self._expired


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


class Session(SessionView, Protocol):
    """The session that the core asks. See `leader.zookeeper.session.ZooKeeperSession`."""

    @property
    def answer_limit(self) -> timedelta:
        """Longest wait for one answer."""
        ...

    def add_listener(self, enqueue: Listener) -> None:
        """Be told of each change of state, by a thread that must not be blocked."""
        ...

    def remove_listener(self, enqueue: Listener) -> None:
        """Undo `add_listener`."""
        ...

    def heal(self) -> None:
        """Start again what connects, if it has ended."""
        ...


class Driver:
    """See the module. While there is no connection, a core has a timer: then the session is healed first.

    Args:
        core: What is run.
        session: Started; stays the caller's.
        asking: Given whom to tell of a watch, returns what takes steps to their end, on the driver's thread.
        journal: Flushed when there is nothing else to do.
        name: Of the thread.
        on_end: Called on the thread when the core has ended, or was ended.
    """

    def __init__(
        self,
        core: Core,
        session: Session,
        asking: Callable[[OnWatch], Callable[[Steps[None]], object]],
        *,
        clock: Clock,
        journal: DeferredJournal,
        name: str,
        on_end: Job = _do_nothing,
    ) -> None:
        self._core, self._session, self._run = core, session, asking(self._on_watch)
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
        """Start the thread. The core is told that the link is up, if it is.

        Raises:
            RuntimeError: There is no room for the thread. What is posted is forgotten.
        """
        self._session.add_listener(self._on_session)
        if self._session.liveness.facts.is_connected:
            self._on_session(SessionState.CONNECTED)
        try:
            self._thread.start()
        except RuntimeError:
            self._ended.set()
            self._session.remove_listener(self._on_session)
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
            self._thread.post(partial(self._do, _nothing))
            self._ended.wait(self._session.answer_limit.total_seconds())  # for a request that is under way
        return ended

    def join(self, timeout: timedelta) -> bool:
        """Wait until the thread has ended, but not on it. False if it has not in time."""
        return self._thread.join(timeout)

    # --- any thread: only enqueue -------------------------------------------------------------------

    def _on_watch(self, path: str, gone: bool) -> None:
        if path:  # else it is the connection that broke, and the session says so
            self.post(lambda: self._core.heard(path, gone))

    def _on_session(self, state: SessionState) -> None:
        event = link_event(state, self._session.liveness.facts.session_id)
        if event is not None:
            self.post(lambda: self._core.link(event))

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
        if not self._session.liveness.facts.is_connected:
            self._session.heal()
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
            self._session.remove_listener(self._on_session)
            self._on_end()


def link_event(state: SessionState, session_id: int | None) -> latch_m.LinkEvent | None:
    """Put a session's state into a latch's words."""
    if state is SessionState.CONNECTED:
        return None if session_id is None else latch_m.LinkUp(session_id)
    return latch_m.LinkDown() if state is SessionState.SUSPENDED else latch_m.SessionGone()


def _nothing() -> Steps[None]:
    yield from ()
