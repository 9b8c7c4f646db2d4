"""What a latch hears. Plain values; answers come from effects, the rest from outside."""

from __future__ import annotations

from leader.core.latch.states import Node, Place
from leader.protocol.record import record

# --- from outside -----------------------------------------------------------------------------


@record
class Started:
    """The owner wants us in the queue."""


@record
class LinkUp:
    """Connected, with this session."""

    session_id: int


@record
class LinkDown:
    """Not connected; the session may survive."""


@record
class SessionGone:
    """The session is over."""


@record
class WatchFired:
    """Something we watch has changed, or the connection broke: look again. It says nothing more."""


@record
class NodeGone:
    """The server says that this node was deleted."""

    name: str


@record
class Due:
    """The timer that was set has run out."""


@record
class CloseAsked:
    """The owner wants us out of the queue for good."""

    reason: str = "closed"


# --- answers ----------------------------------------------------------------------------------


@record
class Joined:
    """We have a node, made now or, after a lost reply, found."""

    node: Node
    made: bool = True


@record
class SawSelf:
    """The queue was read."""

    place: Place


@record
class LatchGone:
    """Our node is not there, or belongs to another session."""


@record
class Claimed:
    """A committed write proved that our node is there, while it was the oldest, or about to be.

    Args:
        by_us: Whether the write was ours, and so proves our session; else it was our predecessor's hand-over.
    """

    by_us: bool = True


@record
class Postponed:
    """The owner does not want the lock yet; stay where we are."""

    reason: str


@record
class Barred:
    """The owner must not have the lock and decides what comes next. `at_once`: somebody better is there."""

    reason: str
    at_once: bool = False


@record
class Proven:
    """A committed write proved that our node is there."""


@record
class Refused:
    """ZooKeeper said no to what came with the proof: what the owner stood on has moved."""

    reason: str


@record
class CallFailed:
    """No answer. Whatever was asked may have happened or not."""

    reason: str


@record
class Crashed:
    """An effect failed in a way nobody foresaw."""

    reason: str


@record
class Withdrawn:
    """None of our nodes is there any more."""


Answer = (
    Joined
    | SawSelf
    | LatchGone
    | Claimed
    | Postponed
    | Barred
    | Proven
    | Refused
    | CallFailed
    | Crashed
    | Withdrawn
)

LinkEvent = LinkUp | LinkDown | SessionGone
"""The session changed its state."""

Event = Started | LinkEvent | WatchFired | NodeGone | Due | CloseAsked | Answer
