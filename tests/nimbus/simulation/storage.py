"""A simulated S3 with the leader's data: finished runs and releases. It can be unavailable."""

from __future__ import annotations

from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.ids import CommandId, RunId
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.run import Run
from tests.nimbus.simulation.laws import Law, hold


class Storage:
    """See the module."""

    def __init__(self, releases: dict[ReleaseOf, PipelineSpec]) -> None:
        self.releases = releases
        self.available = True
        self.history: dict[RunId, Run] = {}
        self.refusals: dict[CommandId, CommandOutcome] = {}

    def keep(self, run: Run) -> None:
        """Store a finished run. Safe to repeat."""
        hold(Law.ARCHIVED, run.state.is_final, run.id, "went to history while", run.state)
        before = self.history.setdefault(run.id, run)
        hold(Law.ARCHIVED, before == run, run.id, "went to history twice, with different contents")
