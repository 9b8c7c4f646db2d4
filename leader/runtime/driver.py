"""The driver: one thread that runs a core and makes all its calls to ZooKeeper.

Work is put into the driver's inbox by kazoo's threads (which only enqueue), by the callback thread, and by
the owner's threads. The driver runs one piece of work at a time, to its end. It calls no foreign code except
the journal, so a guard or an electable that hangs cannot delay it.

`InboxThread`, a thread with an inbox, is also used by `leader.runtime.callbacks` and `leader.flink`.
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
"""Time without work after which the driver flushes the journal."""

Work = Callable[[], Steps[None]]
"""A call of the core that returns steps. Created on any thread; the driver calls it and runs the steps."""

OnWatch = Callable[[str, bool], None]
"""Called when a watch fires, with its path, and True if the node is gone. It must only enqueue."""

Job = Callable[[], None]


def _do_nothing() -> None:
    pass


class InboxThread:
    """A thread that does the jobs in its inbox, one at a time, in order.

    `post` and `end` never block. Any thread may call them, also in a signal handler.

    Args:
        due_at: Returns the time of the next call of `expired`, or None. Called before the wait for each job,
            on the thread.
        at_end: The last call on the thread, also if an exception ends it.
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
        """True when the caller runs on this thread."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        """True while the thread runs. False before `start`, and in a forked child."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread. RuntimeError if the system cannot start another one."""
        self._thread.start()

    def post(self, job: Job) -> None:
        """Put a job into the inbox, also before `start`. A job that is posted after `end` is not done."""
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread after the jobs that are in the inbox now."""
        self._jobs.put(None)

    def join(self, timeout: timedelta) -> bool:
        """Wait until the thread has ended; on the thread itself, do not wait. False if time ran out."""
        if self.here or not self.is_alive:
            return True
        self._thread.join(timeout.total_seconds())
        return not self.is_alive

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                try:
                    job()
                except BaseException:  # noqa: BLE001 - top of a thread: the jobs after a failed one must run
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
    """What a driver runs."""

    @property
    def ended(self) -> bool:
        """True when the core has ended: it has no more steps to run."""

    @property
    def due_at(self) -> timedelta | None:
        """Time at which the driver must call `expired`; None if no timer runs."""

    def watch_fired(self, path: str, gone: bool) -> Steps[None]:
        """Handle a watch that has fired: the node at `path` has changed, or is gone."""

    def link(self, event: latch_m.LinkEvent) -> Steps[None]:
        """Handle a change of the session's state."""

    def expired(self) -> Steps[None]:
        """Handle the timer: the time `due_at` is reached."""

    def abort(self, reason: str) -> None:
        """End leadership at once, in any state: the driver has failed, or ends."""


class Session(SessionView, Protocol):
    """The session that the core uses. See `leader.zookeeper.session.ZooKeeperSession`."""

    @property
    def answer_limit(self) -> timedelta:
        """Limit of the wait for one answer."""

    def add_listener(self, enqueue: Listener) -> None:
        """Call `enqueue` at each change of state, on a thread that it must not block."""

    def remove_listener(self, enqueue: Listener) -> None:
        """Undo `add_listener`."""

    def heal(self) -> None:
        """Start the connection thread again, if it has ended."""


class Driver:
    """See the module. Without a connection, a core has a timer; when it is due, the session is healed first.

    Args:
        asking: Takes the function to call when a watch fires. Returns the function that runs steps to their
            end, on the driver's thread.
        journal: Flushed when the driver has no work.
        on_end: Called on the thread when the core has ended by itself or by force.
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
        """True when the caller runs on the driver's thread; then the core does nothing until it returns."""
        return self._thread.here

    def start(self) -> None:
        """Start the thread. If the session is connected, the core gets the event `LinkUp`.

        RuntimeError if the system cannot start another thread; posted work is dropped then.
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
        """Wait until the core has ended by itself. When `timeout` is over, end it by force.

        False if it was ended by force: its latch node may exist until the session ends.
        """
        if self.here or not self._thread.is_alive:
            return True
        ended = self._ended.wait(timeout.total_seconds())
        if not ended:
            self._halted = True
            self._thread.post(partial(self._do, _nothing))
            self._ended.wait(self._session.answer_limit.total_seconds())  # a request may be in flight
        return ended

    def join(self, timeout: timedelta) -> bool:
        """See `InboxThread.join`."""
        return self._thread.join(timeout)

    # --- any thread: only enqueue -------------------------------------------------------------------

    def _on_watch(self, path: str, gone: bool) -> None:
        if path:  # without a path, the connection broke; `_on_session` learns that, too
            self.post(lambda: self._core.watch_fired(path, gone))

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
            except BaseException:  # noqa: BLE001 - a core handles the errors it expects, not this one
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
    """Return the latch's event for a state of the session; None for a connection without a session id."""
    if state is SessionState.CONNECTED:
        return None if session_id is None else latch_m.LinkUp(session_id)
    return latch_m.LinkDown() if state is SessionState.SUSPENDED else latch_m.SessionGone()


def _nothing() -> Steps[None]:
    yield from ()
