"""The machine's clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """See `nimbus.ports.Clock`."""

    def now(self) -> datetime:
        """Wall clock, aware, UTC."""
        return datetime.now(UTC)

    def elapsed_s(self) -> float:
        """CLOCK_BOOTTIME: unlike CLOCK_MONOTONIC it continues while the machine is suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
