"""Holds: starts of pipelines that wait, for maintenance or an incident. Pure.

A hold covers the whole cluster, a team, a tag, or a prefix of names. As long as its record exists, nothing of
a covered pipeline starts; what runs goes on, with its child runs. The leader removes the record at `until`.
A rerun that executes nothing, because all its tasks are marked or reused, does not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.errors import RefusedError

MOST_HOLDS = 100
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
