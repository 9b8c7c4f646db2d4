"""Which pipelines and runs a list or a selection takes. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.ids import PipelineName
from nimbus.domain.run import Run

NOBODY = "-"
"""The owner of pipelines without one."""


class Parameter(NamedTuple):
    """A parameter that a run must have."""

    name: str
    value: str
    """A text as it is; any other value as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What is asked of a pipeline, and of a run besides its state and the time of its creation. None: any."""

    pipeline: str | None = None
    tag: str | None = None
    owner: str | None = None
    """A principal or a team, or NOBODY."""
    first: datetime | None = None
    last: datetime | None = None
    """The first and last logical date, both included."""
    parameters: tuple[Parameter, ...] = ()

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

    def takes_run(self, run: Run) -> bool:
        """True when a run of such a pipeline passes."""
        return (
            (self.first is None or run.logical_date >= self.first)
            and (self.last is None or run.logical_date <= self.last)
            and all(_text(run.parameters.get(one.name)) == one.value for one in self.parameters)
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
