"""The clock that leadership is measured with."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

Clock = Callable[[], timedelta]
"""Time since some fixed moment of this boot; only differences mean anything."""


def boottime() -> timedelta:
    """Time since boot, system sleep included.

    Neither the wall clock, which steps, nor CLOCK_MONOTONIC, which stands still while the machine
    sleeps: a leader that wakes from sleep must find its deadline passed (PEP 418; ELECTION A.6).
    """
    return timedelta(microseconds=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000)


class Countdown:
    """What is left of a time limit that several waits share."""

    def __init__(self, limit: timedelta, clock: Clock = boottime) -> None:
        self._clock = clock
        self._end = clock() + limit

    def remaining(self) -> timedelta:
        """Never negative."""
        return max(self._end - self._clock(), timedelta(0))
