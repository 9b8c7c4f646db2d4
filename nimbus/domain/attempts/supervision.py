"""Decides about an open attempt, from its slots and the registrations of workers.

The same rule is used in the steady state and in a takeover: a new leader reads the same facts. The rule never
acts on the report of a cluster manager, only on the two slots. No attempt n+1 is opened while END n is empty.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.ids import WorkerId
from nimbus.domain.runs.task_run import Attempt, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """How long each kind of silence is tolerated."""

    claim_timeout: timedelta = timedelta(minutes=10)
    """Limit from the order to the driver's claim, while the worker is registered."""
    beat_grace: timedelta = timedelta(seconds=3)
    """Time from the end of a runner's session until a worker on its host must reap the attempt."""
    host_lost_after: timedelta = timedelta(seconds=30)
    """Time from the end of a runner's session until its attempt is fenced, if its host has no live worker."""


@dataclass(frozen=True, slots=True)
class Close:
    """END exists: apply it to the run."""

    end: End
    why = "it has ended"


@dataclass(frozen=True, slots=True)
class FenceClaim:
    """Write "fenced" into CLAIM and END. If the write succeeds, no driver can ever start the attempt."""

    why: str
    """The reason of the END. Of each action: it is shown to people."""


@dataclass(frozen=True, slots=True)
class FenceEnd:
    """Fill END. If the write succeeds, the attempt can never commit, even if it still computes."""

    why: str
    outcome: Outcome = Outcome.LOST


@dataclass(frozen=True, slots=True)
class Reap:
    """Order a worker that can see the attempt's driver to look for it, and to write END if it is gone."""

    reaper: WorkerId
    claim: Claim | None
    """None: a driver was submitted to a cluster, and has not claimed the attempt."""
    why = "a worker is asked to look for its driver"


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do before `at` or `after`; with neither, before something changes."""

    why: str
    """Empty: it computes."""
    at: datetime | None = None
    """Time of the wall clock, to which the records' times belong."""
    after: timedelta | None = None
    """From now, on the clock of silences, which does not step."""


Action = Close | FenceClaim | FenceEnd | Reap | Idle


def shows_life(attempt: Attempt, slots: Slots, workers: Container[WorkerId]) -> bool:
    """True while its runner is alive or, before a driver is submitted or claims it, its worker."""
    is_held = slots.claim is not None or slots.submitted is not None
    return slots.has_heartbeat if is_held else attempt.worker in workers


def supervise(
    attempt: Attempt,
    slots: Slots,
    *,
    silent_for: timedelta | None,
    workers: Collection[WorkerInfo],
    timings: Timings,
    now: datetime,
) -> Action:
    """Decide about one open attempt.

    Args:
        attempt: The open attempt, from the run's record.
        slots: Its records in ZooKeeper.
        silent_for: How long this leader has not seen its worker (before CLAIM) or its runner (after CLAIM),
            on a clock that does not step; None while it is seen. With a new leader it starts again at 0.
        workers: All registered workers.
        timings: The limits.
        now: The time of the decision.
    """
    if slots.end is not None:
        return Close(slots.end)
    if slots.claim is None and slots.submitted is not None:  # a full cluster may take hours
        if slots.has_heartbeat:
            words = slots.progress.get("cluster")
            where = f"{_submitted(slots.submitted)}, where it waits for its start"
            return Idle(f"{where}: {words}" if words else where)
        return _unfollowed(attempt, None, slots.submitted, silent_for, workers, timings)
    if slots.claim is None:
        return _unclaimed(attempt, silent_for, timings, now)
    if slots.claim.is_fenced:  # by a worker that did not fill both slots at once
        return FenceEnd("closed before a driver claimed it", Outcome.FENCED)
    if slots.has_heartbeat:
        return Idle(_unreported(slots))
    if slots.claim.driver is not None:
        return _unfollowed(attempt, slots.claim, slots.claim.driver, silent_for, workers, timings)
    return _silent(attempt, slots.claim, silent_for or timedelta(0), workers, timings)


