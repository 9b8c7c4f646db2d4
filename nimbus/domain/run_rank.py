"""The order in which queued runs start."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from nimbus.domain.children import Parent
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipeline import Priority
from nimbus.domain.run import Places, RunCause, RunState

TURN = 10
"""If runs of backfills wait, every tenth started run is one of them, so that others cannot starve them."""

RunRank = tuple[Priority, bool, datetime, RunId]


class Ranked(Protocol):
    """The fields of a run that decide when it starts."""

    @property
    def id(self) -> RunId: ...  # noqa: D102
    @property
    def pipeline(self) -> PipelineName: ...  # noqa: D102
    @property
    def state(self) -> RunState: ...  # noqa: D102
    @property
    def priority(self) -> Priority: ...  # noqa: D102
    @property
    def cause(self) -> RunCause: ...  # noqa: D102
    @property
    def created_at(self) -> datetime: ...  # noqa: D102
    @property
    def parent(self) -> Parent | None: ...  # noqa: D102
    @property
    def backfill(self) -> object | None: ...  # noqa: D102
    @property
    def holds(self) -> Places: ...  # noqa: D102


def run_rank(run: Ranked) -> RunRank:
    """Rank by priority; scheduled and child runs before others; then by age. The smallest starts first."""
    return run.priority, run.cause not in (RunCause.SCHEDULE, RunCause.PARENT), run.created_at, run.id
