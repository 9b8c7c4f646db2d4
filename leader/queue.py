"""Taking part in an election: the one class most users need."""

from __future__ import annotations

import random
import threading
from datetime import timedelta

import structlog

from leader.clock import Clock, Countdown, boottime
from leader.config import ElectionConfig
from leader.errors import ElectionStateError, LeaderError
from leader.guard import Guard, GuardThread
from leader.journal import DeferredJournal, Journal, LogJournal
from leader.loop import Loop, link_event
from leader.notifier import Electable, Notifier
from leader.observers import read_leader, read_participants
from leader.office import events as ev
from leader.office.core import OfficeCore
from leader.protocol.records import LeaderInfo, Leadership, Participant, ParticipantView
from leader.status import ElectionStatus
from leader.zookeeper.acl import AclEnforcement
from leader.zookeeper.session import SessionState, ZooKeeperSession

_log = structlog.get_logger(__name__)


class LeaderLockQueue:
    """Queues for one lock; leads when the lock is held, the epoch raised and the guard content.

    `is_leader` may turn false at any moment and does so by itself; but between asking and acting anything
    can happen, so every write of leader state must be a `fenced_transaction` with the leadership's token.

    Threads, from the first `add_to_leader_lock_queue` until `close`: `leader-election`, `leader-notifier`,
    `leader-guard`, and, with a credential, `leader-acl`, which mends the access lists below the root once,
    and ends.

    Args:
        session: Started. Stays the caller's, who closes it after this queue.
        guard: Asked with the lock held and the epoch raised; see `Guard`.
        electable: Told of each leadership.
        journal: Told of each change; writes log lines without it.
        clock: Must not stand still while the machine sleeps.

    Raises:
        ElectionConfigError: The timings do not fit the session timeout that ZooKeeper granted.
    """

    def __init__(
        self,
        *,
        session: ZooKeeperSession,
        config: ElectionConfig,
        participant: Participant,
        guard: Guard,
        electable: Electable,
        journal: Journal | None = None,
        clock: Clock = boottime,
    ) -> None:
        config.check_against(session.config.session_timeout)
        config.check_against(session.negotiated_timeout)
        self._session, self._config, self._participant = session, config, participant
        deferred = DeferredJournal(journal or LogJournal(participant.id))
        self._loop = Loop(session, clock, deferred, "leader-election")
        self._guard = GuardThread(guard)
        self._notifier = Notifier(electable, self._on_electable_failed)
        self._core = OfficeCore(
            session=session,
            config=config,
            participant=participant,
            guard=self._guard,
            notifier=self._notifier,
            clock=clock,
            uniform=random.uniform,
            journal=deferred,
            post=self._post,
        )
        self._enforcer = _enforcer(session, config.root)
        self._lifecycle = threading.Lock()
        self._started = False
        self._closed = False

    def add_to_leader_lock_queue(self) -> None:
        """Queue, at the end. Returns at once; does nothing if we queue already. Ends a back-off.

        There need be no connection yet: joining goes on in the background until `close`.

        Raises:
            ElectionStateError: The queue was closed.
        """
        with self._lifecycle:
            if self._closed:
                raise ElectionStateError("this queue was closed; make a new LeaderLockQueue")
            if not self._started:
                self._started = True
                self._notifier.start()
                self._guard.start()
                if self._enforcer is not None:
                    self._enforcer.start()
                self._loop.start(self._core)
                event = link_event(SessionState.CONNECTED, self._session.session_id)
                if self._session.is_connected and event is not None:
                    self._loop.post(lambda: self._core.link(event))
        self._post(ev.AddAsked())

    def remove_from_leader_lock_queue(self) -> None:
        """Leave the queue, leading or not, and stay out until added again. Returns at once."""
        self._post(ev.RemoveAsked())

    def close(self, timeout: timedelta) -> None:
        """Stop leading, delete the latch so that a successor leads at once, and end. Safe to repeat.

        If ZooKeeper does not confirm within `timeout`, the latch may stay until the session ends.
        """
        with self._lifecycle:
            first, self._closed = not self._closed, True
        if not first or not self._started:
            return
        countdown = Countdown(timeout)
        self._post(ev.CloseAsked())
        if not self._loop.stop(countdown.remaining()):
            _log.warning("latch_not_confirmed_deleted", advice="close the session to be rid of it")
        if not self._notifier.close(countdown.remaining().total_seconds()):
            _log.warning("electable_still_busy")
        if self._enforcer is not None:
            self._enforcer.join(countdown.remaining().total_seconds())
        if not self._guard.close(countdown.remaining().total_seconds()):
            _log.warning("guard_still_busy")

    def is_leader(self) -> bool:
        """Whether we certainly lead at this moment. No I/O; any thread."""
        return self._core.leadership() is not None

    def leadership(self) -> Leadership | None:
        """The leadership, with its token, if we certainly lead at this moment. No I/O; any thread."""
        return self._core.leadership()

    def abdicate(self, reason: str) -> None:
        """Leave the queue, leading or not; back off; queue again at the end. Returns at once."""
        self._post(ev.AbdicationAsked(reason))

    def poke(self) -> None:
        """Say that the guard might answer otherwise now: ends a back-off. Returns at once."""
        self._post(ev.Poked())

    def publish_readiness(
        self, ready: bool, *, missing: int = 0, missing_bytes: int = 0, reasons: tuple[str, ...] = ()
    ) -> None:
        """Tell the others how ready we are. Who is not, yields to who is. Returns at once.

        To become ready ends a back-off; to say so again does not: `poke` does.

        Args:
            ready: Whether the guard would say yes.
            missing: How many things are missing, if not.
            missing_bytes: How much is left to fetch.
            reasons: What is missing, for people.
        """
        self._loop.post(lambda: self._core.readiness(ready, missing, missing_bytes, reasons))

    def get_all_participants(self) -> list[ParticipantView]:
        """Everybody in the queue, oldest first. See `read_participants`."""
        return read_participants(self._session, self._config.root)

    def get_leader(self) -> LeaderInfo | None:
        """The confirmed leader. See `read_leader`."""
        return read_leader(self._session, self._config.root)

    def status(self) -> ElectionStatus:
        """How we stand. No I/O; any thread."""
        return self._core.status()

    def _post(self, event: ev.Posted) -> None:
        self._loop.post(lambda: self._core.handle(event))

    def _on_electable_failed(self, leadership: Leadership, reason: str) -> None:
        """The notifier's thread."""
        self._post(ev.AbdicationAsked(reason, leadership.epoch))


def _enforcer(session: ZooKeeperSession, root: str) -> threading.Thread | None:
    """The thread that closes what others left open below `root`; None without a credential."""
    if session.config.auth is None:
        return None

    def enforce() -> None:
        try:
            for difference in AclEnforcement(session, root).fix():
                _log.warning("access_list_mended", difference=str(difference))
        except LeaderError as exc:
            _log.warning("access_lists_not_enforced", root=root, error=str(exc))

    return threading.Thread(target=enforce, name="leader-acl", daemon=True)
