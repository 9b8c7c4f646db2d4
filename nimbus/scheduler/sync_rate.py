"""Estimates the remaining time of the sync, by the speed of the last half minute. Any thread."""

from __future__ import annotations

import threading
from collections import deque

from blobsync import SyncProgress

_LOOKED_AT_S = 30.0
_SAMPLE_EVERY_S = 1.0


class SyncRate:
    """Samples of fetched bytes over time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, int]] = deque()
        """Pairs of elapsed seconds and bytes fetched until then."""

    def left_s(self, progress: SyncProgress, elapsed_s: float) -> float | None:
        """Remaining whole seconds, at least one; None: nothing was fetched lately.

        Args:
            progress: Current progress of the sync.
            elapsed_s: Current time, in elapsed seconds.
        """
        with self._lock:
            samples = self._samples
            if samples and elapsed_s > samples[-1][0] + _LOOKED_AT_S:  # after a long gap, it is another sync
                samples.clear()
            if not samples or elapsed_s >= samples[-1][0] + _SAMPLE_EVERY_S:
                samples.append((elapsed_s, progress.fetched_bytes))
            # The oldest kept sample is just before the half minute, so that the period is never shorter.
            while len(samples) > 1 and samples[1][0] <= elapsed_s - _LOOKED_AT_S:
                samples.popleft()
            since_s, fetched_bytes = samples[0]
        came, left = progress.fetched_bytes - fetched_bytes, progress.total_bytes - progress.done_bytes
        if came <= 0 or elapsed_s <= since_s:
            return None
        return max(1.0, float(round(left * (elapsed_s - since_s) / came)))
