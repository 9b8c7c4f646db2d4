"""The mark of a write: what it replaces, and a number that orders it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

from nimbus.task import context

_MAX_TRIES = 20
_PAUSE_S = 0.05


class NewerWriteError(RuntimeError):
    """A newer run, or a newer attempt, has already replaced the same part of the table."""

    code = "newer_write"

    def __init__(self, table: str, mark: Mark, stands: int | None = None) -> None:
        by = "" if stands is None else f" as number {stands}"
        super().__init__(
            f"{table}: a newer run or attempt has already written {mark.key!r}{by}, and this attempt is "
            f"number {mark.version}. Nothing is changed. To write it again, start a new run"
        )


class Mark(NamedTuple):
    """What a table stores with the data."""

    key: str
    """The task, and the part of the table that it replaces."""
    version: int
    """That of the attempt: see `TaskContext.write_version`."""


def mark_of(part: str) -> Mark:
    """The mark of this attempt.

    The part is in the key, not the data interval of the run: writes must be ordered if and only if they
    replace the same data.

    Args:
        part: The part of the table; empty: all of it.

    Raises:
        NotInATaskError: this is no task.
        WriteVersionError: see `TaskContext.write_version`.
    """
    task = context()
    return Mark(f"{task.cluster}/{task.pipeline}.{task.task}/{part}", task.write_version)


def until_committed(write: Callable[[], None], conflict: type[Exception]) -> None:
    """Check the mark and write, again while other writers commit first. Raises the last conflict."""
    for tried in range(1, _MAX_TRIES + 1):
        try:
            return write()
        except conflict:
            if tried == _MAX_TRIES:
                raise
        time.sleep(random.uniform(0, _PAUSE_S * tried))  # noqa: S311 - keeps writers apart
    return None
