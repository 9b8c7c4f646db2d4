"""How often somebody may ask: token buckets, one for each name."""

from __future__ import annotations

import threading
from collections import OrderedDict

MOST_NAMES = 10_000
"""Remembered; of more, those that asked longest ago are forgotten, and have a full bucket again."""


class RateLimit:
    """A bucket for each name: `burst` at once, then `per_s`. Any thread; time in seconds is handed in."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Name to what is left, and when that was so."""
        self._lock = threading.Lock()

    def take(self, name: str, now_s: float) -> float:
        """Take one; 0.0: it was there. Else the seconds until there is one, and nothing is taken."""
        with self._lock:
            left, at_s = self._buckets.pop(name, (self._burst, now_s))
            left = min(self._burst, left + max(0.0, now_s - at_s) * self._per_s)
            wait_s = 0.0 if left >= 1 else (1 - left) / self._per_s
            self._buckets[name] = (left if wait_s else left - 1, now_s)
            if len(self._buckets) > MOST_NAMES:
                self._buckets.popitem(last=False)
            return wait_s
