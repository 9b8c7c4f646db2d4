"""Settings of the whole cluster: pools, shares, holds, variables, calendars, tokens, grants. Pure.

A hold covers the whole cluster, a team, a tag, or a prefix of names. As long as its record exists, nothing of
a covered pipeline starts; what runs goes on, with its child runs. The leader removes the record at `until`.
A rerun that executes nothing, because all its tasks are marked or reused, does not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.access import AccessGrant, Token
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import WorkerId
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.catalog import PipelineRecord

MAX_HOLDS = 100
ALERT_AFTER = timedelta(hours=24)


class HoldOf(StrEnum):
    """What a hold covers."""

    ALL = "all"
    TEAM = "team"
    TAG = "tag"
    PREFIX = "prefix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One hold."""

    of: HoldOf
    name: str = ""
    """The team, the tag or the prefix; empty for the whole cluster."""
    reason: str
    until: datetime | None = None
    """When the leader ends it; None: when somebody does."""
    alert_after: timedelta = ALERT_AFTER
    """How long it lasts without an alert, if it has no end."""
    alerted: bool = False
    held_by: str = ""
    held_at: datetime

    def covers(self, record: PipelineRecord) -> bool:
        """True when starts of a pipeline wait."""
        match self.of:
            case HoldOf.ALL:
                return True
            case HoldOf.TEAM:
                return record.owner == self.name
            case HoldOf.TAG:
                return self.name in record.profile.tags
            case HoldOf.PREFIX:
                return record.name.startswith(self.name)

    @property
    def next_change(self) -> datetime | None:
        """When the leader ends it, or raises its alert; None: it has raised it."""
        overdue = None if self.alerted else self.held_at + self.alert_after
        return overdue if self.until is None else self.until

    def checked(self, records: Iterable[PipelineRecord], now: datetime) -> int:
        """The number of pipelines that a new hold covers. Raises RefusedError if it makes no sense."""
        if (self.of is HoldOf.ALL) == bool(self.name):
            raise RefusedError("bad_hold", "a hold needs a name of a team, a tag or a prefix, or is of all.")
        if self.until is not None and self.until <= now:
            raise RefusedError("bad_hold", f"{self.until:%Y-%m-%d %H:%M:%SZ} has passed: name a later end.")
        if not (covered := sum(map(self.covers, records))):
            raise RefusedError(
                "nothing_held", f"no pipeline has the {self.of} {self.name}: see `nimbus pipeline list`."
            )
        return covered

    def words(self, name: str) -> str:
        """The hold as text. `name`: its own."""
        of = "all pipelines are" if self.of is HoldOf.ALL else f"{self.of} {self.name} is"
        until = f"until {self.until:%Y-%m-%d %H:%M:%SZ}" if self.until else f"until `nimbus hold end {name}`"
        by = f" by {self.held_by}" if self.held_by else ""
        return f"{of} held{by} since {self.held_at:%Y-%m-%d %H:%M:%SZ} {until}: {self.reason}"


def hold_of(record: PipelineRecord, holds: Mapping[str, Hold]) -> str | None:
    """The name of a hold that covers a pipeline; None: there is none."""
    return next((name for name, hold in holds.items() if hold.covers(record)), None)


def why_held(record: PipelineRecord | None, holds: Mapping[str, Hold]) -> str | None:
    """The hold that covers a pipeline, as text; None: there is none."""
    name = None if record is None else hold_of(record, holds)
    return None if name is None else holds[name].words(name)


MAX_POOLS = 1000
MAX_CORDONED = 1000
MAX_SHARES = 1000
MAX_CALENDARS = 32
LARGEST_WEIGHT = 1000


def checked_weight(team: str, weight: int) -> int:
    """The weight of a team's share. Raises RefusedError if it is out of range."""
    if 1 <= weight <= LARGEST_WEIGHT:
        return weight
    what = "to start nothing of the team, hold it" if weight < 1 else "only the proportion of weights counts"
    raise RefusedError(
        "bad_weight", f"the weight of team {team} is {weight}, and must be 1 to {LARGEST_WEIGHT}: {what}."
    )


LONGEST_VARIABLE = 1024
"""Limit of a value, in characters."""
MAX_VARIABLE_BYTES = 32 * 1024
"""Limit of all names and values, in bytes of JSON. It keeps the record far below the limit of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamShare:
    """How much a team gets of slots, running runs and pools, in proportion to the weights of the others."""

    weight: int
    reason: str = ""
    set_by: str = ""
    set_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCalendar:
    """A calendar of the cluster. Each pipeline that follows it has a copy of its days in its record."""

    days: Calendar
    reason: str = ""
    set_by: str = ""
    set_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings, in one record, which is read and written in one call."""

    pools: Mapping[str, int] = field(default_factory=dict)
    """The size of each pool. The use is counted from open attempts, and is not stored."""
    shares: Mapping[str, TeamShare] = field(default_factory=dict)
    """By team, which is the owner of a pipeline. A team that is not in it has the weight 1."""
    calendars: Mapping[str, ClusterCalendar] = field(default_factory=dict)
    holds: Mapping[str, Hold] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values that templates read as `vars.NAME`. No secrets: everybody can read them."""
    cordoned: Mapping[WorkerId, str] = field(default_factory=dict)
    """Workers that get no new attempts, with the reason. An entry stays while the worker is offline."""
    drained: tuple[WorkerId, ...] = ()
    """Those of them that tasks which are kept running leave."""
    tokens: Mapping[str, Token] = field(default_factory=dict)
    """Tokens by id. They contain only the SHA-256 of the secret."""
    grants: tuple[AccessGrant, ...] = ()
    """By whom and on what, sorted: one of each pair."""

    def days_of(self, calendar: str) -> Calendar | None:
        """The days of a calendar; None: the cluster does not have it."""
        record = self.calendars.get(calendar)
        return None if record is None else record.days

    def weight_of(self, team: str) -> int:
        """The weight of a team's share."""
        share = self.shares.get(team)
        return 1 if share is None else share.weight

    def share_of(self, team: str, total: int, others: Iterable[str]) -> float:
        """What a team may keep of a total while the others want theirs, too."""
        weights = {name: self.weight_of(name) for name in (team, *others)}
        return total * weights[team] / sum(weights.values())

    def applied_to(self, workers: Iterable[WorkerInfo]) -> tuple[WorkerInfo, ...]:
        """The workers, with cordoned ones marked as draining."""
        return tuple(
            replace(w, draining=True, evicts=w.id in self.drained) if w.id in self.cordoned else w
            for w in workers
        )
