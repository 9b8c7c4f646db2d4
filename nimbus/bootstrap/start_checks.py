"""Checks before a daemon starts: access lists in ZooKeeper, and the database of a single scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from leader import AclDifference, AclEnforcement, ElectionPaths, ZooKeeperSession
from nimbus.adapters.store.calls import StoreSession
from nimbus.config import Settings
from nimbus.domain.cluster.schema import check_known
from nimbus.domain.errors import NimbusError

if TYPE_CHECKING:
    from nimbus.adapters.sqlite.session import SqliteSession

SHOWN = 10
"""Most nodes that the error message names."""

_log = structlog.get_logger(__name__)


class OpenNodesError(NimbusError):
    """Nodes of the cluster have wrong access lists, and `zookeeper.acl` does not permit to correct them."""

    code = "open_nodes"
    exit_code = 7

    def __init__(self, differences: Sequence[AclDifference]) -> None:
        lines = [str(difference) for difference in differences[:SHOWN]]
        if len(differences) > SHOWN:
            lines.append(f"and {len(differences) - SHOWN} more")
        super().__init__(
            f"{len(differences)} nodes in ZooKeeper have other access lists than those of zookeeper.username "
            "and password. Give them these lists with `nimbus cluster acl --fix`, or set zookeeper.acl "
            "to fix.\n" + "\n".join(lines)
        )


def access_lists(session: StoreSession, settings: Settings) -> AclEnforcement | None:
    """Checks and corrects the whole cluster's nodes. None: there are no access lists, see `why_none`."""
    if why_none(settings) or not isinstance(session, ZooKeeperSession):
        return None
    return AclEnforcement(session, settings.cluster.root)


def why_none(settings: Settings) -> str:
    """Why access lists are not checked; empty if they are."""
    if settings.store_folder is not None:
        return "the state of a single scheduler is in files, which the system's permissions protect"
    if settings.zookeeper.username is None:
        return "zookeeper.username and password are not configured, so the nodes are open to everybody"
    return ""


def check_access_lists(session: StoreSession, settings: Settings) -> None:
    """Refuse to start if `zookeeper.acl` is `check` and a node is open. Checks all nodes.

    Raises:
        OpenNodesError: it names the nodes and the remedy.
        LeaderError: a list cannot be read, or ZooKeeper does not answer.
    """
    if settings.zookeeper.acl != "check":
        return
    enforcement = access_lists(session, settings)
    if enforcement is None:
        _log.warning("access_lists_not_checked", reason=why_none(settings))
    elif differences := enforcement.check():
        raise OpenNodesError(differences)


class StateLostError(NimbusError):
    """The database is empty, and the epoch file beside it says that a cluster has lived here."""

    code = "state_lost"
    exit_code = 2


def check_epochs(session: SqliteSession, root: str, file: Path) -> None:
    """Refuse a second scheduler before it writes anything, and a database that lost its cluster.

    Later the election keeps the lock. Makes the root, so that a cluster has one before its first epoch.
    Epochs continue from those in the database, also if it was restored without the epoch file.

    Raises:
        ElectionStateError: another scheduler holds the file locked.
        ElectionConfigError: the file cannot be opened or locked.
        RecordError: the file has other content.
        StateLostError: there have been terms, and there is no root.
        SchemaUnknownError: this release cannot read the records.
    """
    from leader.local.single import EpochFile  # late: with ZooKeeper, no process needs SQLite
    from nimbus.adapters.sqlite.calls import last_term

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
