"""Time: the clock that measures leadership, time limits, and pauses between tries."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

Clock = Callable[[], timedelta]
"""Returns the time since a fixed moment of this boot. Only differences have a meaning."""

Uniform = Callable[[float, float], float]
"""Returns a random number between two numbers: `random.uniform`, or that of a seeded generator."""

RETRY_FIRST, RETRY_MAX = timedelta(milliseconds=100), timedelta(seconds=2)
"""Bounds of the first and of the longest pause before a call that failed is tried again; see `jittered`."""

_MAX_DOUBLINGS = 20  # 2 ** 20 times the first bound is far above any longest bound


def boottime() -> timedelta:
    """Return the time since boot, including system sleep.

    The wall clock can jump, and CLOCK_MONOTONIC stops while the machine sleeps. After a sleep, a leader must
    find its deadline passed (PEP 418; docs/election.md, "Timing").
    """
    return timedelta(microseconds=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000)


class Countdown:
    """The remaining time of a limit that several waits share."""

    def __init__(self, limit: timedelta, clock: Clock = boottime) -> None:
        self._clock = clock
        self._end = clock() + limit

    def remaining(self) -> timedelta:
        """Return the remaining time; never negative."""
        return max(self._end - self._clock(), timedelta(0))


def jittered(first: timedelta, longest: timedelta, count: int, uniform: Uniform) -> timedelta:
    """Return a random pause: 5 to 100 % of a bound that doubles with each try, from `first` up to `longest`.

    `count` is the number of the try, counted from 1. The randomness keeps participants that failed at the
    same time from retrying at the same time.
    """
    doublings = min(max(count - 1, 0), _MAX_DOUBLINGS)
    return min(first * (1 << doublings), longest) * uniform(0.05, 1.0)
