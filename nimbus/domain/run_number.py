"""Numbers of runs: each is above those of all runs created before, under whichever leader. Pure.

No counter is stored. A leader's epoch is above that of every leader before it, and within its term it counts.
A number leaves room for the attempts of a run, so that `number + attempt` orders attempts too, and fits into
63 bits, as table formats need.
"""

from __future__ import annotations

_ATTEMPTS = 1 << 8
_OF_A_TERM = 1 << 32
"""16 million runs in one term."""


def next_number(epoch: int, newest: int) -> int:
    """The number of the next run of a term.

    Args:
        epoch: That of the term.
        newest: The largest number that the leader has seen; 0: none.
    """
    return max(newest, epoch * _OF_A_TERM) + _ATTEMPTS
