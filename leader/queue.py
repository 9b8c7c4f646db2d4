"""`LeaderLockQueue`, a participant of an election. Most users need only this class."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import TypeVar

import structlog

from leader.clock import Clock, Countdown, boottime, jittered
from leader.config import ElectionConfig
from leader.core.lease import check_margin
from leader.elector import Electable, Guard
from leader.errors import LeaderError, in_words
from leader.journal import Journal
from leader.protocol.participant import Participant
from leader.protocol.requests import Steps
from leader.runtime.base_elector import BaseElector
from leader.runtime.driver import OnWatch
from leader.zookeeper.acl import AclEnforcement
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.operations import read
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)

T = TypeVar("T")

_MAX_LOGGED = 5
"""Limit of the corrected nodes that the log line names."""

_RETRY_FIRST, _RETRY_MAX = timedelta(seconds=2), timedelta(minutes=1)


class LeaderLockQueue(BaseElector):
    """Queues for one lock. Leads once it holds the lock, the epoch is raised and the guard has said yes.

    `is_leader` can become false at any moment, without any call. A leader can be deposed between that check
    and a write, so every write of leader state must be a `fenced_transaction` with the leadership's token.

    Threads, from the first `add_to_leader_lock_queue` until `close`: `leader-election` decides and calls
    ZooKeeper, `leader-callbacks` calls guard and electable. With a credential and `mend_access_lists` also
    `leader-acl`: it corrects access lists below the root once, and ends.

    Args:
        session: A started session. The caller owns it, and closes it after this queue.
        guard: Called while the lock is held and the epoch is raised; see `Guard`.
        journal: Receives each change; without one, changes are written as log lines.
        clock: Must not stop while the machine sleeps.

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
        check_margin(config.step_down_margin, session.config.session_timeout)
        check_margin(config.step_down_margin, session.negotiated_timeout)
        self._session = session
        super().__init__(
            session,
            self._asking,
            config=config,
            participant=participant,
            guard=guard,
            electable=electable,
            journal=journal,
            clock=clock,
        )
        self._closing = threading.Event()
        mends = config.mend_access_lists and session.config.auth is not None
        self._enforcer = _enforcer(session, config.root, self._closing) if mends else None

    def _begin(self) -> None:
        if self._enforcer is not None:
            self._enforcer.start()
        super()._begin()

    def _finish(self, countdown: Countdown) -> None:
        self._closing.set()
        super()._finish(countdown)
        self._executor.forget_watches()
        if self._enforcer is not None and self._enforcer.ident is not None:  # else it was never started
            self._enforcer.join(countdown.remaining().total_seconds())

    def _asking(self, on_watch: OnWatch) -> Callable[[Steps[None]], None]:
        self._executor = SessionExecutor(self._session, on_watch)
        return self._executor.run

    def _read(self, steps: Callable[[], Steps[T]]) -> T:
        return read(self._session, steps)


def _enforcer(session: ZooKeeperSession, root: str, closing: threading.Event) -> threading.Thread:
    """Return the thread that corrects the access lists below `root`, once ZooKeeper answers."""

    def enforce() -> None:
        for tries in count(1):
            try:
                mended = AclEnforcement(session, root, stopping=closing).fix()
                break
            except Exception as exc:  # noqa: BLE001 - top of a thread: no end without a log line
                _log.warning("access_lists_not_enforced", root=root, error=in_words(exc))
                pause = jittered(_RETRY_FIRST, _RETRY_MAX, tries, random.uniform)
                retryable = isinstance(exc, LeaderError) and exc.retryable
                if not retryable or closing.wait(pause.total_seconds()):
                    return
        if mended:
            first = [str(difference) for difference in mended[:_MAX_LOGGED]]
            _log.warning("access_lists_mended", root=root, nodes=len(mended), first=first)

    return threading.Thread(target=enforce, name="leader-acl", daemon=True)
