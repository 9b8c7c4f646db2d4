"""Time: the clock that leadership is measured with, limits, and pauses between tries."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

Clock = Callable[[], timedelta]
"""Time since some fixed moment of this boot; only differences mean anything."""

Uniform = Callable[[float, float], float]
"""A random number between two; `random.uniform`, or that of a seeded generator."""

_MOST_DOUBLINGS = 20  # 2 ** 20 is far above any bound


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


def jittered(first: timedelta, longest: timedelta, count: int, uniform: Uniform) -> timedelta:
    """Full jitter below a doubling bound: who failed together shall not return together.

    Args:
        first: Bound at the first try.
        longest: Bound of all of them.
        count: Which try this is, counted from 1.
        uniform: Source of randomness.
    """
    doublings = min(max(count - 1, 0), _MOST_DOUBLINGS)
    return min(first * (1 << doublings), longest) * uniform(0.05, 1.0)
