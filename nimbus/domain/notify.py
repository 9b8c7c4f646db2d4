"""Notification rules of a pipeline or a whole cluster: which events raise alerts, and for which target."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class AlertEvent(StrEnum):
    """Events that can raise an alert."""

    FAILED = "failed"
    """A run failed, not by a timeout. Raised once, until a run of its pipeline succeeds.

    Also: a task that is kept running has ended early three times in a row; again after it has run well.
    """
    TIMED_OUT = "timed_out"
    """A run failed because its timeout, or that of a task, passed. Raised once, together with `failed`."""
    RECOVERED = "recovered"
    """A run succeeded after one that failed."""
    SUCCEEDED = "succeeded"
    WORKER_LOST = "worker_lost"
    """An attempt of a run was lost with its worker. Raised once for each run and worker."""
    SKIPPED_FIRE = "skipped_fire"
    """A fire time of the schedule started no run. Raised once, until one does."""
    LATE = "late"
    """A run is late, see `Lateness`; an attempt has lasted as long as `warn_after` of its task; or the newest
    data of a dataset are older than its `fresh`."""
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    """A task waits until a person approves or rejects it."""


class Lateness(StrEnum):
    """Kinds of lateness of a run. Each is raised once."""

    WARN_AFTER = "warn_after"
    """The run has been under way for `warn_after`."""
    EXPECT = "expect"
    """The run has not ended `expect` after it was requested."""
    EXPECT_SOON = "expect_soon"
    """The run is likely to miss `expect`: most earlier runs took longer than the time that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyRule:
    """Which events raise alerts for one target."""

    on: tuple[AlertEvent, ...]
    to: str
    """Name of a target, one of `alerts.targets` in the schedulers' configuration."""
