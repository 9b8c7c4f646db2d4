"""Taking part in an election: the one class most users need."""

from __future__ import annotations

import threading
from datetime import timedelta

import structlog

from leader import events as ev
from leader.clock import Clock, boottime
from leader.config import ElectionConfig
from leader.elector import Elector
from leader.errors import ElectionStateError
from leader.guard import Guard, GuardRunner, Verdict
from leader.notifier import Electable, Notifier
from leader.observers import read_leader, read_participants
from leader.protocol.records import LeaderInfo, Leadership, Participant, ParticipantView
from leader.status import ElectionStatus
from leader.store import ElectionStore
from leader.tenure import Tenure
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)


class LeaderLockQueue:
    """Queues for one lock; leads when the lock is held, the epoch raised and the guard content.

    `is_leader` may turn false at any moment and does so by itself; but between asking and acting anything
    can happen, so every write of leader state must be a `fenced_transaction` with the leadership's token.

    Threads: `leader-elector`, `leader-notifier`, and `leader-guard` while the guard is asked.

    Args:
        session: Started. Stays the caller's, who closes it after this queue.
        guard: Asked with the lock held and the epoch raised; see `Guard`.
        electable: Told of each leadership.
        clock: Must not stand still while the machine sleeps.
    """

    def __init__(
        self,
        *,
        session: ZooKeeperSession,
        config: ElectionConfig,
        participant: Participant,
        guard: Guard,
        electable: Electable,
        clock: Clock = boottime,
    ) -> None:
        config.check_against(session.config.session_timeout)
        config.check_against(session.negotiated_timeout)
        self._session, self._config = session, config
        self._tenure = Tenure(session, clock, config.step_down_margin)
        self._guard = GuardRunner(guard, self._on_verdict)
        self._notifier = Notifier(electable, self._on_electable_failed)
        store = ElectionStore(session, config.root, participant, lambda: self._elector.post(ev.Nudged()))
        self._elector = Elector(
            store=store,
            session=session,
            config=config,
            guard=self._guard,
            notifier=self._notifier,
            tenure=self._tenure,
            clock=clock,
        )
        self._thread = threading.Thread(target=self._elector.run, name="leader-elector", daemon=True)
        self._lifecycle = threading.Lock()
        self._started = False
        self._closed = False

    def start(self) -> None:
        """Begin to queue. Returns at once. Once only: ElectionStateError otherwise."""
        with self._lifecycle:
            if self._started or self._closed:
                raise ElectionStateError("this queue was started before; make a new LeaderLockQueue")
            self._started = True
        self._session.add_listener(self._on_session)
        self._notifier.start()
        self._thread.start()
        self._elector.post(ev.Started())

    def close(self, timeout: timedelta) -> None:
        """Stop leading, delete the latch so that a successor leads at once, and end. Safe to repeat.

        If ZooKeeper does not confirm within `timeout`, the latch may stay until the session ends.
        """
        with self._lifecycle:
            first, self._closed = not self._closed, True
        if not first or not self._started:
            return
        deadline = _Countdown(timeout)
        self._elector.post(ev.CloseAsked())
        self._join_elector(deadline)
        self._session.remove_listener(self._on_session)
        if not self._notifier.close(deadline.remaining_s()):
            _log.warning("electable_still_busy")
        if not self._guard.join(deadline.remaining_s()):
            _log.warning("guard_still_busy")

    def is_leader(self) -> bool:
        """Whether we certainly lead at this moment. No I/O; any thread."""
        return self._tenure.current() is not None

    def leadership(self) -> Leadership | None:
        """The leadership, with its token, if we certainly lead at this moment. No I/O; any thread."""
        return self._tenure.current()

    def abdicate(self, reason: str) -> None:
        """Leave the queue, leading or not; back off; queue again at the end. Returns at once."""
        self._elector.post(ev.AbdicationAsked(reason))

    def poke(self) -> None:
        """Say that the guard might answer otherwise now: ends a back-off. Returns at once."""
        self._elector.post(ev.Poked())

    def participants(self) -> list[ParticipantView]:
        """Everybody in the queue, oldest first. See `read_participants`."""
        return read_participants(self._session, self._config.root)

    def leader(self) -> LeaderInfo | None:
        """The confirmed leader. See `read_leader`."""
        return read_leader(self._session, self._config.root)

    def status(self) -> ElectionStatus:
        """How we stand. No I/O; any thread."""
        return self._elector.status()

    def _join_elector(self, deadline: _Countdown) -> None:
        if threading.current_thread() is self._thread:
            return
        self._thread.join(deadline.remaining_s())
        if self._thread.is_alive():
            _log.warning("latch_not_confirmed_deleted", advice="close the session to be rid of it")
            self._elector.halt()
            # Its calls to ZooKeeper are bounded; when the present one ends, so does the thread.
            self._thread.join(self._session.negotiated_timeout.total_seconds() / 3)

    def _on_session(self, state: SessionState) -> None:
        """Kazoo's connection thread: only enqueue."""
        session_id = self._session.session_id
        if state is SessionState.CONNECTED and session_id is not None:
            self._elector.post(ev.LinkUp(session_id))
        elif state is SessionState.SUSPENDED:
            self._elector.post(ev.LinkDown())
        elif state is SessionState.LOST:
            self._elector.post(ev.SessionGone())

    def _on_verdict(self, epoch: int, verdict: Verdict) -> None:
        """The guard's thread, or the elector's."""
        self._elector.post(ev.GuardSaid(epoch, verdict.ready is True, tuple(verdict.reasons)))

    def _on_electable_failed(self, leadership: Leadership, reason: str) -> None:
        """The notifier's thread."""
        self._elector.post(ev.AbdicationAsked(reason, leadership.epoch))


class _Countdown:
    """What is left of a time limit that several waits share."""

    def __init__(self, limit: timedelta) -> None:
        self._end = boottime() + limit

    def remaining_s(self) -> float:
        return max((self._end - boottime()).total_seconds(), 0.0)
