"""The clock of deadlines, and the pauses between tries. Standard library only."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator


def boottime_s() -> float:
    """Seconds since boot, including suspend: timeouts continue while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def pauses(first_s: float = 0.1, longest_s: float = 2.0) -> Iterator[float]:
    """Endless pauses in seconds; each between half and all of a doubling bound."""
    bound = first_s
    while True:
        yield bound * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        bound = min(bound * 2, longest_s)
