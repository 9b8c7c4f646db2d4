"""What an elector can be. Plain values: no time, no thread, no ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass

from leader.protocol.records import Leadership


@dataclass(frozen=True, slots=True)
class Latch:
    """Our node in the queue, and the session that owns it."""

    name: str
    session_id: int


# --- states -----------------------------------------------------------------------------------
# `refusals` counts abdications in a row and sets the back-off. `tries` counts failed tries of the
# present call and sets the pause before the next.


@dataclass(frozen=True, slots=True)
class Latent:
    """Not started."""


@dataclass(frozen=True, slots=True)
class Joining:
    """Wants a latch node; there may be no session to make it on."""

    refusals: int = 0
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Queued:
    """Has a latch node. `position` is None until the queue was read, else 0 or more."""

    latch: Latch
    position: int | None = None
    refusals: int = 0
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Elected:
    """Holds the oldest latch; the epoch is being raised."""

    latch: Latch
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Guarding:
    """Has raised the epoch; the guard is being asked."""

    latch: Latch
    leadership: Leadership
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Confirming:
    """The guard said yes in this epoch; the leader node is being written."""

    latch: Latch
    leadership: Leadership
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Leading:
    """Confirmed."""

    latch: Latch
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection broke while we had a latch; the session may survive, leadership did not."""

    latch: Latch
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Withdrawing:
    """Gives its latch back; remembers it until ZooKeeper confirmed that it is gone."""

    reason: str
    refusals: int = 0
    tries: int = 0
    closing: bool = False


@dataclass(frozen=True, slots=True)
class BackingOff:
    """Out of the queue until the back-off ends or somebody pokes."""

    reason: str
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """The end. Nothing leads out of it."""


State = (
    Latent
    | Joining
    | Queued
    | Elected
    | Guarding
    | Confirming
    | Leading
    | Suspended
    | Withdrawing
    | BackingOff
    | Closed
)
