"""Which pipelines and runs a list or a selection takes. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.runs.run import ListedRun, Run, RunState

NOBODY = "-"
"""The owner of pipelines without one."""


class Parameter(NamedTuple):
    """A parameter that a run must have."""

    name: str
    value: str
    """A text as it is; any other value as JSON."""


class TimeSpan(NamedTuple):
    """A span of time, both ends included; None: open."""

    since: datetime | None = None
    until: datetime | None = None

    def has(self, moment: datetime) -> bool:
        """True for a moment in it."""
        since, until = self
        return (since is None or moment >= since) and (until is None or moment <= until)


ANY_TIME = TimeSpan()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What is asked of pipelines and runs. None and empty: nothing."""

    pipeline: str | None = None
    tag: str | None = None
    owner: str | None = None
    """A principal or a team, or NOBODY."""
    state: RunState | None = None
    created: TimeSpan = ANY_TIME
    logical: TimeSpan = ANY_TIME
    """Of logical dates."""
    parameters: tuple[Parameter, ...] = ()

    @property
    def is_indexed(self) -> bool:
        """True when history's indexes find all that passes."""
        return (self.tag, self.owner, self.logical, self.parameters) == (None, None, ANY_TIME, ())

    def pipelines(self, records: Iterable[PipelineRecord]) -> frozenset[PipelineName] | None:
        """The pipelines whose runs it takes; None: all, also those that left the catalog."""
        if self.tag is None and self.owner is None:
            return None if self.pipeline is None else frozenset([PipelineName(self.pipeline)])
        return frozenset(record.name for record in records if self.takes_pipeline(record))

    def takes_pipeline(self, record: PipelineRecord) -> bool:
        """True when a pipeline passes."""
        return (
            self.pipeline in (None, record.name)
            and (self.tag is None or self.tag in record.profile.tags)
            and self.owner in (None, record.owner or NOBODY)
        )

    def takes_listed(self, run: Run | ListedRun) -> bool:
        """True when a run of such a pipeline passes by its state and its creation."""
        return self.state in (None, run.state) and self.created.has(run.created_at)

    def takes_run(self, run: Run) -> bool:
        """True when such a run passes by what only its whole record has."""
        return self.logical.has(run.logical_date) and all(
            _text(run.parameters.get(parameter.name)) == parameter.value for parameter in self.parameters
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
