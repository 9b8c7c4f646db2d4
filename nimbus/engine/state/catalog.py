"""Updates pipelines, their data intervals, and backfills."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, MutableMapping

from nimbus.definition.targets import KnownLacks
from nimbus.domain.cluster.settings import Hold, hold_of
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.ids import BackfillId, DatasetName, PipelineName
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.starts.due import Due
from nimbus.engine.decision import Built, Jobs
from nimbus.engine.work_queue import Key, WorkQueue


class Catalog:
    """Pipelines and backfills."""

    def __init__(self, work: WorkQueue, builds: Jobs[Key, Built]) -> None:
        self._work = work
        self._builds = builds
        self.pipelines: dict[PipelineName, PipelineRecord] = {}
        self.quarantined: Mapping[PipelineName, str] = {}
        self.holds: Mapping[str, Hold] = {}
        self.backfills: dict[BackfillId, Backfill] = {}
        self.intervals: dict[PipelineName, IntervalIndex] = {}
        self.datasets: MutableMapping[DatasetName, Dataset] = {}
        self.fresh_by: defaultdict[DatasetName, set[PipelineName]] = defaultdict(set)
        """Pipelines that say how fresh a dataset must be."""
        self.due: dict[PipelineName, Due] = {}
        self.lacks: dict[PipelineName, KnownLacks] = {}
        """The facts of the last look at a consumer that found no target to start: only what has changed since
        is looked at again."""
        self._consumers: defaultdict[DatasetName, set[PipelineName]] = defaultdict(set)
        self._backfills_of: defaultdict[PipelineName, set[BackfillId]] = defaultdict(set)

    def is_held(self, pipeline: PipelineName) -> bool:
        """True when starts of a pipeline wait for the end of a hold."""
        record = self.pipelines.get(pipeline)
        return bool(self.holds) and record is not None and hold_of(record, self.holds) is not None

    def may_start(self, pipeline: PipelineName) -> bool:
        """True when a pipeline is neither quarantined nor held."""
        return pipeline not in self.quarantined and not self.is_held(pipeline)

    def put_holds(self, holds: Mapping[str, Hold]) -> None:
        """Replace the holds. A run of a pipeline that a changed one covers or covered must be built again."""
        before, self.holds = self.holds, holds
        changed = before.items() ^ holds.items()
        for name, _ in changed:
            self._work.add(Key("hold", name))
        names = [
            name for name, record in self.pipelines.items() if any(hold.covers(record) for _, hold in changed)
        ]
        for name in names:
            self._builds.results.pop(Key("pipeline", name), None)
            self._work.add(Key("pipeline", name))
        self._enqueue_backfills(names)

    def team_of(self, pipeline: PipelineName) -> str:
        """The owner of a pipeline; empty: it has none."""
        record = self.pipelines.get(pipeline)
        return "" if record is None else record.owner or ""

    def limit_of(self, pipeline: PipelineName) -> int | None:
        """`concurrency.limit` of a pipeline; None: any number."""
        record = self.pipelines.get(pipeline)
        if record is None:  # its limit is not known
            return 0
        concurrency = record.profile.concurrency
        return None if concurrency is None else concurrency.limit

    def put(self, record: PipelineRecord) -> None:
        """Add or replace a pipeline. A run that was built for another schedule position is dropped."""
        before = self.pipelines.get(record.name)
        if before is not None and before.positions_of_all != record.positions_of_all:
            self._builds.results.pop(Key("pipeline", record.name), None)
        self._watch_datasets(before, record)
        self.pipelines[record.name] = record
        self._work.add(Key("pipeline", record.name))
        self.enqueue_deadline(record.name)
        self._enqueue_backfills({record.name})

    def enqueue_deadline(self, name: PipelineName) -> None:
        """Queue a pipeline with a deadline."""
        record = self.pipelines.get(name)
        if record is not None and record.profile.deadline is not None:
            self._work.add(Key("deadline", name))

    def enqueue_freshness(self, name: DatasetName) -> None:
        """Queue a dataset that must be fresh."""
        if name in self.fresh_by:
            self._work.add(Key("fresh", name))

    def _watch_datasets(self, before: PipelineRecord | None, record: PipelineRecord | None) -> None:
        if before is not None:
            for name in before.profile.fresh:
                self.fresh_by[name].discard(before.name)
        if record is not None:
            for name in record.profile.fresh:
                self.fresh_by[name].add(record.name)
                self.enqueue_freshness(name)

    def forget(self, name: PipelineName) -> None:
        """Remove a pipeline that is no longer in the catalog."""
        key = Key("pipeline", name)
        self._watch_datasets(self.pipelines.pop(name, None), None)
        self._builds.forget(key)
        self._work.forget(key)
        self._work.forget(Key("deadline", name))

    def consumers_of(self, dataset: DatasetName) -> tuple[Due, ...]:
        """The consumers that read a dataset, by name."""
        return tuple(self.due[name] for name in sorted(self._consumers.get(dataset, ())))

    def put_due(self, name: PipelineName, due: Due | None) -> None:
        """Add, replace or remove a consumer."""
        before = self.due.pop(name, None)
        for read in () if before is None else before.reads:
            self._consumers[read.dataset].discard(name)
        for read in () if due is None else due.reads:
            self._consumers[read.dataset].add(name)
        if due is None:
            self.lacks.pop(name, None)
        else:
            self.due[name] = due
        self.enqueue_consumer(name)

    def enqueue_consumers(self, dataset: DatasetName) -> None:
        """Queue the consumers that read a dataset: their inputs may be complete now."""
        for name in self._consumers.get(dataset, ()):
            self.enqueue_consumer(name)

    def enqueue_consumer(self, name: PipelineName) -> None:
        """Queue a pipeline that starts by data."""
        if name in self.due and name in self.pipelines:
            self._work.add(Key("pipeline", name))

    def put_backfill(self, backfill: Backfill) -> None:
        """Add or replace a backfill. A run that was built for another position is dropped."""
        before, key = self.backfills.get(backfill.id), Key("backfill", backfill.id)
        if before is not None and (before.position, before.state) != (backfill.position, backfill.state):
            self._builds.results.pop(key, None)
        self.backfills[backfill.id] = backfill
        of_pipeline = self._backfills_of[backfill.pipeline]
        (of_pipeline.discard if backfill.state.is_over else of_pipeline.add)(backfill.id)
        self._work.add(key)

    def forget_backfill(self, backfill: BackfillId) -> None:
        """Remove a backfill."""
        key = Key("backfill", backfill)
        record = self.backfills.pop(backfill, None)
        if record is not None:
            self._backfills_of[record.pipeline].discard(backfill)
        self._builds.forget(key)
        self._work.forget(key)

    def _enqueue_backfills(self, pipelines: Collection[PipelineName]) -> None:
        for name in pipelines:
            for backfill in sorted(self._backfills_of.get(name, ())):
                self._work.add(Key("backfill", backfill))

    def put_intervals(self, name: PipelineName, index: IntervalIndex | None) -> None:
        """Replace the index of a pipeline's data intervals; None: there is no index."""
        if index is None:
            self.intervals.pop(name, None)
        else:
            self.intervals[name] = index
        self.enqueue_deadline(name)

    def put_quarantine(self, quarantined: Mapping[PipelineName, str]) -> None:
        """Replace the set of quarantined pipelines."""
        changed = self.quarantined.keys() ^ quarantined.keys()
        self.quarantined = dict(quarantined)
        for name in changed & self.pipelines.keys():
            self._work.add(Key("pipeline", name))
        self._enqueue_backfills(changed)
