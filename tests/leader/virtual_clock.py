"""A clock that moves only on request, and runs due calls on the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from heapq import heappop, heappush
from typing import Any

INSTANT = timedelta(microseconds=1)
"""Time between two consecutive calls. No two run at the same time."""


class VirtualClock:
    """Call it to get the time, like `leader.clock.boottime`. Single-threaded.

    Args:
        start: Time at the beginning; not 0, so that 0 is never the current time.
    """

    def __init__(self, start: timedelta = timedelta(hours=1)) -> None:
        self.now = start
        self._due: list[tuple[timedelta, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def __call__(self) -> timedelta:
        """The time."""
        return self.now

    def call_at(self, at: timedelta, action: Callable[..., None], *args: Any) -> None:
        """Run a call at a time; as soon as possible if that time has passed."""
        self._count += 1
        heappush(self._due, (at, self._count, action, args))

    def call_later(self, delay: timedelta, action: Callable[..., None], *args: Any) -> None:
        """Run a call later."""
        self.call_at(self.now + delay, action, *args)

    def step(self, limit: timedelta) -> bool:
        """Run the next call that is due until `limit`. If there is none, go to `limit` and return False."""
        if not self._due or self._due[0][0] > limit:
            self.now = max(self.now, limit)
            return False
        at, _, action, args = heappop(self._due)
        # Strictly later, so that the history has an order.
        self.now = max(at, self.now + INSTANT)
        action(*args)
        return True

    def advance(self, by: timedelta) -> None:
        """Advance the time, and run the calls that are due."""
        limit = self.now + by
        while self.step(limit):
            pass
