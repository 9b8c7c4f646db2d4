"""What a latch can be. Plain values: no time, no thread, no ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """Our node in the queue, and the session that owns it."""

    name: str
    session_id: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where our node stood when the queue was last read. `before` is the node that we watch."""

    position: int
    before: str | None = None


# --- states -----------------------------------------------------------------------------------
# `tries` counts failed tries of the present call and sets the pause before the next.


@dataclass(frozen=True, slots=True)
class Latent:
    """Not started."""


@dataclass(frozen=True, slots=True)
class Joining:
    """Wants a node; there may be no session to make it on."""

    tries: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Has a node. `place` is None until the queue was read; `patrols` counts proofs since then."""

    node: Node
    place: Place | None = None
    tries: int = 0
    patrols: int = 0


@dataclass(frozen=True, slots=True)
class Claiming:
    """Is the oldest; proves it with a write."""

    node: Node


@dataclass(frozen=True, slots=True)
class Holding:
    """Has proven that it is the oldest: holds the lock."""

    node: Node


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection broke; the session may survive. `held`: the lock was held and still counts as held."""

    node: Node
    held: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawing:
    """Gives its node back; remembers it until ZooKeeper confirmed that it is gone."""

    tries: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """The end. Nothing leads out of it."""


State = Latent | Joining | Waiting | Claiming | Holding | Suspended | Withdrawing | Closed
