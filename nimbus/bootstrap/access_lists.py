"""Checks or corrects the access lists of the cluster's nodes in ZooKeeper, by `zookeeper.acl`."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from leader import AclDifference, AclEnforcement, ZooKeeperSession
from nimbus.adapters.store.calls import StoreSession
from nimbus.config import Settings
from nimbus.domain.errors import NimbusError

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
