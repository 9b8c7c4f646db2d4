"""The port behind which elections are exchanged: ZooKeeper, a single node, memory, one of your own."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol, runtime_checkable

from leader.protocol.terms import EpochRecord, LeaderInfo, Leadership
from leader.protocol.view import ParticipantView
from leader.status import ElectionStatus


@runtime_checkable
class Elector(Protocol):
    """One participant of an election. Its electable is told of each change exactly once, in order.

    What every elector promises: a participant leads only after its guard has said yes in this very term (with
    `forced_takeover_after`, a no or an exception is overruled after every guard has declined for that long;
    silence never is); each term has a higher epoch than the one before; among those that share an election,
    at most one leads. tests/contract holds all of ours to it. How far it reaches differs: ZooKeeper's across
    machines, that in memory across one process, the single node's as far as nobody starts a second one.
    """

    def add_to_leader_lock_queue(self) -> None:
        """Queue, at the end. Returns at once; does nothing if we queue already. Ends a back-off.

        Raises:
            ElectionStateError: It was closed.
        """
        ...

    def remove_from_leader_lock_queue(self) -> None:
        """Leave the queue, leading or not, and stay out until added again. Returns at once."""
        ...

    def close(self, timeout: timedelta) -> None:
        """Stop leading, and end. Safe to repeat."""
        ...

    def is_leader(self) -> bool:
        """Whether we certainly lead at this moment. No I/O; any thread."""
        ...

    def leadership(self) -> Leadership | None:
        """The leadership, with its token, if we certainly lead at this moment. No I/O; any thread."""
        ...

    def abdicate(self, reason: str) -> None:
        """Leave the queue, leading or not; back off; queue again at the end. Returns at once."""
        ...

    def poke(self) -> None:
        """Say that the guard might answer otherwise now: ends a back-off. Returns at once."""
        ...

    def publish_readiness(
        self, ready: bool, *, missing: int = 0, missing_bytes: int = 0, reasons: tuple[str, ...] = ()
    ) -> None:
        """Tell the others how ready we are. Who is not, yields to who is. Returns at once.

        To become ready ends a back-off; to say so again does not: `poke` does.
        """
        ...

    def get_all_participants(self) -> list[ParticipantView]:
        """Everybody in the queue, oldest first. ZooKeeperUnavailableError."""
        ...

    def get_leader(self) -> LeaderInfo | None:
        """The confirmed leader. ZooKeeperUnavailableError, RecordError."""
        ...

    def get_epoch(self) -> EpochRecord | None:
        """The newest epoch, and the schema of what the election protects. ZooKeeperUnavailableError."""
        ...

    def status(self) -> ElectionStatus:
        """How we stand. No I/O; any thread."""
        ...
