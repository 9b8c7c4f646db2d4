"""A clock that moves only when told to, and does what is due on the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from heapq import heappop, heappush
from typing import Any

INSTANT = timedelta(microseconds=1)
"""Between two things that happen one after the other. No two happen at the same moment."""


class VirtualClock:
    """Call it for the time, as `leader.clock.boottime`. Single-threaded.

    Args:
        start: Time at the beginning; not 0, so that nobody takes 0 for now.
    """

    def __init__(self, start: timedelta = timedelta(hours=1)) -> None:
        self.now = start
        self._due: list[tuple[timedelta, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def __call__(self) -> timedelta:
        """The time."""
        return self.now

    def call_at(self, at: timedelta, action: Callable[..., None], *args: Any) -> None:
        """Do something at a time; as soon as possible if that is over."""
        self._count += 1
        heappush(self._due, (at, self._count, action, args))

    def call_later(self, delay: timedelta, action: Callable[..., None], *args: Any) -> None:
        """Do something after a while."""
        self.call_at(self.now + delay, action, *args)

    def step(self, limit: timedelta) -> bool:
        """Do the next thing that is due by `limit`. False if there is none: then it is `limit`."""
        if not self._due or self._due[0][0] > limit:
            self.now = max(self.now, limit)
            return False
        at, _, action, args = heappop(self._due)
        # Strictly later, so that the history has an order.
        self.now = max(at, self.now + INSTANT)
        action(*args)
        return True

    def advance(self, by: timedelta) -> None:
        """Let time pass, and do what is due on the way."""
        limit = self.now + by
        while self.step(limit):
            pass
