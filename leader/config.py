"""How one process takes part in one election."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from leader.errors import ElectionConfigError
from leader.protocol.paths import checked_root


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionConfig:
    """Checked once, here, then trusted. Every participant should use the same.

    Args:
        root: Absolute ZooKeeper path of this election, without a slash at the end.
        guard_timeout: Longest wait for the guard's answer; silence means no.
        requeue_backoff_min: Upper bound of the first random wait after an abdication. It doubles with each
            abdication in a row, and begins anew for whoever led for `requeue_backoff_max`.
        requeue_backoff_max: Upper bound of all of them.
        retry_max: Longest pause between two tries of a call that failed.
        step_down_margin: How long before the session can end we stop leading by ourselves. Covers the
            drift of our clock against the servers'.
        handover_timeout: How long an abdicating leader waits for its `revoked` to return before it
            lets the lock go. Fencing protects what it still does afterwards.
        forced_takeover_after: How long everybody may decline before the best-ranked participant leads all the
            same; None: nobody leads until a guard says yes.
        priority: 0, or less for who shall lead only if nobody better is ready and in the queue.
        nofailover: Never lead, never queue; be seen, that is all.
        mend_access_lists: With a credential, close what is open below `root` once, at the start. Without it
            nodes stay as they are; see `AclEnforcement`.
        newest_schema: The newest schema of what this election protects that this participant knows. It does
            not take the lead under a newer one. A new election begins with it; see `schema_raised`.
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
                f"({self.requeue_backoff_min}); raise the one or lower the other"
            )
