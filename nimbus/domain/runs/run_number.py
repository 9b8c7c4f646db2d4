"""Numbers of runs: each is above those of all runs created before, under whichever leader. Pure.

No counter is stored. A leader's epoch is above that of every leader before it, and within its term it counts.
A number leaves room for the attempts of a run, so that `number + attempt` orders attempts too, and fits into
63 bits, as table formats need.
"""

from __future__ import annotations

_ATTEMPTS = 1 << 8
"""How many attempts of a task have a number of their own in one run. A later one has none."""
_OF_A_TERM = 1 << 32
"""16 million runs in one term."""


def next_number(epoch: int, newest: int) -> int:
    """The number of the next run of a term.

    `newest`: the largest number that the leader has seen; 0: none.
    """
    return max(newest, epoch * _OF_A_TERM) + _ATTEMPTS


class WriteVersionError(RuntimeError):
    """An attempt has no number that orders its writes."""

    code = "no_write_version"


def write_version(run_number: int, attempt: int) -> int:
    """The number of an attempt: above those of earlier attempts of its task, and of all runs created before.

    Args:
        run_number: Number of its run; 0: it has none.
        attempt: 1 for the first one.

    Raises:
        WriteVersionError: it has none. The number of a later attempt would belong to another run.
    """
    if not run_number:
        raise WriteVersionError(
            "the run has no number, so its writes cannot be ordered: its context was written by hand. Start "
            "a run"
        )
    if attempt > _ATTEMPTS:
        raise WriteVersionError(
            f"attempt {attempt} has no number that orders its writes: a task has {_ATTEMPTS} of them in one "
            f"run. Start a new run"
        )
    return run_number + attempt