def _unclaimed(attempt: Attempt, silent_for: timedelta | None, timings: Timings, now: datetime) -> Action:
    if silent_for is not None:
        # The registration is ephemeral: it outlived the process by a session timeout already.
        left = timings.beat_grace - silent_for
        if left <= timedelta(0):
            return FenceClaim(f"worker {attempt.worker} is gone and had not started it")
        gone = f"worker {attempt.worker}, which has it, is not registered: it is given to another one soon"
        return Idle(gone, after=left)
    due = attempt.opened_at + timings.claim_timeout
    if now >= due:
        return FenceClaim(f"worker {attempt.worker} did not start it within {timings.claim_timeout}")
    return Idle(f"worker {attempt.worker} is preparing it since {attempt.opened_at:%Y-%m-%d %H:%M:%SZ}", due)


def _submitted(driver: ClusterDriver) -> str:
    return f"submitted to target {driver.target} as {driver.id}"


def _unreported(slots: Slots) -> str:
    """Why a claimed attempt with a living runner may not compute; empty: it does."""
    driver = None if slots.claim is None else slots.claim.driver
    words = slots.progress.get("silent")
    if driver is None or words is None:
        return ""
    return f"its driver in target {driver.target} does not report, but may be alive: the cluster says {words}"


def _silent(
    attempt: Attempt,
    claim: Claim,
    silent_for: timedelta,
    workers: Collection[WorkerInfo],
    timings: Timings,
) -> Action:
    neighbours = sorted(
        (w for w in workers if w.host == claim.host), key=lambda w: (w.id != claim.worker, w.id)
    )
    if neighbours:
        if attempt.reaper in {w.id for w in neighbours}:
            return Idle(
                f"its runner is silent; worker {attempt.reaper} looks for its driver on "
                f"{neighbours[0].hostname}"
            )
        left = timings.beat_grace - silent_for
        if left <= timedelta(0):
            return Reap(neighbours[0].id, claim)
        return Idle("its runner is silent; its driver is looked for soon", after=left)
    left = timings.host_lost_after - silent_for
    if left <= timedelta(0):
        silent_s = round(silent_for.total_seconds())
        return FenceEnd(f"host {claim.host} is lost: no worker there, runner silent for {silent_s} s")
    return Idle(
        f"its runner is silent, and no worker on host {claim.host} is registered: "
        "the leader reports it lost after `supervision.host_lost_after`, unless one registers",
        after=left,
    )


def _unfollowed(
    attempt: Attempt,
    claim: Claim | None,
    driver: ClusterDriver,
    silent_for: timedelta | None,
    workers: Collection[WorkerInfo],
    timings: Timings,
) -> Action:
    """Decide about a driver in a cluster that no worker follows. It may still run, so it is never fenced."""
    able = sorted(
        (w for w in workers if driver.target in w.submits), key=lambda w: (w.id != attempt.worker, w.id)
    )
    what = _submitted(driver) if claim is None else f"its driver in target {driver.target} is not followed"
    if not able:
        return Idle(f"{what}; no worker that submits to target {driver.target} is registered to look for it")
    if attempt.reaper in {worker.id for worker in able}:
        return Idle(f"{what}; worker {attempt.reaper} looks for it")
    left = timings.beat_grace - (silent_for or timedelta(0))
    if left <= timedelta(0):
        return Reap(able[0].id, claim)
    return Idle(f"{what}; a worker is asked to look for it", after=left)


def fenced_claim(attempt: str, *, epoch: int, now: datetime) -> Claim:
    """The claim with which a leader fences an attempt: no driver can claim it afterwards."""
    return Claim(attempt=attempt, fenced_by_epoch=epoch, claimed_at=now)


def fenced_end(attempt: str, action: FenceClaim | FenceEnd, *, now: datetime) -> End:
    """The END with which a leader fences an attempt: no other END can be written afterwards."""
    match action:
        case FenceClaim():
            outcome = Outcome.FENCED
        case FenceEnd():
            outcome = action.outcome
        case _:
            assert_never(action)
    return End(attempt=attempt, outcome=outcome, written_by="leader", ended_at=now, reason=action.why)
