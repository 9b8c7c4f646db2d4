"""All ZooKeeper paths of an election. No other module spells them.

Latch nodes have the names of Curator's LeaderLatch: `_c_<uuid>-latch-<sequence>`. So both libraries can share
one queue and read it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable

from leader.errors import ElectionConfigError

_LATCH = re.compile(r".*latch-(-?\d{1,10})")
_ROOT = re.compile(r"(/[^/\x00-\x1f\x7f-\x9f]+)+")
_HALF_RANGE = 1 << 31


class ElectionPaths:
    """The nodes below one election's root.

    | path | kind | content |
    | --- | --- | --- |
    | `leader-lock/_c_<uuid>-latch-<sequence>` | ephemeral sequential | id of the participant |
    | `epoch` | persistent | epoch number; the node's version is the fencing token |
    | `leader` | ephemeral | the confirmed leader |
    | `members/<id>` | ephemeral | member node of a participant, in the queue or not |
    | `handover-<epoch>-<latch>` | made and deleted in one transaction | nothing; fires a watch |
    | `control` | persistent, made when first used | what operators ask for: pause, switchover |
    | `components/<name>` | ephemeral | address of the leader's component of that name |
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.queue = f"{root}/leader-lock"
        self.epoch = f"{root}/epoch"
        self.leader = f"{root}/leader"
        self.members = f"{root}/members"
        self.control = f"{root}/control"
        self.components = f"{root}/components"

    def handover(self, epoch: int, latch: str) -> str:
        """Path of the node that a leader makes and deletes when it raises the epoch for the latch `latch`."""
        return f"{self.root}/handover-{epoch}-{latch}"

    def latch(self, name: str) -> str:
        """Full path of the latch node called `name`."""
        return f"{self.queue}/{name}"

    def member(self, participant_id: str) -> str:
        """Path of the member node of one participant."""
        return f"{self.members}/{participant_id}"

    def members_of(self, participant_ids: Iterable[str]) -> list[str]:
        """Paths of their member nodes. Leaves out ids that cannot name a node, as Curator's may."""
        return [self.member(id_) for id_ in participant_ids if is_node_name(id_)]

    def component(self, name: str) -> str:
        """Path of the leader information of one component."""
        return f"{self.components}/{name}"


def checked_root(root: str, what: str = "root") -> str:
    """Return `root` if it is a valid path of a ZooKeeper node. ElectionConfigError otherwise."""
    names = root.split("/")
    if not _ROOT.fullmatch(root) or "." in names or ".." in names or root.split("/")[1] == "zookeeper":
        raise ElectionConfigError(
            f"{what} {root!r} must be an absolute ZooKeeper path such as /election, without a slash at "
            f"the end, empty or dotted parts or control characters, and outside /zookeeper"
        )
    return root


def checked_name(name: str, what: str) -> str:
    """Return `name` if it can be the name of one node. ElectionConfigError otherwise."""
    if not is_node_name(name):
        raise ElectionConfigError(
            f"{what} {name!r} cannot name a ZooKeeper node: 1 to 200 printable characters without a slash"
        )
    return name


def is_node_name(name: str) -> bool:
    """True if `name` can be the name of one node."""
    return (
        bool(name) and "/" not in name and name not in {".", ".."} and name.isprintable() and len(name) <= 200
    )


def new_latch_prefix() -> str:
    """Return the start of a new latch's name. It is unique, so a node whose reply was lost can be found."""
    return f"_c_{uuid.uuid4()}-latch-"


def in_queue_order(children: Iterable[str]) -> list[str]:
    """Sort the children of the queue node, oldest first. Children that are not latches are left out.

    ZooKeeper returns children without an order, and the name begins with the GUID. The sequence is a signed
    number of 32 bits: -2147483648 follows 2147483647 and is younger.
    """
    matches = (_LATCH.fullmatch(child) for child in children)
    sequences = {match.string: int(match[1]) for match in matches if match}
    if sequences and max(sequences.values()) - min(sequences.values()) >= _HALF_RANGE:
        sequences = {name: sequence % (2 * _HALF_RANGE) for name, sequence in sequences.items()}
    return sorted(sequences, key=lambda name: (sequences[name], name))
