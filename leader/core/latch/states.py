"""What a latch can be. Plain values: no time, no thread, no ZooKeeper."""

from __future__ import annotations

from leader.protocol.record import record


@record
class Node:
    """Our node in the queue, and the session that owns it."""

    name: str
    session_id: int


@record
class Place:
    """Where our node stood when the queue was last read. `before` is the node that we watch."""

    position: int
    before: str | None = None


# --- states -----------------------------------------------------------------------------------
# `tries` counts failed tries of the present call and sets the pause before the next.


@record
class Latent:
    """Not started."""


@record
class Joining:
    """Wants a node; there may be no session to make it on."""

    tries: int = 0


@record
class Waiting:
    """Has a node. `place` is None until the queue was read; `patrols` counts proofs since then."""

    node: Node
    place: Place | None = None
    tries: int = 0
    patrols: int = 0


@record
class Claiming:
    """Is the oldest; proves it with a write."""

    node: Node


@record
class Holding:
    """Has proven that it is the oldest: holds the lock."""

    node: Node


@record
class Suspended:
    """The connection broke; the session may survive. `held`: the lock was held and still counts as held."""

    node: Node
    held: bool = False


@record
class Withdrawing:
    """Gives its node back; remembers it until ZooKeeper confirmed that it is gone."""

    tries: int = 0


@record
class Closed:
    """The end. Nothing leads out of it."""


State = Latent | Joining | Waiting | Claiming | Holding | Suspended | Withdrawing | Closed
