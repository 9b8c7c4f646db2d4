"""Pauses between tries: growing, jittered, bounded. The caller waits."""

from __future__ import annotations

import random
from collections.abc import Iterator


def pauses(first_s: float = 0.1, longest_s: float = 2.0) -> Iterator[float]:
    """Endless pauses in seconds; each between half and all of a doubling bound."""
    bound = first_s
    while True:
        yield bound * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        bound = min(bound * 2, longest_s)
