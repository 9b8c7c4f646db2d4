"""Checks of a single scheduler before it starts."""

from __future__ import annotations

from pathlib import Path

from leader import ElectionPaths
from leader.local.single import EpochFile
from nimbus.adapters.sqlite.calls import last_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.domain.errors import NimbusError
from nimbus.domain.schema import check_known


class StateLostError(NimbusError):
    """The database is empty, and the epoch file beside it says that a cluster has lived here."""

    code = "state_lost"
    exit_code = 2


def check_epochs(session: SqliteSession, root: str, file: Path) -> None:
    """Refuse a second scheduler before it writes anything, and a database that lost its cluster.

    Later the election keeps the lock. Makes the root, so that a cluster has one before its first epoch.
    Epochs continue from those in the database, also if it was restored without the epoch file.

    Args:
        session: The session with the database.
        root: The cluster's root.
        file: The epoch file.

    Raises:
        ElectionStateError: another scheduler holds the file locked.
        ElectionConfigError: the file cannot be opened or locked.
        RecordError: the file has other content.
        StateLostError: there have been terms, and there is no root.
        SchemaUnknownError: this release cannot read the records.
    """
    epochs = EpochFile(file)
    highest = epochs.lock()
    try:
        with session.writing() as tree:
            if highest and tree.stat(root) is None:
                raise StateLostError(
                    f"{session.file} has nothing below {root}, but {file} says that epoch {highest} was "
                    f"reached here: the database was removed or replaced, or cluster.root was changed. "
                    f"Restore the database from a backup, or import an exported state with "
                    f"`nimbus cluster import`. To begin a new cluster, remove {file}"
                )
            tree.ensure(root)
        of_store = last_term(session, ElectionPaths(root).epoch)
        check_known(of_store.schema, root)
        if of_store.epoch > highest:
            epochs.raise_to(of_store.epoch)
    finally:
        epochs.unlock()
