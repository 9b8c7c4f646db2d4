"""An event loop on one thread: messages, timers, and the end of processes.

Other threads (a watch, a pool) may only `post`; all other calls are made on the loop's own thread.
"""

from __future__ import annotations

import heapq
import io
import itertools
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

Action = Callable[[], None]
_LONGEST_WAIT_S = 60.0
_ONE = (1).to_bytes(8, sys.byteorder)


class Loop:
    """Runs actions one after the other, on the thread that calls `run`."""

    def __init__(self) -> None:
        self._inbox: deque[Action] = deque()
        # A file object instead of a descriptor: a late ring after its end must not write into another file.
        self._wake = io.FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+")
        self._timers: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self._handles: dict[int, Action] = {}
        self._listeners: dict[int, Action] = {}
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._stopping = threading.Event()

    def post(self, action: Action) -> None:
        """Run an action soon. Any thread; never blocks."""
        self._inbox.append(action)
        self._ring()

    def after(self, delay_s: float, action: Action) -> None:
        """Run an action after a delay. Loop thread."""
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._order), action))

    def when_ended(self, handle: int, action: Action) -> None:
        """Run an action when a process ends, given by its pidfd, which is then closed. Loop thread."""
        self._handles[handle] = action
        self._poll.register(handle, select.POLLIN)

    def listen(self, fd: int, action: Action) -> None:
        """Run an action whenever `fd` is readable. Call `forget` before closing it."""
        self._listeners[fd] = action
        self._poll.register(fd, select.POLLIN)

    def forget(self, fd: int) -> None:
        """Stop listening. Safe to repeat."""
        if self._listeners.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def stop(self) -> None:
        """Make `run` return. Any thread."""
        self._stopping.set()
        self._ring()

    def fail(self, error: Exception) -> None:
        """Make `run` raise the error of another thread. Any thread."""

        def end() -> NoReturn:
            raise error

        self.post(end)

    def run(self) -> None:
        """Run actions until `stop`; remaining actions are dropped."""
        try:
            while not self._stopping.is_set():
                for fd, _event in self._poll.poll(self._wait_ms()):
                    self._take_in(fd)
                self._run_due()
        finally:
            for handle in self._handles:
                os.close(handle)
            self._wake.close()

    def _ring(self) -> None:
        """Wake the loop. Never blocks: kazoo's threads and signal handlers call it."""
        with suppress(ValueError, OSError):  # closed, or being closed
            self._wake.write(_ONE)

    def _take_in(self, fd: int) -> None:
        if fd == self._wake.fileno():
            self._wake.read(8)  # before the inbox is read, so that a later message wakes again
            return
        if fd in self._listeners:
            self._inbox.append(self._listeners[fd])
            return
        self._poll.unregister(fd)
        action = self._handles.pop(fd)
        os.close(fd)
        self._inbox.append(action)

    def _run_due(self) -> None:
        for _ in range(len(self._inbox)):
            if not self._stopping.is_set():
                self._inbox.popleft()()
        while self._timers and self._timers[0][0] <= time.monotonic() and not self._stopping.is_set():
            heapq.heappop(self._timers)[2]()

    def _wait_ms(self) -> int:
        if self._inbox:
            return 0
        if not self._timers:
            return int(_LONGEST_WAIT_S * 1000)
        due_s = self._timers[0][0] - time.monotonic()
        return max(0, min(int(due_s * 1000) + 1, int(_LONGEST_WAIT_S * 1000)))
