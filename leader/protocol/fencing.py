"""What a leader shows with each write, so that one that was deposed writes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from leader.protocol.requests import Check


@dataclass(frozen=True, slots=True)
class FencingToken:
    """What a leader shows with each write.

    Args:
        path: The epoch node.
        version: Its znode version in our epoch; this is what ZooKeeper compares.
        epoch: The epoch number, for people, for logs and for fencing other stores.
        latch: The latch node of this term, which must be there. Its name is unique, and it never serves under
            a second epoch node, so a token stays invalid even if ZooKeeper's data are wiped and the epoch's
            version comes round again.
    """

    path: str
    version: int
    epoch: int
    latch: str | None = None

    def checks(self) -> tuple[Check, ...]:
        """What a transaction begins with that only this term may commit."""
        epoch = Check(self.path, self.version)
        return (epoch,) if self.latch is None else (epoch, Check(self.latch))
