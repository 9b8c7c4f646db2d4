"""The port of elections. Behind it: ZooKeeper, a single node, memory, or an elector of your own.

You provide a `Guard` and an `Electable`. You get an `Elector` and its `ElectionStatus`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Protocol, runtime_checkable

from leader.protocol.terms import EpochRecord, LeaderInfo, Leadership
from leader.protocol.view import ParticipantView


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guard's answer.

    Args:
        ready: True when the candidate may lead.
        reasons: Why it may not lead, or why it is degraded; text for people.
        degraded: With `ready`: the candidate takes the lead only if no other participant is ready then.
    """

    ready: bool
    reasons: tuple[str, ...] = ()
    degraded: bool = False

    def why(self) -> str:
        """Return the reasons of a no in one line."""
        return "; ".join(self.reasons) or "the guard said no"


class Guard(Protocol):
    """Decides whether a candidate may lead. Called after the epoch is raised and before `elected`.

    A no, an exception, and no answer in time count as a no. With `ElectionConfig.forced_takeover_after`, a no
    or an exception of the best-ranked participant is overruled after all guards have declined for that long.
    A missing answer is never overruled. So safety must not depend on a guard.
    """

    def __call__(self) -> Verdict:
        """Return the verdict. Called on the thread `leader-callbacks`.

        The answer must come within `guard_timeout` of the question. That time includes the wait for the
        thread, for example behind a slow `revoked`.
        """


class Electable(Protocol):
    """Starts and stops the leader's work, on the thread `leader-callbacks`: one call at a time, in order.

    The guard is called on this thread too. While a call here does not return, the guard is not called, so
    this participant takes no further term. `status().trouble` names a call that has not returned within
    `handover_timeout` or `guard_timeout`, whichever is longer, after the end of its term.
    """

    def elected(self, leadership: Leadership) -> None:
        """Start to lead, with the token of `leadership`. If this raises, the participant abdicates."""

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """Stop the work of this leadership. The leadership is already over; return soon."""


class Phase(Enum):
    """State of a participant, for display.

    WAITING: It waits for a session or for its latch, also after a disconnect.
    BACKING_OFF: It does not lead. It leaves the queue, or has left it and waits before it queues again. At
        first it may still hold the lock, while its `revoked` runs. If it was removed or closed, it does not
        queue again: LATENT or CLOSED follows.
    """

    LATENT = "latent"
    WAITING = "waiting"
    QUEUED = "queued"
    ELECTED = "elected"
    GUARDING = "guarding"
    LEADING = "leading"
    BACKING_OFF = "backing_off"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ElectionStatus:
    """State of one participant at one moment. For display; decide with `is_leader` and the fencing token.

    Args:
        epoch: Epoch of this participant's present term, confirmed or not; None without a term.
        position: Position in the queue when the queue was last read; 0 is the oldest. None while it is not
            known: the participant is not in the queue, is disconnected, or has not read the queue yet. The
            number may be too high, because a participant watches only its predecessor;
            `get_all_participants` reads the queue again.
        predecessor: Name of the latch node directly before its own; the participant watches it.
        last_abdication: Why it last left the queue or lost leadership; None once it leads again.
        last_verdict: The guard's last answer.
        back_off_remaining: Time until it queues again, if `poke` is not called before.
        trouble: The call of guard or electable that hangs; else the last failure with ZooKeeper. None after
            a later success. A failure to write the leader node counts until the node is written, or the lock
            is gained again.
        paused: Reason of an operator's pause (no change of leader); None without a pause, and for a
            participant that neither leads nor is next in line: only these two watch for one.
        everybody_declines: True when there is no leader and every guard has said no, as last read.
        leading_for: Time since its leadership was confirmed; None while it does not lead.
        proof_age: Time since the last proof of its latch was sent; None without one.
        time_left: Time until leadership ends if no further proof is committed; None without a term.
    """

    phase: Phase
    epoch: int | None = None
    position: int | None = None
    predecessor: str | None = None
    last_abdication: str | None = None
    last_verdict: Verdict | None = None
    back_off_remaining: timedelta | None = None
    trouble: str | None = None
    paused: str | None = None
    everybody_declines: bool = False
    leading_for: timedelta | None = None
    proof_age: timedelta | None = None
    time_left: timedelta | None = None

    def why(self) -> str:  # noqa: C901 - one branch for each line of the text
        """Explain the phase, in one or more lines."""
        lines = [_PHASE_TEXTS[self.phase]]
        if self.phase is Phase.LEADING:
            since = "" if self.leading_for is None else f", for {_seconds(self.leading_for)}"
            lines[0] += f" in epoch {self.epoch}{since}"
        if self.position:
            lines.append(f"position {self.position} in the queue, behind {self.predecessor}")
        if self.time_left is not None:
            lines.append(f"leadership ends in {_seconds(self.time_left)} without a further proof")
        if self.proof_age is not None:
            lines.append(f"last proof {_seconds(self.proof_age)} ago")
        if self.back_off_remaining is not None:
            lines.append(f"queues again in {_seconds(self.back_off_remaining)}, or when it becomes ready")
        if self.paused is not None:
            lines.append(f"elections are paused: {self.paused}")
        if self.everybody_declines:
            lines.append("there is no leader: every participant's guard says no")
        if self.last_verdict is not None and not self.last_verdict.ready:
            lines.append(f"the guard last said no: {self.last_verdict.why()}")
        if self.last_abdication is not None and self.phase is not Phase.LEADING:
            lines.append(f"last left the queue or lost leadership because: {self.last_abdication}")
        if self.trouble is not None:
            lines.append(f"trouble: {self.trouble}")
        return "\n".join(lines)


