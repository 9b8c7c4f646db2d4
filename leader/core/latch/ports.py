"""What a latch needs from outside, beside the answers to its requests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Protocol

from leader.core.latch import events as ev
from leader.core.latch.states import Node
from leader.core.liveness import SessionLiveness
from leader.protocol.requests import Delete, Operation, Steps


class SessionView(Protocol):
    """The ZooKeeper session, as far as a latch must know it. No method blocks."""

    @property
    def is_connected(self) -> bool:
        """Whether calls have a chance now."""
        ...

    @property
    def session_id(self) -> int | None:
        """Id of the present session; the last one while suspended, None after a loss."""
        ...

    @property
    def generation(self) -> int:
        """How often the connection broke."""
        ...

    @property
    def negotiated_timeout(self) -> timedelta:
        """The session timeout that the server granted."""
        ...

    @property
    def liveness(self) -> SessionLiveness:
        """What is known of it at one moment, and since when it certainly lives."""
        ...

    def reconnect(self) -> None:
        """Cut a connection that seems dead, so that another is made."""
        ...

    def heal(self) -> None:
        """Start the client again if it has given up."""
        ...


ClaimAnswer = ev.Claimed | ev.Postponed | ev.Barred | ev.Refused | ev.LatchGone
ProofAnswer = ev.Proven | ev.Refused | ev.LatchGone


class Claimant(Protocol):
    """Who wants the lock: what it must commit to take and to keep it."""

    def stand_by(self, node: Node, position: int, before: str | None) -> Steps[None]:
        """Read what a claim will need, and what else tells of our turn. After each look at the queue.

        Args:
            node: Ours.
            position: Our place; 0 is the oldest.
            before: Name of the node before ours.
        """
        ...

    def claim(self, node: Node) -> Steps[ClaimAnswer]:
        """Take the lock: commit a write that needs `node` to be there. It is the oldest."""
        ...

    def prove(self, node: Node) -> Steps[ProofAnswer]:
        """Commit a write that needs `node` to be there and, when the lock is held, all that this means."""
        ...

    def withdrawal(self, deletion: Delete) -> Iterator[tuple[Operation, ...]]:
        """Transactions with the `deletion` of our node: the best, else the next; else it is done alone."""
        ...
