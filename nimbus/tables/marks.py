"""The mark of a write: what it replaces, and a number that orders it."""

from __future__ import annotations

from typing import NamedTuple

from nimbus.task import context

MOST_TRIES = 20
"""How often a write is tried when other writers commit first. The mark is checked before each."""


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
