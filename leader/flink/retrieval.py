"""Following who leads, from outside: pushed to observers, in order, and never backwards.

For the election's leader, or for any component of a `LeaderElectionService`. One node is watched; each change
is one reading.

What is said when (`LeaderView`, `ViewState`): CURRENT after a reading, with no leader if the node is not
there. STALE as soon as the connection breaks. UNKNOWN when the session is over, or when the connection has
been broken for longer than the session timeout, by a timer of our own, since a client that is cut off is not
told. After a reconnect the node is read anew.

An epoch below one that was seen means that ZooKeeper's data was wiped or restored from an old copy. It is
reported as UNKNOWN, with the reason, and not as a leader: whoever was told of epoch 9 is not sent back to
epoch 2. It stays so until epochs are above what was seen, or a new service is made.

Not guaranteed: that whom a view names still leads when you read it. It may have been deposed a moment ago; a
process that was stopped and wakes learns of that a moment later. Safe to find an address with, not to decide
who may write: for that there are `FencingToken`s. A component's view says nothing of a newer leader whose
component of that name has not confirmed yet: compare epochs where it matters.
"""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from typing import Protocol

import structlog

from leader.clock import Clock, Countdown, boottime
from leader.core.backoff import jittered
from leader.errors import ElectionStateError, LeaderError, RecordError
from leader.flink.view import Knowledge, LeaderView, Sighting, ViewState
from leader.protocol.component import decode_component
from leader.protocol.paths import ElectionPaths, checked_name, checked_root
from leader.protocol.requests import Stat, watched
from leader.protocol.terms import decode_leader
from leader.runtime.inbox import InboxThread
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)

_RETRY_FIRST = timedelta(milliseconds=100)
_RETRY_MAX = timedelta(seconds=2)
_CUT_OFF = "the connection to ZooKeeper is broken"
_OVER = "the ZooKeeper session is over"
_TOO_LONG = "the connection to ZooKeeper has been broken for longer than the session lasts"


class LeaderObserver(Protocol):
    """Called on the thread `leader-observers`, one call at a time, in order."""

    def leader_changed(self, view: LeaderView) -> None:
        """What is known of the leader has changed; the first call says what is known at the beginning."""
        ...


