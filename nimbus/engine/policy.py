"""The operator's settings that the rules apply."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from nimbus.access.oidc import Grants
from nimbus.domain.attempts.supervision import Timings
from nimbus.domain.cluster.access import AccessRole
from nimbus.domain.cluster.alerts import NotifyRule
from nimbus.domain.cluster.schema import NEWEST_SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPolicy:
    """Alert settings of the cluster, for pipelines without their own."""

    targets: frozenset[str] = frozenset()
    notify: tuple[NotifyRule, ...] = ()
    """Notification rules for pipelines that have none of their own."""
    give_up_after: timedelta = timedelta(hours=24)
    """How long after its cause tries to send an alert go on."""

    def of(self, own: tuple[NotifyRule, ...] | None) -> tuple[NotifyRule, ...]:
        """The rules of a pipeline. `own`: those of its definition; None: it has none."""
        return self.notify if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's settings that the rules apply."""

    timings: Timings = field(default_factory=Timings)
    max_infrastructure_failures: int = 10
    """Limit of lost, fenced or refused attempts of one task. At the limit the task fails."""
    keep_finished: timedelta = timedelta(hours=1)
    """How long a finished run stays in ZooKeeper after history has it."""
    max_running: int | None = None
    """Limit of runs under way in the cluster; None: no limit."""
    newest_schema: int = NEWEST_SCHEMA
    """The schema to which the cluster's is raised."""
    raise_schema_after: timedelta = timedelta(hours=1)
    """How long all registered schedulers and workers must know the newest schema before it is raised."""
    alerts: AlertPolicy = field(default_factory=AlertPolicy)
    grants: Grants | None = None
    """Roles of the identity provider's groups; None: there is no provider."""
    pipelines_may: AccessRole = AccessRole.OPERATOR
    """The role of every pipeline on pipelines, datasets and variables of other owners, without a grant."""
