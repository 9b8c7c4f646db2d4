"""The clock that all processes of a run share."""

from __future__ import annotations

import time


def now_ns() -> int:
    """CLOCK_MONOTONIC, which all processes of a machine share. Java's `System.nanoTime` reads it, too."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
