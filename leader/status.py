"""What an election says about itself, to people and to dashboards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from leader.guard import Verdict


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
