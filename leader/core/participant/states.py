"""What a participant can be, above its latch. Plain values: no time, no thread, no ZooKeeper."""

from __future__ import annotations

from enum import Enum

from leader.protocol.record import record
from leader.protocol.terms import Leadership


class Leave(Enum):
    """What comes after leaving the queue."""

    BACK_OFF = "back_off"
    """A pause, then the end of the queue."""
    REQUEUE = "requeue"
    """The end of the queue, at once."""
    OUT = "out"
    """Nothing, until the owner wants in again."""
    CLOSE = "close"
    """Nothing any more."""


# `refusals` counts abdications in a row and sets the back-off.


@record
class Outside:
    """Not in the queue, and does not want to be."""


@record
class InLine:
    """Has a latch, which does not hold the lock, or not yet."""

    refusals: int = 0


@record
class Guarding:
    """Holds the lock and has raised the epoch; the guard is being asked."""

    leadership: Leadership
    refusals: int = 0


@record
class Leading:
    """Confirmed. Terms that end soon count as refusals."""

    leadership: Leadership
    refusals: int = 0


@record
class Draining:
    """Has stopped leading and lets its electable finish, still holding the lock."""

    leadership: Leadership
    reason: str
    leave: Leave
    refusals: int = 1


@record
class Leaving:
    """Its latch is closing."""

    reason: str
    refusals: int
    leave: Leave


@record
class BackingOff:
    """Out of the queue until the back-off ends or somebody pokes."""

    reason: str
    refusals: int = 0


@record
class Closed:
    """The end. Nothing leads out of it."""


State = Outside | InLine | Guarding | Leading | Draining | Leaving | BackingOff | Closed
