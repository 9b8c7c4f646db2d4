"""Follows a leader without queueing: the election's leader, or that of one component.

The service watches one node. It reads the node again after each change and each reconnect, and every three
session timeouts. The view (`LeaderView`) is

- CURRENT after a read. It names no leader if the node does not exist.
- STALE as soon as the connection breaks, or after a read without an answer.
- UNKNOWN when the session is over, when the connection has been broken for longer than the session timeout
  (the service measures that time, because a client that is cut off gets no event), or when the node's content
  is invalid.

The epoch of views never falls. A lower epoch means that ZooKeeper's data was wiped or restored from an old
copy. The view is then UNKNOWN, with the reason, until an epoch at least as high is read or a new service is
made.

Not guaranteed: that the leader of a view still leads when the view is read. Use a view to find an address,
not to decide which participant may write: that needs a `FencingToken`. A component's view does not show a
newer leader whose component has not confirmed yet: compare epochs if that matters.
"""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from functools import partial
from typing import Protocol

import structlog

from leader.clock import RETRY_FIRST, RETRY_MAX, Clock, Countdown, boottime, jittered
from leader.errors import ElectionStateError, LeaderError, RecordError
from leader.flink.view import Knowledge, LeaderView, ViewState
from leader.protocol.paths import ElectionPaths, checked_name, checked_root
from leader.protocol.requests import Stat, watched
from leader.protocol.terms import decode_component, decode_leader
from leader.runtime.driver import InboxThread
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)

_CUT_OFF = "the connection to ZooKeeper is broken"
_OVER = "the ZooKeeper session is over"
_TOO_LONG = "the connection to ZooKeeper has been broken for longer than the session lasts"


class LeaderRetrievalListener(Protocol):
    """Called on the thread `leader-retrieval-listener`, one call at a time, in order."""

    def leader_changed(self, view: LeaderView) -> None:
        """The view has changed in more than `as_of`. The first call follows the first read of the node.

        Until ZooKeeper has answered once, there is no call: the view is UNKNOWN.
        """


