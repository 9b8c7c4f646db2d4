"""Every ZooKeeper path of an election, spelled here and nowhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LATCH = re.compile(r"(?P<guid>[0-9a-f]{32})-latch-(?P<sequence>-?\d{10})")


@dataclass(frozen=True, slots=True)
class LatchName:
    """The name of one latch node, taken apart. `sequence` orders the queue."""

    name: str
    guid: str
    sequence: int


@dataclass(frozen=True, slots=True)
class ElectionPaths:
    """The nodes below one election's root.

    | path | kind | content |
    | --- | --- | --- |
    | `leader-lock/<guid>-latch-<seq>` | ephemeral sequential | participant |
    | `epoch` | persistent | epoch number; the node's version is the fencing token |
    | `leader` | ephemeral | the confirmed leader |
    """

    root: str

    @property
    def queue(self) -> str:
        """Parent of all latch nodes."""
        return f"{self.root}/leader-lock"

    @property
    def epoch(self) -> str:
        """The epoch node."""
        return f"{self.root}/epoch"

    @property
    def leader(self) -> str:
        """The leader information node."""
        return f"{self.root}/leader"

    def latch(self, name: str) -> str:
        """Full path of the latch node called `name`."""
        return f"{self.queue}/{name}"

    def new_latch(self, guid: str) -> str:
        """What to create: ZooKeeper appends the sequence number."""
        return f"{self.queue}/{guid}-latch-"


def in_queue_order(children: list[str]) -> list[LatchName]:
    """Sort children of the queue node, oldest first; what is no latch is left out.

    ZooKeeper returns children in no order at all, and the GUID comes first in the name, so
    sorting the names would be wrong.
    """
    matches = (_LATCH.fullmatch(child) for child in children)
    latches = [LatchName(m.string, m["guid"], int(m["sequence"])) for m in matches if m]
    return sorted(latches, key=lambda latch: latch.sequence)