class LeaderRetrievalService:
    """See the module.

    Threads, from `start` until `stop`: `leader-retrieval` reads, `leader-observers` calls the observers, so
    that a slow one delays neither a reading nor `view`.

    Args:
        session: Started. Stays the caller's.
        root: Of the election.
        component: Whose leader information to follow; the election's leader without it.
        clock: Must not stand still while the machine sleeps.

    Raises:
        ElectionConfigError: The root or the component's name is none.
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
        self._read_once = False
        self._cut_off_at: timedelta | None = None
        self._retry_at: timedelta | None = None
        self._failures = 0
        self._observers: list[LeaderObserver] = []
        self._reader = InboxThread(
            "leader-retrieval", due_at=self._due_at, expired=self._expired, clock=clock
        )
        self._teller = InboxThread("leader-observers")
        self._lock = threading.Lock()  # held for a few instructions, never while calling anybody
        self._started = self._stopped = False

    # --- asked by any thread ----------------------------------------------------------------------

    def add_observer(self, observer: LeaderObserver) -> None:
        """Tell `observer` what is known now, and of each change from then on."""

        def add() -> None:
            self._observers.append(observer)
            if self._read_once:
                self._tell(observer, self._known.view)

        self._reader.post(add)

    def start(self) -> None:
        """Begin. Returns at once; there need be no connection yet.

        Raises:
            ElectionStateError: It was started before.
        """
        with self._lock:
            if self._started or self._stopped:
                raise ElectionStateError("this retrieval was started before; make a new one")
            self._started = True
        self._session.add_listener(self._on_session)
        self._reader.post(self._look)
        self._teller.start()
        self._reader.start()

    def stop(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """End; nothing is told afterwards but what is being told. Safe to repeat, and within a callback."""
        countdown = Countdown(timeout)
        with self._lock:
            first, self._stopped = not self._stopped, True
        if not first or not self._started:
            return
        self._session.remove_listener(self._on_session)
        self._reader.end()
        self._teller.end()
        for thread in (self._reader, self._teller):
            if not thread.join(countdown.remaining()):
                _log.warning("retrieval_still_busy", path=self._path)

    def view(self) -> LeaderView:
        """What is known at this moment. No I/O; any thread. May be ahead of what observers were told."""
        known, cut_off_at = self._known, self._cut_off_at
        if self._stopped or not self._started:
            return known.forgot("the retrieval does not run", known.view.as_of).view
        if self._session.state is SessionState.LOST:
            return known.forgot(_OVER, known.view.as_of).view
        if self._session.state is SessionState.SUSPENDED:
            if cut_off_at is not None and self._clock() >= cut_off_at + self._session.negotiated_timeout:
                return known.forgot(_TOO_LONG, known.view.as_of).view
            return known.doubted(_CUT_OFF).view
        return known.view

    # --- kazoo's threads: only enqueue ----------------------------------------------------------------

    def _on_watch(self, path: str, gone: bool) -> None:  # noqa: ARG002 - the executor's
        if path:
            self._reader.post(self._look)

    def _on_session(self, state: SessionState) -> None:
        at = self._clock()
        self._reader.post(lambda: self._link(state, at))

    # --- the reading thread ---------------------------------------------------------------------------

    def _link(self, state: SessionState, at: timedelta) -> None:
        match state:
            case SessionState.CONNECTED:
                self._cut_off_at = None
                self._failures = 0
                self._look()
            case SessionState.SUSPENDED:
                self._cut_off_at, self._retry_at = at, None  # nothing can be read until there is a connection
                self._learn(self._known.doubted(_CUT_OFF))
            case SessionState.LOST:
                self._cut_off_at = self._retry_at = None
                self._learn(self._known.forgot(_OVER, at))

    def _look(self) -> None:
        """Read the node, and watch it."""
        self._retry_at = None
        if not self._session.is_connected:
            return  # we are told when there is a connection
        at = self._clock()
        # For the watch that got lost, and for what nobody foresaw; else we are told sooner.
        self._retry_at = at + self._session.negotiated_timeout * 3
        try:
            found = self._executor.run(watched(self._path))
            known = self._known.saw(None if found is None else self._read(*found), at)
        except RecordError as exc:
            self._again_later()
            self._learn(self._known.forgot(str(exc), at))
        except LeaderError as exc:
            self._again_later()
            if exc.retryable:
                self._learn(self._known.doubted(str(exc)))
            else:
                self._learn(self._known.forgot(str(exc), at))
        else:
            self._failures = 0
            self._learn(known)

    def _read(self, data: bytes, stat: Stat) -> Sighting:
        """Put the node's content into words. RecordError if it is none that a leader wrote."""
        if self._of_component:
            component = decode_component(data, self._path)
            return Sighting(
                component.participant_id,
                component.address,
                component.epoch,
                str(component.session),
                stat.created_zxid,
            )
        info = decode_leader(data, self._path)
        if stat.owner != info.session_id:
            raise RecordError(f"{self._path} was not written by the leader that it names")
        host, port = info.participant.host, info.participant.port
        address = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") if host else None
        return Sighting(info.participant.id, address, info.epoch, f"{info.session_id:#x}", stat.created_zxid)

    def _learn(self, known: Knowledge) -> None:
        before, self._known = self._known, known
        if self._read_once and known.view.says_the_same(before.view):
            return
        if known.view.state is ViewState.UNKNOWN and known.highest == before.highest:
            _log.info("leader_unknown", path=self._path, reason=known.view.reason)
        self._read_once = True
        for observer in self._observers:
            self._tell(observer, known.view)

    def _tell(self, observer: LeaderObserver, view: LeaderView) -> None:
        def tell() -> None:
            if not self._stopped:
                observer.leader_changed(view)

        self._teller.post(tell)

    def _again_later(self) -> None:
        self._failures += 1
        self._retry_at = self._clock() + jittered(_RETRY_FIRST, _RETRY_MAX, self._failures, random.uniform)

    def _due_at(self) -> timedelta | None:
        times = [] if self._retry_at is None else [self._retry_at]
        if self._cut_off_at is not None and self._known.view.state is ViewState.STALE:
            times.append(self._cut_off_at + self._session.negotiated_timeout)
        return min(times, default=None)

    def _expired(self) -> None:
        now = self._clock()
        cut_off_at = self._cut_off_at
        if cut_off_at is not None and now >= cut_off_at + self._session.negotiated_timeout:
            self._learn(self._known.forgot(_TOO_LONG, now))
        if self._retry_at is not None and now >= self._retry_at:
            self._look()
