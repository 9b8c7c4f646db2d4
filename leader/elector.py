"""The port behind which elections are exchanged: ZooKeeper, a single node, memory, one of your own.

You give a `Guard` and an `Electable`; you get an `Elector` and its `ElectionStatus`.
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
        ready: Whether the candidate may lead.
        reasons: Why not, or why only degraded, for people.
        degraded: With `ready`: it may take the lead, but only if no other participant is ready then.
    """

    ready: bool
    reasons: tuple[str, ...] = ()
    degraded: bool = False

    def why(self) -> str:
        """The reasons of a no, in one line."""
        return "; ".join(self.reasons) or "the guard said no"


class Guard(Protocol):
    """Asked after the epoch is raised, before the electable is told. No, an exception and silence mean no.

    With `ElectionConfig.forced_takeover_after`, a no or an exception of the best-ranked participant is
    overruled after every guard has declined for that long; silence never is. So a guard is no place for a
    condition of safety.
    """

    def __call__(self) -> Verdict:
        """Judge. Called on the thread `leader-callbacks`.

        The answer must come within `guard_timeout` of the question. The question may wait for the thread, for
        example behind a slow `revoked`, and that time counts.
        """
        ...


class Electable(Protocol):
    """Whoever wants to lead. Called on the thread `leader-callbacks`, one call at a time, in order.

    The guard is asked on this thread too. While a call does not return, the guard is not asked, so this
    participant takes no further term. `status().trouble` says so when it has not returned in time after the
    end of the term: `handover_timeout` or `guard_timeout`, whichever is longer.
    """

    def elected(self, leadership: Leadership) -> None:
        """Lead, with this token. If this raises, the participant abdicates."""
        ...

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """Stop what this leadership began. It is over already; return soon."""
        ...


class Phase(Enum):
    """Where a participant stands. WAITING: for a session or for its latch, also after it lost either."""

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
    """One moment of one participant. For showing only: decide with `is_leader` and the fencing token.

    Args:
        epoch: Of the present term of this participant, confirmed or not; None if there is none.
        position: Place in the queue when it was last read, 0 being the oldest; None if not queued. Each
            watches only the one before it, so it may be too high; `get_all_participants` reads anew.
        predecessor: Name of the latch node before its own, which it watches.
        last_abdication: Why it last left the queue or lost leadership.
        last_verdict: The guard's last answer.
        back_off_remaining: How long it stays out of the queue, without a `poke`.
        trouble: Which call of guard or electable hangs; else what last went wrong with ZooKeeper, None once
            something went right.
        paused: Why an operator wants no change of leader; None without a pause.
        everybody_declines: Nobody leads and every participant's guard says no, as last seen.
        leading_for: Time since its leadership was confirmed; None while it does not lead.
        proof_age: Time since the last proof that its latch stands.
        time_left: Time until leadership ends unless it is proven again.
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

    def why(self) -> str:  # noqa: C901 - one line for each thing worth saying
        """Explain the phase, in one or more lines."""
        lines = [_SAY[self.phase]]
        if self.phase is Phase.LEADING:
            since = "" if self.leading_for is None else f", for {_seconds(self.leading_for)}"
            lines[0] += f" in epoch {self.epoch}{since}"
        if self.position:
            lines.append(f"place {self.position} in the queue, behind {self.predecessor}")
        if self.time_left is not None:
            lines.append(f"proven until {_seconds(self.time_left)} from now unless proven again")
        if self.proof_age is not None:
            lines.append(f"last proof {_seconds(self.proof_age)} ago")
        if self.back_off_remaining is not None:
            lines.append(
                f"back in the queue in {_seconds(self.back_off_remaining)}, or when readiness changes"
            )
        if self.paused is not None:
            lines.append(f"elections are paused: {self.paused}")
        if self.everybody_declines:
            lines.append("nobody leads: every participant's guard says no")
        if self.last_verdict is not None and not self.last_verdict.ready:
            lines.append(f"the guard last said no: {self.last_verdict.why()}")
        if self.last_abdication is not None and self.phase is not Phase.LEADING:
            lines.append(f"last left the queue or leadership because: {self.last_abdication}")
        if self.trouble is not None:
            lines.append(f"trouble: {self.trouble}")
        return "\n".join(lines)


_SAY = {
    Phase.LATENT: "not in the queue",
    Phase.WAITING: "waits for ZooKeeper",
    Phase.QUEUED: "stands in the queue",
    Phase.ELECTED: "is the oldest in the queue and takes the lock",
    Phase.GUARDING: "holds the lock; the guard is being asked",
    Phase.LEADING: "leads",
    Phase.BACKING_OFF: "stays out of the queue for a while",
    Phase.CLOSED: "has left for good",
}


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.3g} s"


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

        Args:
            ready: Whether the guard would say yes.
            missing: How many things are missing, if not.
            missing_bytes: How much is left to fetch.
            reasons: What is missing, for people.
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
