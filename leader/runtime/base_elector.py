"""The base class of the electors: the code that is the same over ZooKeeper and in memory."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import structlog

from leader.clock import Clock, Countdown
from leader.config import ElectionConfig
from leader.core.participant import model as m
from leader.core.participant.core import ParticipantCore
from leader.elector import Electable, ElectionStatus, Guard
from leader.errors import ElectionStateError
from leader.journal import DeferredJournal, Journal, LogJournal
from leader.protocol.participant import Participant
from leader.protocol.requests import Steps
from leader.protocol.terms import EpochRecord, LeaderInfo, Leadership
from leader.protocol.view import ParticipantView, epoch_steps, leader_steps, participants_steps
from leader.runtime.callbacks import Callbacks
from leader.runtime.driver import Driver, OnWatch, Session

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class BaseElector(ABC):
    """See the module, and `leader.elector.Elector`. Threads: see `LeaderLockQueue`."""

    def __init__(
        self,
        session: Session,
        asking: Callable[[OnWatch], Callable[[Steps[None]], object]],
        *,
        config: ElectionConfig,
        participant: Participant,
        guard: Guard,
        electable: Electable,
        journal: Journal | None,
        clock: Clock,
    ) -> None:
        deferred = DeferredJournal(journal or LogJournal(participant.id))
        self._callbacks = Callbacks(guard, electable, self._post)
        self._core = ParticipantCore(
            session=session,
            config=config,
            participant=participant,
            callbacks=self._callbacks,
            clock=clock,
            uniform=random.uniform,
            journal=deferred,
        )
        self._driver = Driver(
            self._core,
            session,
            asking,
            clock=clock,
            journal=deferred,
            name="leader-election",
            on_end=self._callbacks.end,
        )
        self._lifecycle = threading.Lock()  # held while threads start, not during a wait for their end
        self._started = self._close_called = False  # never reset to False, so read without a lock
        self._closed = threading.Event()

    # --- for subclasses -----------------------------------------------------------------------------

    def _prepare(self) -> None:  # noqa: B027 - most subclasses need nothing
        """Acquire what may be unavailable, such as a lock. Called before a thread is started."""

    def _begin(self) -> None:
        self._driver.start()

    def _finish(self, countdown: Countdown) -> None:
        """Wait until the core has ended. When the time is over, end it by force."""
        if not self._driver.stop(countdown.remaining()):
            _log.warning("latch_not_confirmed_deleted", advice="deleted when the session ends, at the latest")

    @abstractmethod
    def _read(self, steps: Callable[[], Steps[T]]) -> T:
        """Run steps that only read. Any thread."""

    # --- called by the owner, on any thread ---------------------------------------------------------

    def add_to_leader_lock_queue(self) -> None:
        """Join the queue at its end. Returns at once. Ends a back-off. Does nothing if already in the queue.

        No connection is needed yet: the driver thread tries again until it has joined, or until `close`.

        Raises:
            RuntimeError: The system cannot start another thread. The elector is now closed.
        """
        with self._lifecycle:
            if self._close_called:
                raise ElectionStateError(f"this elector was closed; make a new {type(self).__name__}")
            if not self._started:
                self._prepare()
                self._started = True
                self._start_threads()
        self._post(m.AddAsked())

    def _start_threads(self) -> None:
        """Start both threads. If one cannot start, end the other and raise."""
        try:
            self._callbacks.start()
            self._begin()
        except BaseException:
            self._close_called = True
            self._callbacks.end()
            try:
                self._end(Countdown(timedelta(0)))
            finally:
                self._closed.set()
            raise

    def remove_from_leader_lock_queue(self) -> None:
        """See `Elector.remove_from_leader_lock_queue`."""
        self._post(m.RemoveAsked())

    def close(self, timeout: timedelta) -> None:
        """Stop leading, delete the latch so that a successor leads at once, and end. Safe to repeat.

        `is_leader` is false as soon as this is called. A second call waits for the end of the first, but not
        longer than its own `timeout`. If ZooKeeper does not confirm the deletion in time, the latch may exist
        until the session ends.
        """
        with self._lifecycle:
            first, self._close_called = not self._close_called, True
        if first:
            try:
                if self._started:
                    self._end(Countdown(timeout))
            finally:
                self._closed.set()
        elif not (self._driver.here or self._callbacks.here):  # the first call waits for these threads
            self._closed.wait(timeout.total_seconds())

    def _end(self, countdown: Countdown) -> None:
        self._post(m.CloseAsked())
        self._finish(countdown)
        if self._driver.here:
            return
        self._driver.join(countdown.remaining())
        if not self._callbacks.join(countdown.remaining()):
            _log.warning("callback_still_busy", calling=self._callbacks.calling)

    def is_leader(self) -> bool:
        """See `Elector.is_leader`."""
        return self.leadership() is not None

    def leadership(self) -> Leadership | None:
        """See `Elector.leadership`."""
        return None if self._close_called else self._core.term.leadership()

    def abdicate(self, reason: str) -> None:
        """See `Elector.abdicate`."""
        self._post(m.AbdicationAsked(reason))

    def poke(self) -> None:
        """See `Elector.poke`."""
        self._post(m.Poked())

    def publish_readiness(
        self, ready: bool, *, missing: int = 0, missing_bytes: int = 0, reasons: tuple[str, ...] = ()
    ) -> None:
        """See `Elector.publish_readiness`."""
        self._driver.post(lambda: self._core.readiness(ready, missing, missing_bytes, reasons))

    def get_all_participants(self) -> list[ParticipantView]:
        """See `Elector.get_all_participants`."""
        return self._read(lambda: participants_steps(self._core.paths))

    def get_leader(self) -> LeaderInfo | None:
        """See `Elector.get_leader`."""
        return self._read(lambda: leader_steps(self._core.paths))

    def get_epoch(self) -> EpochRecord | None:
        """See `Elector.get_epoch`."""
        return self._read(lambda: epoch_steps(self._core.paths))

    def status(self) -> ElectionStatus:
        """See `Elector.status`."""
        return self._core.status()

    # --- internal -----------------------------------------------------------------------------------

    def _post(self, event: m.Event) -> None:
        self._driver.post(lambda: self._core.handle(event))