class LeaderRetrievalService:
    """See the module.

    Threads, from `start` until `stop`: `leader-retrieval` reads the node, `leader-retrieval-listener` calls
    the listener. So a slow listener delays neither a read nor `view`.

    Args:
        session: A started session. The caller closes it.
        component: The component to follow; None: the election's leader.
        clock: Must not stop while the machine sleeps.

    Raises:
        ElectionConfigError: The root or the component cannot be a path in ZooKeeper.
    """

    def __init__(
        self, session: ZooKeeperSession, root: str, *, component: str | None = None, clock: Clock = boottime
    ) -> None:
        paths = ElectionPaths(checked_root(root))
        self._of_component = component is not None
        self._path = (
            paths.leader if component is None else paths.component(checked_name(component, "component"))
        )
        self._session, self._clock = session, clock
        self._executor = SessionExecutor(session, self._on_watch)
        self._known = Knowledge.none(clock())  # replaced as a whole; read by any thread
        self._notified: LeaderView | None = None  # the view of the listener's last call
        self._answered = False  # True when ZooKeeper has answered a read of the node
        self._cut_off_at: timedelta | None = None
        self._retry_at: timedelta | None = None
        self._failures = 0
        self._listener: LeaderRetrievalListener | None = None
        self._reader = InboxThread(
            "leader-retrieval", due_at=self._due_at, expired=self._expired, clock=clock
        )
        self._notifier = InboxThread("leader-retrieval-listener")
        self._lock = threading.Lock()  # held for a few instructions, never while calling foreign code
        self._started = self._stopped = False

    # --- any thread -------------------------------------------------------------------------------

    def start(self, listener: LeaderRetrievalListener | None = None) -> None:
        """Begin to follow. Returns at once, also without a connection.

        Without a listener, use `view`. ElectionStateError if it was started before.
        """
        with self._lock:
            if self._started or self._stopped:
                raise ElectionStateError("this retrieval was started before; make a new one")
            self._started = True
        self._listener = listener
        self._session.add_listener(self._on_session)
        self._reader.post(self._read_again)
        self._notifier.start()
        self._reader.start()

    def stop(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Stop. A call of the listener that has begun may still run. Safe to repeat, and within that call."""
        countdown = Countdown(timeout)
        with self._lock:
            first, self._stopped = not self._stopped, True
        if not first or not self._started:
            return
        self._session.remove_listener(self._on_session)
        self._reader.end()
        self._notifier.end()
        for thread in (self._reader, self._notifier):
            if not thread.join(countdown.remaining()):
                _log.warning("retrieval_still_busy", path=self._path)
        self._executor.forget_watches()

    def view(self) -> LeaderView:
        """Return the view at this moment. No I/O. It may be newer than the listener's last view."""
        known, unknown_at = self._known, self._unknown_at
        if self._stopped or not self._started:
            return known.forgot("the retrieval does not run", known.view.as_of).view
        if self._session.state is SessionState.LOST:
            return known.forgot(_OVER, known.view.as_of).view
        if self._session.state is SessionState.SUSPENDED:
            if unknown_at is not None and self._clock() >= unknown_at:
                return known.forgot(_TOO_LONG, known.view.as_of).view
            return known.doubted(_CUT_OFF).view
        return known.view

    @property
    def _unknown_at(self) -> timedelta | None:
        """When the connection will have been broken for the session timeout; None if it is not broken."""
        cut_off_at = self._cut_off_at
        return None if cut_off_at is None else cut_off_at + self._session.negotiated_timeout

    # --- kazoo's threads: only enqueue ----------------------------------------------------------------

    def _on_watch(self, path: str, gone: bool) -> None:  # noqa: ARG002 - the executor's
        if path:
            self._reader.post(self._read_again)

    def _on_session(self, state: SessionState) -> None:
        at = self._clock()
        self._reader.post(lambda: self._link(state, at))

    # --- the reading thread ---------------------------------------------------------------------------

    def _link(self, state: SessionState, at: timedelta) -> None:
        match state:
            case SessionState.CONNECTED:
                self._cut_off_at = None
                self._failures = 0
                self._read_again()
            case SessionState.SUSPENDED:
                self._cut_off_at = at
                self._heal_later()
                self._learn(self._known.doubted(_CUT_OFF))
            case SessionState.LOST:
                self._cut_off_at = None
                self._heal_later()
                self._learn(self._known.forgot(_OVER, at))

    def _read_again(self) -> None:
        self._retry_at = None
        if not self._session.is_connected:  # `_link` reads when there is a connection
            self._session.heal()
            self._heal_later()
            return
        at = self._clock()
        # In case a watch got lost. Otherwise the watch fires before.
        self._retry_at = at + self._session.negotiated_timeout * 3
        try:
            known = self._read(at)
        except LeaderError as exc:
            self._again_later()
            # After a retryable error the node's content is unknown. Any other error: it cannot be read.
            self._answered = self._answered or not exc.retryable
            known = self._known.doubted(str(exc)) if exc.retryable else self._known.forgot(str(exc), at)
        else:
            self._answered, self._failures = True, 0
        self._learn(known)

    def _read(self, at: timedelta) -> Knowledge:
        """Read the node and watch it. RecordError if a leader cannot have written its content."""
        node = self._executor.run(watched(self._path))
        if node is None:
            return self._known.read(LeaderView(ViewState.CURRENT, at))
        data, stat = node
        view = self._component_view(data, at) if self._of_component else self._leader_view(data, stat, at)
        return self._known.read(view, stat.created_zxid)

    def _component_view(self, data: bytes, at: timedelta) -> LeaderView:
        info = decode_component(data, self._path)
        return LeaderView(
            ViewState.CURRENT, at, info.participant_id, info.address, info.epoch, str(info.session)
        )

    def _leader_view(self, data: bytes, stat: Stat, at: timedelta) -> LeaderView:
        info = decode_leader(data, self._path)
        if stat.owner != info.session_id:
            raise RecordError(f"{self._path} was not written by the leader that it names")
        host, port = info.participant.host, info.participant.port
        address = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") if host else None
        return LeaderView(
            ViewState.CURRENT, at, info.participant.id, address, info.epoch, f"{info.session_id:#x}"
        )

    def _learn(self, known: Knowledge) -> None:
        self._known, view = known, known.view
        if not self._answered or (self._notified is not None and view.says_the_same(self._notified)):
            return
        if view.state is ViewState.UNKNOWN:
            _log.info("leader_unknown", path=self._path, reason=view.reason)
        self._notified = view
        if self._listener is not None:
            self._notifier.post(partial(self._notify, self._listener, view))

    def _notify(self, listener: LeaderRetrievalListener, view: LeaderView) -> None:
        if not self._stopped:
            listener.leader_changed(view)

    def _heal_later(self) -> None:
        """Read again after a time: if kazoo's connection thread has ended, only a read starts it again."""
        self._retry_at = self._clock() + self._session.negotiated_timeout

    def _again_later(self) -> None:
        self._failures += 1
        self._retry_at = self._clock() + jittered(RETRY_FIRST, RETRY_MAX, self._failures, random.uniform)

    def _due_at(self) -> timedelta | None:
        times = [self._retry_at]
        if self._known.view.state is ViewState.STALE:
            times.append(self._unknown_at)
        return min((at for at in times if at is not None), default=None)

    def _expired(self) -> None:
        now, unknown_at = self._clock(), self._unknown_at
        if unknown_at is not None and now >= unknown_at:
            self._learn(self._known.forgot(_TOO_LONG, now))
        if self._retry_at is not None and now >= self._retry_at:
            self._read_again()
