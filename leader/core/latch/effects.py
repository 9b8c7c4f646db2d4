"""What a latch asks its core to do. Plain values.

An arrow names the events that may answer. A transition has at most one effect that is answered, and the
answer is handled after all its effects, so it always meets the state that asked.
"""

from __future__ import annotations

from enum import Enum

from leader.core.latch.states import Node
from leader.protocol.record import record


@record
class Join:
    """Find or make our node; remove older ones of ours. -> Joined, CallFailed."""


@record
class Look:
    """Read the queue and arm the watches. -> SawSelf, LatchGone, CallFailed."""

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


@record
class ForceReconnect:
    """Cut a connection that seems dead."""


@record
class Gain:
    """Tell the owner that the lock is held. -> nothing, Refused."""

    node: Node


@record
class Lose:
    """Tell the owner that it is no longer held."""

    reason: str


@record
class Bar:
    """Tell the owner that its own rules keep it from the lock. It closes us, or asks us to look again."""

    reason: str
    at_once: bool = False


@record
class End:
    """Tell the owner that no node of ours is left, and that nothing more will come."""


class Timer(Enum):
    """What a timer is for. There is one timer; setting it again replaces it."""

    RETRY = "retry"
    PROOF = "proof"
    FIRST_PROOF = "first_proof"
    PATROL = "patrol"
    DEADLINE = "deadline"


@record
class SetTimer:
    """Send Due after a while; longer and random for a higher `count`."""

    timer: Timer
    count: int = 0


Question = Join | Look | Claim | Prove | Withdraw | Probe
"""Effects that an event answers, at once."""

Order = ForceReconnect | Lose | Bar | End | SetTimer
"""Effects without an answer."""

Effect = Question | Gain | Order
