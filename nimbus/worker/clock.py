"""The clock of deadlines."""

from __future__ import annotations

import time


def boottime_s() -> float:
    """Seconds since boot, including suspend: timeouts continue while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
