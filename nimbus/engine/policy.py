"""The operator's bounds that rules keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from nimbus.access.grants import Grants
from nimbus.domain.notify import NotifyRule
from nimbus.domain.supervision import Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """Whom to tell of what, beside what pipelines say themselves."""

    targets: frozenset[str] = frozenset()
    notify: tuple[NotifyRule, ...] = ()
    """For pipelines that say nothing about it."""
    give_up_after: timedelta = timedelta(hours=24)
    """How long after its cause an alert is tried."""

    def of(self, own: tuple[NotifyRule, ...] | None) -> tuple[NotifyRule, ...]:
        """What is told to whom. `own`: what a pipeline says itself; None: nothing."""
        return self.notify if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's bounds that rules keep."""

    timings: Timings = field(default_factory=Timings)
    max_mishaps: int = 10
    """Attempts of one task that may be lost, fenced or refused before the task fails."""
    keep_finished: timedelta = timedelta(hours=1)
    """How long a finished run stays in ZooKeeper after history has it."""
    max_running: int | None = None
    """Runs that are under way at once in the cluster; None: any number."""
    raise_schema_after: timedelta = timedelta(hours=1)
    """How long every registered scheduler and worker has known the newest schema before it is raised."""
    alerts: AlertPolicy = field(default_factory=AlertPolicy)
    grants: Grants | None = None
    """What groups of the identity provider may do; None: there is no provider."""
