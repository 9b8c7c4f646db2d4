"""What a pipeline, or a whole cluster, wants people to be told of, and where to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AlertEvent(StrEnum):
    """What people can be told of."""

    FAILED = "failed"
    """A run has failed, for another reason than the next one; once until a run of its pipeline succeeds."""
    TIMED_OUT = "timed_out"
    """A run has failed since its timeout, or that of one of its tasks, was over; counted with `failed`."""
    RECOVERED = "recovered"
    """The first run that succeeds after one that failed."""
    SUCCEEDED = "succeeded"
    WORKER_LOST = "worker_lost"
    """An attempt of a run was lost with its worker; once for a run and a worker."""
    SKIPPED_FIRE = "skipped_fire"
    """A fire time of the schedule started no run; once until one does."""
    LATE = "late"
    """See `Lateness`; of an attempt, it has lasted as long as `warn_after` of its task."""
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    """A task waits until a person approves or rejects it."""


class Lateness(StrEnum):
    """What of a run's time is over. Each is told of once."""

    WARN_AFTER = "warn_after"
    """It has been under way that long."""
    EXPECT = "expect"
    """It has not ended that long after it was asked for."""
    EXPECT_SOON = "expect_soon"
    """It did not start in time: most runs before it took longer than what was left of `expect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRule:
    """Which events are told to one target."""

    on: tuple[AlertEvent, ...]
    to: str
    """Name of a target, one of `alerts.targets` in the schedulers' configuration."""
