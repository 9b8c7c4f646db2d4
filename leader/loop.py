"""The one thread of an election: takes what happened from its inbox and drives a core with it over kazoo.

Everything arrives in the inbox: from kazoo's threads (which only enqueue), from the guard's and the
notifier's, from the owner. Only this thread talks to ZooKeeper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

from leader.clock import Clock
from leader.journal import DeferredJournal
from leader.latch import events as latch_ev
from leader.protocol.requests import Operation, Steps
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)

_IDLE_S = 0.005
"""Nothing happened for so long: now there is time for the journal."""

LinkEvent = latch_ev.LinkUp | latch_ev.LinkDown | latch_ev.SessionGone

Work = Callable[[], Steps[None]]
"""Something for the core to do. Made on any thread, done on the loop's."""


class Core(Protocol):
    """What a loop can drive."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        ...

    @property
    def due_at(self) -> timedelta | None:
        """When `expired` wants to be called."""
        ...

    @property
    def foreseen(self) -> tuple[Operation, ...]:
        """A transaction that will be in a hurry when it comes; empty if there is none."""
        ...

    def expired(self) -> Steps[None]:
        """`due_at` has come."""
        ...

    def heard(self, path: str, gone: bool) -> Steps[None]:
        """A watch has fired."""
        ...

    def link(self, event: LinkEvent) -> Steps[None]:
        """The session changed its state."""
        ...

    def waits(self) -> None:
        """A request is on its way: time for what need not wait for the answer."""
        ...

    def abort(self, reason: str) -> None:
        """The loop ends, whatever the state."""
        ...


class Loop:
    """See the module. `post` may be called by any thread.

    Args:
        journal: Flushed when there is nothing else to do.
        name: Of the thread.
    """

    def __init__(self, session: ZooKeeperSession, clock: Clock, journal: DeferredJournal, name: str) -> None:
        self._session, self._clock, self._journal = session, clock, journal
        self._inbox: SimpleQueue[Work] = SimpleQueue()
        self._executor = SessionExecutor(session, self._on_watch, on_sent=self._on_sent)
        self._halt = threading.Event()
        self._over = False
        self._core: Core | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self, core: Core) -> None:
        """Begin to drive `core`."""
        self._core = core
        self._session.add_listener(self._on_session)
        self.thread.start()

    def post(self, work: Work) -> None:
        """Put work into the inbox. Never blocks. Nobody would do what comes after the end."""
        if not self._over:
            self._inbox.put(work)

    def stop(self, timeout: timedelta) -> bool:
        """Wait for the core to end by itself; then end the thread all the same.

        Returns:
            False if the core had not ended: its latch node may stay until the session ends.
        """
        if threading.current_thread() is self.thread:
            return True
        self.thread.join(timeout.total_seconds())
        ended = not self.thread.is_alive()
        if not ended:
            self._halt.set()
            self._inbox.put(_nothing)
            # Its calls to ZooKeeper are bounded; when the present one ends, so does the thread.
            self.thread.join(self._session.negotiated_timeout.total_seconds() / 3)
        self._session.remove_listener(self._on_session)
        return ended

    def _run(self) -> None:
        core = self._core
        assert core is not None  # noqa: S101 - start() has set it
        try:
            while not core.ended and not self._halt.is_set():
                work = self._next(core)
                try:
                    self._executor.run(work())
                except Exception:  # noqa: BLE001 - a core answers for all it foresees; this it did not
                    _log.exception("election_loop_failed")
                    core.abort("the election's loop failed")
        finally:
            self._over = True
            core.abort("the election's loop ended")
            self._journal.flush()

    def _next(self, core: Core) -> Work:
        """Wait for work or for the core's timer."""
        while True:
            due_at = core.due_at
            wait_s = None if due_at is None else (due_at - self._clock()).total_seconds()
            if wait_s is not None and wait_s <= 0:
                return core.expired
            if not self._journal.empty:
                wait_s = _IDLE_S if wait_s is None else min(wait_s, _IDLE_S)
            if self._inbox.empty():
                self._executor.foresee(core.foreseen)
            try:
                return self._inbox.get(timeout=wait_s)
            except Empty:
                self._journal.flush()

    def _on_sent(self) -> None:
        if self._core is not None:
            self._core.waits()

    def _on_watch(self, path: str, gone: bool) -> None:
        """Kazoo's connection thread: only enqueue."""
        core = self._core
        if path and core is not None:
            self.post(lambda: core.heard(path, gone))

    def _on_session(self, state: SessionState) -> None:
        """Kazoo's connection thread: only enqueue."""
        core, event = self._core, link_event(state, self._session.session_id)
        if core is not None and event is not None:
            self.post(lambda: core.link(event))


def link_event(state: SessionState, session_id: int | None) -> LinkEvent | None:
    """Put a session's state into a latch's words."""
    if state is SessionState.CONNECTED:
        return None if session_id is None else latch_ev.LinkUp(session_id)
    return latch_ev.LinkDown() if state is SessionState.SUSPENDED else latch_ev.SessionGone()


def _nothing() -> Steps[None]:
    yield from ()
