"""What a latch can be, what it hears, and what it asks for. Plain values."""

from __future__ import annotations

from enum import Enum

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
    """The connection broke; the session may survive.

    `held`: the lock was held and still counts as held; only a `LeaderLatch` with `SuspendedPolicy.SESSION`
    uses it.
    """

    node: Node
    held: bool = False


@record
class Withdrawing:
    """Deletes its node; remembers it until ZooKeeper confirmed that it is gone."""

    tries: int = 0


@record
class Closed:
    """The end. No event leads out of it."""


State = Latent | Joining | Waiting | Claiming | Holding | Suspended | Withdrawing | Closed


# --- events from outside ------------------------------------------------------------------------


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


# --- events that answer a question ----------------------------------------------------------------


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
    """The owner must not have the lock; it decides what is next. `at_once`: a better one is in the queue."""

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
    """No answer, or a failure that nobody foresaw. Whatever was asked may have happened or not."""

    reason: str


@record
class Withdrawn:
    """No node of ours is left."""


LinkEvent = LinkUp | LinkDown | SessionGone
"""The session changed its state."""

Answer = (
    Joined | SawSelf | LatchGone | Claimed | Postponed | Barred | Proven | Refused | CallFailed | Withdrawn
)

Event = Started | LinkEvent | WatchFired | NodeGone | Due | CloseAsked | Answer


# --- effects that an event answers, at once -------------------------------------------------------
# An arrow names the events that may answer. A transition has at most one such effect, and the answer is
# handled after all its effects, so it always meets the state that asked.


@record
class Join:
    """Find or make our node; remove older ones of ours. -> Joined, CallFailed."""


@record
class Look:
    """Read the queue and set the watches. -> SawSelf, LatchGone, CallFailed."""

    node: Node


@record
class Claim:
    """Commit what only the oldest may. -> Claimed, Postponed, Barred, Refused, LatchGone, CallFailed."""

    node: Node


@record
class Prove:
    """Commit something that needs our node to be there. -> Proven, Refused, LatchGone, CallFailed."""

    node: Node


@record
class Withdraw:
    """Delete every node of ours. -> Withdrawn, CallFailed."""


@record
class Probe:
    """Ask the session whether it is connected. -> LinkUp or nothing."""


Question = Join | Look | Claim | Prove | Withdraw | Probe


# --- effects that tell the owner ------------------------------------------------------------------


@record
class Gained:
    """The lock is held. -> nothing; Refused, and the owner is not told, if it cannot be held."""

    node: Node


@record
class LatchLost:
    """The lock is no longer held. The latch goes on trying by itself."""

    reason: str


@record
class LatchVetoed:
    """The lock could be held, but the owner's rules forbid it. It closes the latch, or the latch looks again.

    `at_once`: a better participant is in the queue, so queue behind it.
    """

    reason: str
    at_once: bool = False


@record
class LatchEnded:
    """The latch is closed, and no node of ours is left. Nothing more will come."""


News = Gained | LatchLost | LatchVetoed | LatchEnded


# --- other effects --------------------------------------------------------------------------------


@record
class ForceReconnect:
    """Cut the connection that gave no answer, if it is still the present one."""


class Timer(Enum):
    """What a timer is for. There is one timer; setting it again replaces it."""

    RETRY = "retry"
    PROOF = "proof"
    FIRST_PROOF = "first_proof"
    PATROL = "patrol"
    DEADLINE = "deadline"
    """Of `Suspended` with `held`: only a `LeaderLatch` with `SuspendedPolicy.SESSION` uses it."""


@record
class SetTimer:
    """Send Due after a while; longer and random for a higher `count`."""

    timer: Timer
    count: int = 0


Effect = Question | News | ForceReconnect | SetTimer
