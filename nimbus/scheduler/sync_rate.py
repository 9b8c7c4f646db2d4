"""How long the sync still takes, by how fast bytes came in the last half minute. Any thread."""

from __future__ import annotations

import threading
from collections import deque

from blobsync import SyncProgress

_LOOKED_AT_S = 30.0
_SAMPLE_EVERY_S = 1.0


class SyncRate:
    """Remembers how many bytes had come when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, int]] = deque()
        """Elapsed seconds, and bytes fetched until then."""

    def left_s(self, progress: SyncProgress, elapsed_s: float) -> float | None:
        """Whole seconds, at least one, that the missing bytes take; None: nothing came lately.

        Args:
            progress: How much is here now.
            elapsed_s: Of the clock, now.
        """
        with self._lock:
            samples = self._samples
            if samples and elapsed_s > samples[-1][0] + _LOOKED_AT_S:  # nobody asked: that was another sync
                samples.clear()
            if not samples or elapsed_s >= samples[-1][0] + _SAMPLE_EVERY_S:
                samples.append((elapsed_s, progress.fetched_bytes))
            # The oldest that is kept lies just before the half minute, so that the look is never shorter.
            while len(samples) > 1 and samples[1][0] <= elapsed_s - _LOOKED_AT_S:
                samples.popleft()
            since_s, fetched_bytes = samples[0]
        came, left = progress.fetched_bytes - fetched_bytes, progress.total_bytes - progress.done_bytes
        if came <= 0 or elapsed_s <= since_s:
            return None
        return max(1.0, float(round(left * (elapsed_s - since_s) / came)))
