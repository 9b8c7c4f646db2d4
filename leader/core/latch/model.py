"""States, events and effects of a latch. Plain values.

The *owner* of a latch is the code above it: the core of a participant, or a `LeaderLatch`.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from leader.protocol.record import record


@record
class Node:
    """The latch's node in the queue, and the session that owns it."""

    name: str
    session_id: int


@record
class Place:
    """Position of the latch's node when the queue was last read. `before` is the node that it watches."""

    position: int
    before: str | None = None


# --- states -----------------------------------------------------------------------------------
# `tries` counts failed tries of the present call; the pause before the next try grows with it.


@record
class Latent:
    """Not started."""


@record
class Joining:
    """Creates its node. There may be no session yet."""

    tries: int = 0


@record
class Waiting:
    """Has a node. `place` is None until the queue is read; `proofs` counts the proofs after that."""

    node: Node
    place: Place | None = None
    tries: int = 0
    proofs: int = 0


@record
class Claiming:
    """Is the oldest, and commits a write to prove it."""

    node: Node


@record
class Holding:
    """Holds the lock: a committed write has proven that it is the oldest."""

    node: Node


@record
class Suspended:
    """The connection broke; the session may survive.

    `held`: True when the lock still counts as held; only in a `LeaderLatch` with `SuspendedPolicy.SESSION`.
    """

    node: Node
    held: bool = False


@record
class Withdrawing:
    """Deletes its node, until ZooKeeper has confirmed that the node is gone."""

    tries: int = 0


@record
class LatchClosed:
    """The final state. No event leads out of it."""

    shown_as: ClassVar = "Closed"


State = Latent | Joining | Waiting | Claiming | Holding | Suspended | Withdrawing | LatchClosed


# --- events from outside ------------------------------------------------------------------------


@record
class Started:
    """The owner starts the latch."""


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
class QueueChanged:
    """A watched node has changed: read the queue again."""

    shown_as: ClassVar = "WatchFired"


@record
class NodeGone:
    """A watch has reported that this node was deleted."""

    name: str


@record
class TimerDue:
    """The timer has run out."""

    shown_as: ClassVar = "Due"


@record
class LatchCloseAsked:
    """The owner closes the latch."""

    shown_as: ClassVar = "CloseAsked"
    reason: str = "closed"


# --- events that answer a request -----------------------------------------------------------------


@record
class Joined:
    """The latch has a node. `made`: True if it was created now; False if an earlier try had created it."""

    node: Node
    made: bool = True


@record
class SawSelf:
    """The queue was read."""

    place: Place


@record
class LatchGone:
    """The latch's node does not exist, or belongs to another session."""


@record
class Claimed:
    """A committed write proved that the latch's node exists, while it was the oldest or became the oldest.

    `by_us`: this participant sent the write, which also proves its session. Else it was the hand-over of the
    participant before it.
    """

    by_us: bool = True


@record
class Postponed:
    """The lock must not be taken yet. The latch keeps its place in the queue."""

    reason: str


@record
class Barred:
    """The owner must not take the lock, and decides what is next. `at_once`: see `LatchVetoed`."""

    reason: str
    at_once: bool = False


@record
class Proven:
    """A committed write proved that the latch's node exists."""


@record
class Refused:
    """The lock cannot be taken or kept: the epoch has changed, or the lease is over."""

    reason: str


@record
class CallFailed:
    """No answer, or an unexpected error. A write may have been applied or not."""

    reason: str


@record
class Withdrawn:
    """No node of this latch is left."""


LinkEvent = LinkUp | LinkDown | SessionGone

Answer = (
    Joined | SawSelf | LatchGone | Claimed | Postponed | Barred | Proven | Refused | CallFailed | Withdrawn
)

Event = Started | LinkEvent | QueueChanged | NodeGone | TimerDue | LatchCloseAsked | Answer


# --- requests: effects that an event answers at once ----------------------------------------------
# `->` names the events that may answer. A transition has at most one such effect. The answer is handled
# after all effects of the transition, in the state that sent the request.


@record
class Join:
    """Find or create the latch's node; delete its older ones. -> Joined, CallFailed."""


@record
class ReadQueue:
    """Read the queue and set the watches. -> SawSelf, LatchGone, CallFailed."""

    node: Node


@record
class TakeLock:
    """Take the lock by a committed write. -> Claimed, Postponed, Barred, Refused, LatchGone, CallFailed."""

    node: Node


@record
class Prove:
    """Commit a transaction that checks the node. -> Proven, Refused, LatchGone, CallFailed."""

    node: Node


@record
class Withdraw:
    """Delete every node of this latch. -> Withdrawn, CallFailed."""


@record
class Probe:
    """Ask the session whether it is connected. -> LinkUp or nothing."""


Question = Join | ReadQueue | TakeLock | Prove | Withdraw | Probe


# --- reports to the owner -------------------------------------------------------------------------


@record
class Gained:
    """The latch holds the lock. -> Refused, without a report, if the lease cannot begin."""

    node: Node


@record
class LatchLost:
    """The latch no longer holds the lock. It tries again by itself, except after `LatchCloseAsked`."""

    reason: str


@record
class LatchVetoed:
    """The latch is the oldest, but the owner must not take the lock.

    The owner closes the latch; otherwise the latch reads the queue again later. `at_once`: a better
    participant is in the queue, so the owner queues behind it without a back-off.
    """

    reason: str
    at_once: bool = False


@record
class LatchEnded:
    """The latch is closed, and no node of it is left. This is its last report."""


News = Gained | LatchLost | LatchVetoed | LatchEnded


# --- other effects --------------------------------------------------------------------------------


@record
class ForceReconnect:
    """Cut the connection on which no answer came, unless a newer one has replaced it."""


class LatchTimer(Enum):
    """Purpose of the timer. There is one timer; setting it again replaces it."""

    RETRY = "retry"
    PROOF = "proof"
    FIRST_PROOF = "first_proof"
    PATROL = "patrol"
    DEADLINE = "deadline"
    """Only in `Suspended` with `held`."""


@record
class SetLatchTimer:
    """Send TimerDue after a delay. The delay of RETRY is random and grows with `count`."""

    timer: LatchTimer
    count: int = 0


Effect = Question | News | ForceReconnect | SetLatchTimer
