"""Rate limits: one token bucket for each name."""

from __future__ import annotations

import threading
from collections import OrderedDict

MOST_NAMES = 10_000
"""Limit of kept names. Beyond it, the names idle for longest are dropped, and have a full bucket again."""


class RateLimit:
    """A bucket for each name: `burst` at once, then `per_s`. Any thread; time is an argument, in seconds."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """For each name: what was left, and at what time."""
        self._lock = threading.Lock()

    def take(self, name: str, now_s: float) -> float:
        """Take one and return 0.0. If none is left, return the seconds until the next one."""
        with self._lock:
            left, at_s = self._buckets.pop(name, (self._burst, now_s))
            left = min(self._burst, left + max(0.0, now_s - at_s) * self._per_s)
            wait_s = 0.0 if left >= 1 else (1 - left) / self._per_s
            self._buckets[name] = (left if wait_s else left - 1, now_s)
            if len(self._buckets) > MOST_NAMES:
                self._buckets.popitem(last=False)
            return wait_s
