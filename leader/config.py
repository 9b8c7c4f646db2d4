"""Settings of an election."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from leader.errors import ElectionConfigError
from leader.protocol.paths import checked_root


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionConfig:
    """Settings of one participant in one election. They are checked once, in the constructor.

    All participants should have the same values, except for `priority` and `nofailover`.

    Args:
        root: Absolute ZooKeeper path of this election, without a slash at the end.
        guard_timeout: Limit of the wait for the guard's answer. No answer in time counts as a no.
        requeue_backoff_min: Upper bound of the first random wait after an abdication; each wait is 5 to 100 %
            of its bound. The bound doubles with each abdication in a row. It starts again after a leadership
            of `requeue_backoff_max` or one that ended because the lock was lost, after `poke`, when the
            participant becomes ready, and when it is added to the queue again.
        requeue_backoff_max: Upper bound of all these waits.
        retry_max: Longest pause between two tries of a call that failed.
        step_down_margin: A leader stops leading this long before its session can end. The margin covers the
            drift between its clock and the servers' clocks.
        handover_timeout: How long a leader that steps down waits for its `revoked` to return before it
            releases the lock. After that, only fencing refuses the writes of `revoked`.
        forced_takeover_after: After all guards have declined for this long, the best-ranked participant leads
            nevertheless. None: no participant leads until its guard says yes.
        priority: 0; below 0 for a reserve, which leads only if no better participant is ready and queued.
        nofailover: True for a participant that never queues and never leads; the others see its member node.
        mend_access_lists: If True, a participant with a credential corrects the access lists below `root`,
            once, at its start. If False, they stay as they are; see `AclEnforcement`.
        newest_schema: Newest schema of the protected data that this participant knows. The participant does
            not take the lead under a newer schema. A new election starts with it; see `schema_raised`.
    """

    root: str
    guard_timeout: timedelta = timedelta(seconds=10)
    requeue_backoff_min: timedelta = timedelta(seconds=1)
    requeue_backoff_max: timedelta = timedelta(seconds=30)
    retry_max: timedelta = timedelta(seconds=2)
    step_down_margin: timedelta = timedelta(seconds=1)
    handover_timeout: timedelta = timedelta(seconds=2)
    forced_takeover_after: timedelta | None = None
    priority: int = 0
    nofailover: bool = False
    mend_access_lists: bool = True
    newest_schema: int = 1

    def __post_init__(self) -> None:
        checked_root(self.root)
        for name in ("guard_timeout", "requeue_backoff_min", "retry_max", "step_down_margin"):
            value: timedelta = getattr(self, name)
            if value <= timedelta(0):
                raise ElectionConfigError(f"{name} ({value}) must be above 0; raise it")
        if self.handover_timeout < timedelta(0):
            raise ElectionConfigError(
                f"handover_timeout ({self.handover_timeout}) is negative; 0 means no wait"
            )
        if self.priority > 0:
            raise ElectionConfigError(f"priority ({self.priority}) must be 0 or less; 0 is the highest")
        if self.newest_schema < 1:
            raise ElectionConfigError(f"newest_schema ({self.newest_schema}) must be 1 or more; raise it")
        forced = self.forced_takeover_after
        if forced is not None and forced < self.guard_timeout:
            raise ElectionConfigError(
                f"forced_takeover_after ({forced}) must not be below guard_timeout ({self.guard_timeout}): "
                f"a guard may take that long to decline"
            )
        if self.requeue_backoff_max < self.requeue_backoff_min:
            raise ElectionConfigError(
                f"requeue_backoff_max ({self.requeue_backoff_max}) must not be below requeue_backoff_min "
                f"({self.requeue_backoff_min}); raise the first or lower the second"
            )
