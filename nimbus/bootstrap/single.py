"""Checks of a single scheduler before it starts."""

from __future__ import annotations

from pathlib import Path

from leader import ElectionPaths
from leader.local.single import EpochFile
from nimbus.adapters.sqlite.calls import last_term
from nimbus.adapters.sqlite.session import SqliteSession


def check_epochs(session: SqliteSession, root: str, file: Path) -> None:
    """Refuse a second scheduler before it writes anything; later the election keeps the lock.

    Epochs continue from those in the database, also if it was restored without the epoch file.

    Args:
        session: The session with the database.
        root: The cluster's root.
        file: The epoch file.

    Raises:
        ElectionStateError: another scheduler holds the file locked.
        ElectionConfigError: the file cannot be opened or locked.
        RecordError: the file has other content.
    """
    epochs = EpochFile(file)
    highest = epochs.lock()
    try:
        of_store = last_term(session, ElectionPaths(root).epoch)
        if of_store > highest:
            epochs.raise_to(of_store)
    finally:
        epochs.unlock()
