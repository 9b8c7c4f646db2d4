"""The threads of a loop: one that works, those that foreign code holds up, and one that stands by."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

import structlog

from leader.clock import Countdown

_log = structlog.get_logger(__name__)

LOOK_S = 1.0
"""So often who stands by looks whether all others are held up."""


class Crew:
    """See the module. One member at most stands by; who would be the second ends.

    Args:
        name: Of the threads, which are numbered.
        work: What each of them does; it calls `stand_by` when it has nothing to do.
        held_up: Whether nobody works, so that who stands by should look what there is to do.
    """

    def __init__(self, name: str, work: Callable[[], None], held_up: Callable[[], bool]) -> None:
        self._name, self._work, self._held_up = name, work, held_up
        self._calls: SimpleQueue[None] = SimpleQueue()  # to who stands by
        self._lock = threading.Lock()  # of the three below; held for a few instructions
        self._threads: list[threading.Thread] = []
        self._made = 0
        self._standing_by = False
        self._dismissed = False

    @property
    def here(self) -> bool:
        """Whether the caller runs on one of these threads."""
        return threading.current_thread() in self._threads

    @property
    def lives(self) -> bool:
        """Whether there are threads, as there are not before the first was added, nor in a forked child."""
        return any(thread.is_alive() for thread in self._threads)

    def add(self) -> None:
        """Start a thread. RuntimeError if there is no room for one."""
        with self._lock:
            self._made += 1
            thread = threading.Thread(target=self._work, name=f"{self._name}-{self._made}", daemon=True)
            self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._threads.remove(thread)
            raise

    def call(self) -> None:
        """Have who stands by look for something to do; if nobody does now, the next one looks at once.

        Any thread, also in a signal handler. Never blocks.
        """
        self._calls.put(None)

    def somebody_stands_by(self) -> bool:
        """Whether somebody does; if not, somebody will, unless there is no room for another thread."""
        if self._standing_by:
            return True
        try:
            self.add()
        except RuntimeError:
            _log.exception("election_thread_not_started")
            return False
        return True

    def stand_by(self) -> bool:
        """By a member: wait for a call, or until the others are held up. False if it is to end."""
        with self._lock:
            if self._standing_by:
                self._threads.remove(threading.current_thread())
                return False
            self._standing_by = True
        try:
            while not (self._dismissed or self._called() or self._held_up()):
                pass
        finally:
            self._standing_by = False
        return True

    def dismiss(self) -> None:
        """Nobody shall stand by any more: there will be nothing to do."""
        self._dismissed = True
        for _ in list(self._threads):
            self.call()

    def join(self, countdown: Countdown) -> bool:
        """Wait until all have ended, but not on one of their own threads. False if one is held up still."""
        if self.here:
            return True
        for thread in list(self._threads):
            if thread.ident is not None:  # else it is being started at this moment
                thread.join(countdown.remaining().total_seconds())
        return not self.lives

    def _called(self) -> bool:
        try:
            self._calls.get(timeout=LOOK_S)
        except Empty:
            return False
        return True
