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


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRule:
    """Which events are told to one target."""

    on: tuple[AlertEvent, ...]
    to: str
    """Name of a target, one of `alerts.targets` in the schedulers' configuration."""
