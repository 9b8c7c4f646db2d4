"""The face of a participant: what its owner calls, wherever the queue lies and whoever drives the core."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from datetime import timedelta

import structlog

from leader.clock import Clock, Countdown
from leader.config import ElectionConfig
from leader.ending import Ending
from leader.errand import Errand
from leader.errors import ElectionStateError
from leader.guard import Guard, GuardAsker
from leader.journal import DeferredJournal, Journal, LogJournal
from leader.latch.ports import SessionView
from leader.loop import Loop
from leader.notifier import Electable, Notifier
from leader.office import events as ev
from leader.office.core import OfficeCore
from leader.protocol.participant import Participant
from leader.protocol.terms import Leadership
from leader.status import ElectionStatus

_log = structlog.get_logger(__name__)


class ParticipantFace(ABC):
    """See the module, and `leader.elector.Elector`, which a subclass completes with its reads.

    Threads, from the first `add_to_leader_lock_queue` until `close`: those of the loop.
    """

    _loop: Loop
    """Drives the core. Made by the subclass."""

    def __init__(
        self,
        session: SessionView,
        *,
        config: ElectionConfig,
        participant: Participant,
        guard: Guard,
        electable: Electable,
        journal: Journal | None,
        clock: Clock,
    ) -> None:
        self._journal = DeferredJournal(journal or LogJournal(participant.id))
        self._guard = GuardAsker(guard, self._send)
        self._notifier = Notifier(electable, self._on_electable_failed, self._send)
        self._core = OfficeCore(
            session=session,
            config=config,
            participant=participant,
            guard=self._guard,
            notifier=self._notifier,
            clock=clock,
            uniform=random.uniform,
            journal=self._journal,
            post=self._post,
        )
        self._lifecycle = threading.Lock()  # held while threads are started, never while they are waited for
        self._started = False
        self._ending = Ending()

    # --- what a subclass drives the core with -------------------------------------------------------

    def _prepare(self) -> None:  # noqa: B027 - most need nothing
        """Whatever may refuse to be had, before anything is started."""

    @abstractmethod
    def _begin(self) -> None:
        """Start the loop."""

    @abstractmethod
    def _finish(self, countdown: Countdown) -> None:
        """Wait until the core has ended, or end it."""

    # --- called by the owner, on any thread ---------------------------------------------------------

    def add_to_leader_lock_queue(self) -> None:
        """Queue, at the end. Returns at once; does nothing if we queue already. Ends a back-off.

        There need be no connection yet: joining goes on in the background until `close`.

        Raises:
            ElectionStateError: It was closed.
            RuntimeError: There is no room for its threads. It is closed then.
        """
        with self._lifecycle:
            if self._ending.begun:
                raise ElectionStateError(f"this was closed; make a new {type(self).__name__}")
            if not self._started:
                self._prepare()
                self._started = True
                self._begin_or_end()
        self._post(ev.AddAsked())

    def _begin_or_end(self) -> None:
        try:
            self._begin()
        except BaseException:
            self._ending.begin()
            try:
                self._end(Countdown(timedelta(0)))
            finally:
                self._ending.over()
            raise

    def remove_from_leader_lock_queue(self) -> None:
        """Leave the queue, leading or not, and stay out until added again. Returns at once."""
        self._post(ev.RemoveAsked())

    def close(self, timeout: timedelta) -> None:
        """Stop leading, delete the latch so that a successor leads at once, and end. Safe to repeat.

        `is_leader` is false as soon as this is called. Who calls it while another does waits for that one,
        but no longer than its own `timeout`. If ZooKeeper does not confirm in time, the latch may stay until
        the session ends.
        """
        with self._lifecycle:
            first = self._ending.begin()
        if not first:
            if not self._loop.here:  # a thread that is waited for
                self._ending.wait(timeout)
            return
        try:
            if self._started:
                self._end(Countdown(timeout))
        finally:
            self._ending.over()

    def _end(self, countdown: Countdown) -> None:
        self._post(ev.CloseAsked())
        self._finish(countdown)
        if not self._loop.join(countdown):
            _log.warning("foreign_code_still_busy", electable=self._notifier.busy, guard=self._guard.busy)

    def is_leader(self) -> bool:
        """Whether we certainly lead at this moment. No I/O; any thread."""
        return self.leadership() is not None

    def leadership(self) -> Leadership | None:
        """The leadership, with its token, if we certainly lead at this moment. No I/O; any thread."""
        return None if self._ending.begun else self._core.leadership()

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

    def status(self) -> ElectionStatus:
        """How we stand. No I/O; any thread."""
        return self._core.status()

    # --- the inside ---------------------------------------------------------------------------------

    def _post(self, event: ev.Posted) -> None:
        self._loop.post(lambda: self._core.handle(event))

    def _send(self, errand: Errand) -> None:
        self._loop.send(errand)

    def _on_electable_failed(self, leadership: Leadership, reason: str) -> None:
        self._post(ev.AbdicationAsked(reason, leadership.epoch))
