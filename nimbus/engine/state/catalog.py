"""Updates pipelines, their data intervals, and backfills."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain

from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.ids import BackfillId, PipelineName
from nimbus.domain.interval_index import IntervalIndex
from nimbus.engine.agenda import about_backfill, about_command, about_deadline, about_pipeline
from nimbus.engine.state.tasks import WaitingTasks


class Catalog(WaitingTasks):
    """Pipelines and backfills. An update puts tasks that wait for their runs on the agenda."""

    def put_pipeline(self, record: PipelineRecord) -> None:
        """Add or replace a pipeline. A run that was built for another schedule position is dropped."""
        before = self.pipelines.get(record.name)
        if before is not None and before.schedule_position != record.schedule_position:
            self.built.pop(about_pipeline(record.name), None)
        self.pipelines[record.name] = record
        self.queue.reopen()
        self.agenda.add(about_pipeline(record.name))
        self._look_at_deadline(record.name)
        self._look_at_backfills({record.name})

    def _look_at_deadline(self, name: PipelineName) -> None:
        record = self.pipelines.get(name)
        if record is not None and record.profile.deadline is not None:
            self.agenda.add(about_deadline(name))

    def forget_pipeline(self, name: PipelineName) -> None:
        """Remove a pipeline that is no longer in the catalog."""
        subject = about_pipeline(name)
        self.pipelines.pop(name, None)
        self.last_success.pop(name, None)
        self.building.discard(subject)
        self.built.pop(subject, None)
        self.agenda.forget(subject)
        self.agenda.forget(about_deadline(name))
        for rerun in chain.from_iterable(self._reruns.values()):  # they are in no line of the pipeline
            if about_command(rerun) not in self.set_aside:
                self.agenda.add(about_command(rerun))

    def put_backfill(self, backfill: Backfill) -> None:
        """Add or replace a backfill. A run that was built for another position is dropped."""
        before, subject = self.backfills.get(backfill.id), about_backfill(backfill.id)
        if before is not None and (before.position, before.state) != (backfill.position, backfill.state):
            self.built.pop(subject, None)
        self.backfills[backfill.id] = backfill
        of_pipeline = self._backfills_of[backfill.pipeline]
        (of_pipeline.discard if backfill.state.is_over else of_pipeline.add)(backfill.id)
        self.agenda.add(subject)

    def forget_backfill(self, backfill: BackfillId) -> None:
        """Remove a backfill."""
        subject = about_backfill(backfill)
        found = self.backfills.pop(backfill, None)
        if found is not None:
            self._backfills_of[found.pipeline].discard(backfill)
        self.building.discard(subject)
        self.built.pop(subject, None)
        self.agenda.forget(subject)

    def _look_at_backfills(self, pipelines: Collection[PipelineName]) -> None:
        for name in pipelines:
            for backfill in sorted(self._backfills_of.get(name, ())):
                self.agenda.add(about_backfill(backfill))

    def put_intervals(self, name: PipelineName, index: IntervalIndex | None) -> None:
        """Replace the index of a pipeline's data intervals; None: there is no index."""
        if index is None:
            self.intervals.pop(name, None)
        else:
            self.intervals[name] = index
        self._look_at_awaiting(name)
        self._look_at_deadline(name)

    def put_quarantine(self, quarantined: Mapping[PipelineName, str]) -> None:
        """Replace the set of quarantined pipelines."""
        changed = self.quarantined.keys() ^ quarantined.keys()
        self.quarantined = dict(quarantined)
        for name in changed & self.pipelines.keys():
            self.agenda.add(about_pipeline(name))
        self._look_at_backfills(changed)
