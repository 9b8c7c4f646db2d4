"""The threads of an election, which take turns at driving its core and call foreign code in between.

Everything arrives in the inbox: from kazoo's threads (which only enqueue), from foreign code, from the owner.
One thread at a time drives: it takes what is in the inbox, and nobody else talks to ZooKeeper.

To wake another thread takes 0.1 ms, and a hand-over has none to give away. So whoever drives does not wake
one that calls the guard or the electable: it lets go of the core and calls them itself. Foreign code may
hang, and so one more thread stands by, which drives on as soon as there is something to do. Nobody is woken
if there is not. (Known as the leader/followers pattern.)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

from leader.clock import Clock, Countdown
from leader.crew import LOOK_S, Crew
from leader.errand import Afterwards, Errand
from leader.journal import DeferredJournal
from leader.protocol.requests import Operation, Steps

_log = structlog.get_logger(__name__)

_IDLE_S = 0.005
"""Nothing happened for so long: now there is time for the journal."""

_FIRST = 3
"""So many things that are in the inbox are done before an errand, so that nobody must be woken for them."""

_SOON = timedelta(seconds=LOOK_S)
"""A timer that runs out so soon cannot wait until who stands by looks."""

Work = Callable[[], Steps[None]]
"""Something for the core to do. Made on any thread, done by who drives."""


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

    def waits(self) -> None:
        """A request is on its way: time for what need not wait for the answer."""
        ...

    def abort(self, reason: str) -> None:
        """The loop ends, whatever the state."""
        ...


class Loop:
    """See the module. `post` may be called by any thread, and in a signal handler.

    Args:
        core: What is driven.
        run: Takes steps to their end. Called by who drives.
        last_wait: Longest request that may be under way when the core is ended by force.
        journal: Flushed when there is nothing else to do.
        name: Of the threads, which are numbered.
        foresee: Told of `Core.foreseen` when there is time.
    """

    def __init__(
        self,
        core: Core,
        run: Callable[[Steps[None]], object],
        *,
        last_wait: Callable[[], timedelta],
        clock: Clock,
        journal: DeferredJournal,
        name: str,
        foresee: Callable[[tuple[Operation, ...]], None] = lambda _operations: None,
    ) -> None:
        self._core, self._run, self._last_wait, self._foresee = core, run, last_wait, foresee
        self._clock, self._journal = clock, journal
        self._inbox: SimpleQueue[Work] = SimpleQueue()
        self._errands: deque[Errand] = deque()
        self._wheel = threading.Lock()  # held by who drives, for as long as it does; never waited for
        self._adrift = False  # whether whoever held the wheel has let go of it
        self._driver: threading.Thread | None = None
        self._crew = Crew(name, self._live, lambda: self._adrift)
        self._halt = threading.Event()
        self._ended = threading.Event()

    @property
    def drives(self) -> bool:
        """Whether the caller is called by who drives, so that nothing goes on until it returns."""
        return self._driver is threading.current_thread()

    @property
    def here(self) -> bool:
        """Whether the caller runs on a thread of ours, driving or not."""
        return self._crew.here

    def start(self, *, errands: bool) -> None:
        """Begin.

        Args:
            errands: Whether foreign code will be called. A hand-over has no time to start a thread for it.

        Raises:
            RuntimeError: There is no room for a thread. What is posted is forgotten.
        """
        try:
            for _ in range(1 + errands):
                self._crew.add()
        except RuntimeError:
            self._ended.set()
            raise

    def post(self, work: Work) -> None:
        """Put work into the inbox. Never blocks. Nobody would do what comes after the end."""
        if self._ended.is_set():
            return
        self._inbox.put(work)
        if self._adrift:
            self._crew.call()

    def send(self, errand: Errand) -> None:
        """Have foreign code called, soon; by who drives only. It may take as long as it likes."""
        self._errands.append(errand)

    def sent(self) -> None:
        """Who drives will wait for ZooKeeper now: others have the time for what it would do itself later."""
        self._core.waits()
        if self._errands and self._crew.somebody_stands_by():
            self._crew.call()

    def stop(self, timeout: timedelta) -> bool:
        """Wait for the core to end by itself; then end it all the same.

        Returns:
            False if it had not ended: its latch node may stay until the session ends.
        """
        if self.drives or not self._crew.lives:
            return True
        ended = self._ended.wait(timeout.total_seconds())
        if not ended:
            self._halt.set()
            self.post(_nothing)
            self._ended.wait(self._last_wait().total_seconds())
        return ended

    def join(self, countdown: Countdown) -> bool:
        """Wait until the threads have ended. False if foreign code still holds one; it is left alone."""
        return self._crew.join(countdown)

    # --- the threads ------------------------------------------------------------------------------

    def _live(self) -> None:
        """What each of them does."""
        afterwards: Afterwards | None = None
        while True:
            drives = self._take_wheel()
            if afterwards is not None:
                afterwards()  # with the wheel in our hands nobody needs to be called for it
            if drives:
                self._drive()
            afterwards = None
            try:
                errand = self._errands.popleft()
            except IndexError:
                if self._ended.is_set() or not self._crew.stand_by():
                    return
            else:
                afterwards = _done(errand)

    def _drive(self) -> None:
        """Until there is an errand, or the end."""
        try:
            first = _FIRST
            while not (self._core.ended or self._halt.is_set()):
                if not self._errands:
                    work = self._next()
                elif first and not self._inbox.empty():
                    first, work = first - 1, self._inbox.get_nowait()
                elif self._let_go():
                    return
                else:
                    work = self._next()
                self._do(work)
        except BaseException:
            if self.drives:  # else it was let go of, and another may drive on
                self._end()
            raise
        self._end()

    def _do(self, work: Work) -> None:
        try:
            self._run(work())
        except Exception:  # noqa: BLE001 - a core answers for all it foresees; this it did not
            _log.exception("election_loop_failed")
            self._core.abort("the election's loop failed")

    def _next(self) -> Work:
        """Wait for work or for the core's timer."""
        core = self._core
        while True:
            due_at = core.due_at
            wait_s = None if due_at is None else (due_at - self._clock()).total_seconds()
            if wait_s is not None and wait_s <= 0:
                return core.expired
            if not self._journal.empty:
                wait_s = _IDLE_S if wait_s is None else min(wait_s, _IDLE_S)
            if self._inbox.empty():
                self._foresee(core.foreseen)
            try:
                return self._inbox.get(timeout=wait_s)
            except Empty:
                self._journal.flush()

    def _take_wheel(self) -> bool:
        if not self._wheel.acquire(blocking=False):
            return False
        self._adrift = False
        self._driver = threading.current_thread()
        return True

    def _let_go(self) -> bool:
        """From here on `post` calls who stands by. False, and nothing is let go, if nobody could."""
        due_at = self._core.due_at
        hurry = len(self._errands) > 1 or (due_at is not None and due_at - self._clock() < _SOON)
        self._driver, self._adrift = None, True
        self._wheel.release()
        # Asked after the release: whoever is called before finds the wheel free, or somebody at it.
        if not self._crew.somebody_stands_by():
            return not self._take_wheel()
        if hurry or not self._inbox.empty():
            self._crew.call()
        return True

    def _end(self) -> None:
        """Keep the wheel: nobody shall drive any more."""
        try:
            self._core.abort("the election's loop ended")
            self._journal.flush()
        finally:
            self._driver = None
            self._ended.set()
            self._crew.dismiss()


def _done(errand: Errand) -> Afterwards | None:
    try:
        return errand()
    except BaseException:  # noqa: BLE001 - top of a thread: one errand's failure is not the others'
        _log.exception("errand_failed")
        return None


def _nothing() -> Steps[None]:
    yield from ()
