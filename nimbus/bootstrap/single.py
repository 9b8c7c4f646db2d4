"""What a single scheduler looks at before it starts."""

from __future__ import annotations

from pathlib import Path

from leader import ElectionPaths
from leader.local.single import EpochFile
from nimbus.adapters.sqlite.calls import last_term
from nimbus.adapters.sqlite.session import SqliteSession


def check_epochs(session: SqliteSession, root: str, file: Path) -> None:
    """Refuse a second scheduler before it writes anything; the election takes the lock for good later.

    The epochs go on from those of the database, also when it was restored without the file of the epochs.

    Args:
        session: With the database.
        root: Of the cluster.
        file: Of the epochs.

    Raises:
        ElectionStateError: another scheduler holds the file locked.
        RecordError: the file holds something else.
    """
    epochs = EpochFile(file)
    highest = epochs.lock()
    try:
        of_store = last_term(session, ElectionPaths(root).epoch)
        if of_store > highest:
            epochs.raise_to(of_store)
    finally:
        epochs.unlock()
