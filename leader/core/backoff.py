"""Pauses between tries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

Uniform = Callable[[float, float], float]
"""A random number between two; `random.uniform`, or that of a seeded generator."""

_MOST_DOUBLINGS = 20  # 2 ** 20 is far above any bound


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