_PHASE_TEXTS = {
    Phase.LATENT: "not in the queue",
    Phase.WAITING: "waits for ZooKeeper",
    Phase.QUEUED: "is in the queue",
    Phase.ELECTED: "is the oldest in the queue and takes the lock",
    Phase.GUARDING: "holds the lock; waits for the guard's answer",
    Phase.LEADING: "leads",
    Phase.BACKING_OFF: "leaves the queue, or waits before it queues again",
    Phase.CLOSED: "is closed",
}


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.3g} s"


@runtime_checkable
class Elector(Protocol):
    """One participant of an election. It calls its electable exactly once for each change, in order.

    Every elector guarantees:

    - A participant leads only after its guard has said yes in the same term. With `forced_takeover_after`, a
      no or an exception is overruled after all guards have declined for that long; a missing answer never is.
    - Each term has a higher epoch than the term before.
    - At most one of the participants that share an election leads. With ZooKeeper, these are all participants
      of one root; in memory, those of one process and root; for a single node, only itself, or the processes
      of one machine that share its `epoch_file`.

    tests/leader/contract runs one suite on all electors of this package.
    """

    def add_to_leader_lock_queue(self) -> None:
        """Join the queue at the end. Returns at once. Does nothing if already queued. Ends a back-off.

        ElectionStateError if the elector was closed.
        """

    def remove_from_leader_lock_queue(self) -> None:
        """Leave the queue, leader or not, and stay out until added again. Returns at once."""

    def close(self, timeout: timedelta) -> None:
        """Stop leading, and end. Safe to repeat."""

    def is_leader(self) -> bool:
        """True when this participant certainly leads at this moment. No I/O; any thread."""

    def leadership(self) -> Leadership | None:
        """Return the leadership with its token; None unless `is_leader()`. No I/O; any thread."""

    def abdicate(self, reason: str) -> None:
        """Leave the queue, leader or not; wait (back-off); queue again at the end. Returns at once."""

    def poke(self) -> None:
        """End a back-off, because the guard may now answer differently. Returns at once."""

    def publish_readiness(
        self, ready: bool, *, missing: int = 0, missing_bytes: int = 0, reasons: tuple[str, ...] = ()
    ) -> None:
        """Publish how ready this participant is. Returns at once.

        A participant that is not ready yields to a ready one. Becoming ready ends a back-off. Publishing
        "ready" again does not; `poke` does.

        Args:
            ready: True when the guard would say yes.
            missing: Number of things that are missing, if not ready.
            missing_bytes: Bytes still to fetch.
            reasons: What is missing; text for people.
        """

    def get_all_participants(self) -> list[ParticipantView]:
        """Read the queue, oldest first. ZooKeeperUnavailableError."""

    def get_leader(self) -> LeaderInfo | None:
        """Read the leader node; None without one. ZooKeeperUnavailableError, RecordError.

        A leader whose connection broke is shown until its session ends or the next term begins.
        """

    def get_epoch(self) -> EpochRecord | None:
        """Read the epoch node; None in a new election. ZooKeeperUnavailableError, RecordError."""

    def status(self) -> ElectionStatus:
        """Return the state of this participant. No I/O; any thread."""
