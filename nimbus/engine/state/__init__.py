"""The leader's state, with the indexes for its rules. Only the engine thread changes it.

`apply` applies a decision's writes, `put_*` records that were read. The cost depends only on the changed
records, whose keys go to the work queue. Each other module owns the records of one kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import assert_never

from nimbus.domain import writes as w
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord, followers
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.runs.run import Run
from nimbus.domain.starts.admission import Capacity, Gate, Want
from nimbus.domain.starts.upstream import Upstream
from nimbus.engine.decision import (
    ArchiveOutcomes,
    ArchiveRun,
    ArchiveTerms,
    BuildRun,
    Built,
    Decision,
    Effect,
    FindVersions,
    Jobs,
    NoDecision,
    PrepareRelease,
    ProbeData,
    RenderTask,
    ResignLeadership,
    SendAlert,
    StorePurge,
    StoreVersions,
)
from nimbus.engine.policy import Policy
from nimbus.engine.ready import ReadyTasks
from nimbus.engine.run_queue import RunQueue
from nimbus.engine.state.alerts import Alerts
from nimbus.engine.state.attempts import OpenAttempts
from nimbus.engine.state.catalog import Catalog
from nimbus.engine.state.commands import Commands
from nimbus.engine.state.leadership import LeadershipState
from nimbus.engine.state.runs import Runs
from nimbus.engine.state.tasks import WaitingTasks
from nimbus.engine.work_queue import Instant, Key, WorkQueue

__all__ = ["Built", "State"]


class State:
    """The whole state that rules read. They never change it."""

    def __init__(self, *, epoch: int, schema: int, policy: Policy | None = None) -> None:
        self.epoch = epoch
        self.policy = policy or Policy()
        self.settings = ClusterSettings()
        self._woken_at = datetime.min.replace(tzinfo=UTC)
        self._registered: tuple[WorkerInfo, ...] = ()
        """Workers as read; `attempts.workers` has them with the settings applied, such as cordons."""
        live: dict[RunId, Run] = {}
        work = self.work = WorkQueue()
        self.builds = Jobs[Key, Built]()
        """Runs that another thread builds, by the keys that start them."""
        newest = self.policy.newest_schema
        self.leadership = LeadershipState(work, epoch=epoch, schema=schema, newest_schema=newest)
        self.alerts = Alerts(work)
        self.catalog = Catalog(work, self.builds)
        self.ready = ReadyTasks(self.catalog.team_of, self._part)
        self.commands = Commands(work, self.builds, live)
        self.queue = RunQueue(
            self.catalog.limit_of,
            self.policy.max_running,
            self.catalog.team_of,
            self._weight_of,
            self.catalog.is_held,
        )
        self.attempts = OpenAttempts(work, live, self.ready, self.catalog.team_of)
        self.tasks = WaitingTasks(work, live, self.ready)
        self.runs = Runs(
            work, live, self.queue, self.ready, self.builds, self.attempts, self.tasks, self.commands
        )

    @property
    def is_loaded(self) -> bool:
        """True after everything is read. Until then, only attempts of runs that are read are decided."""
        return self.runs.read is None

    def put_workers(self, workers: Iterable[WorkerInfo], now: Instant) -> None:
        """Update the registered workers."""
        self._registered = tuple(workers)
        self.attempts.put_workers(self.settings.applied_to(self._registered), now)

    def put_schedulers(self, schedulers: Collection[SchedulerInfo], now: Instant) -> None:
        """Update schedulers, after the workers."""
        self.leadership.put_schedulers(schedulers, self.attempts.workers.registered.values(), now)

    def put_settings(self, settings: ClusterSettings, now: Instant) -> None:
        """Update the cluster settings."""
        for pool in self.settings.pools.keys() | settings.pools.keys():
            self.ready.open(Gate("pool", pool))
        for calendar, stored in settings.calendars.items():
            if stored != self.settings.calendars.get(calendar):
                for record in followers(self.catalog.pipelines.values(), calendar):
                    self.work.add(Key("pipeline", record.name))
        if self.settings.holds != settings.holds:
            self.catalog.put_holds(settings.holds)
            self.queue.reopen()
        self.settings = settings
        self.put_workers(self._registered, now)

    def put_pipeline(self, record: PipelineRecord) -> None:
        """Add or replace a pipeline. Its limit of runs, and who reads its datasets, may have changed."""
        before = self.catalog.pipelines.get(record.name)
        self.catalog.put(record)
        if before is not None and (before.owner, before.profile) != (record.owner, record.profile):
            for name in {*record.profile.reads, *before.profile.datasets, *record.profile.datasets}:
                self.tasks.enqueue_readers(name)
        if (None if before is None else before.owner) != record.owner:
            self.runs.count_again(record.name)
        self.queue.reopen()

    def forget_pipeline(self, name: PipelineName) -> None:
        """Remove a pipeline that is no longer in the catalog. Reruns of its runs are refused now."""
        self.catalog.forget(name)
        self.runs.last_success.pop(name, None)
        self.commands.enqueue_reruns()

    def put_intervals(self, name: PipelineName, index: IntervalIndex | None) -> None:
        """Replace the index of a pipeline's data intervals, for which tasks wait; None: there is no index."""
        self.catalog.put_intervals(name, index)
        self.tasks.enqueue_awaiting(name)

    def run_built(self, key: Key, built: Built) -> None:
        """Record that a run is built, or cannot be built."""
        if self.builds.finish(key, built):
            self.work.add(key)

    def park(self, key: Key, why: str) -> None:
        """Call no rule for a key for a while. Commands behind a command that is parked may pass."""
        self.work.parked[key] = why
        if key.kind == "command" and key.command in self.commands.waiting:
            self.commands.leave_lines(key.command)

    def next_queued(self) -> Key | None:
        """The queued run that starts next."""
        run = self.queue.first()
        return None if run is None else Key("queue", run)

    def next_ready(self) -> Key | None:
        """The most urgent ready task for which there may be a slot."""
        task = self.ready.first(slots_free=len(self.attempts.workers.free) > 0)
        return None if task is None else Key("task", *task)

    def capacity(self) -> Capacity:
        """The capacity for ready tasks."""
        return self.attempts.workers.capacity(self.settings.pools, self.attempts.pools.used)

    def _weight_of(self, team: str) -> int:
        return self.settings.weight_of(team)

    def _part(self, want: Want) -> float:
        """The largest part of slots and pools that a team has of what it wants, by its weight."""
        part, pools = self.attempts.workers.part(want), self.settings.pools
        for pool in want.pools:
            part = max(part, self.attempts.pools.used_by(want.team, pool) / max(pools.get(pool, 0), 1))
        return part / self.settings.weight_of(want.team)

    def upstream(self, name: PipelineName) -> Upstream:
        """Facts about the runs of a pipeline, for tasks that wait for them."""
        live = tuple(self.runs.live[run] for run in self.runs.of(name))
        return Upstream(self.catalog.intervals.get(name), live, name in self.catalog.pipelines)

    def apply(self, decision: Decision, now: Instant) -> None:
        """Apply a decision to the state."""
        for write in decision.writes:
            self._apply_write(write, now)
        for effect in decision.effects:
            self._apply_effect(effect)

    def _apply_effect(self, effect: Effect) -> None:
        match effect:
            case PrepareRelease(release):
                self.commands.releases.under_way.add(release)
            case ArchiveRun(run_id):
                self.runs.archiving(run_id)
            case StorePurge(command) | StoreVersions(command):
                self.commands.stored.under_way.add(command)
            case BuildRun(key, _):
                self.builds.under_way.add(key)
            case RenderTask(run, task):
                self.tasks.renderings.under_way.add(Key("rendering", run.id, task))
            case FindVersions(run, task, _):
                self.tasks.finding(run, task)
            case ProbeData() | ArchiveOutcomes() | ArchiveTerms():
                pass  # not part of a decision: see `Probes` and `TermUpkeep`
            case ResignLeadership():
                self.leadership.resigning = True
            case SendAlert(alert):
                self.alerts.outbox.started.add(alert.claim)
            case _:
                assert_never(effect)

    def _apply_write(self, write: w.Write, now: Instant) -> None:  # noqa: C901 - one branch for each kind
        match write:
            case (
                w.CreateAttempt()
                | w.Assign()
                | w.Unassign()
                | w.WriteClaim()
                | w.WriteEnd()
                | w.RequestStop()
            ):
                pass  # their consequences are in the run's record
            case w.PutRun(run, _) | w.CreateRun(run):
                self._put_run(run, now)
            case w.RemoveRun(run_id):
                self.runs.forget(run_id)
            case w.RemoveAttempt(attempt):
                self.runs.attempt_removed(attempt)
            case w.CreatePipeline(record) | w.PutPipeline(record, _):
                self.put_pipeline(record)
            case w.RemovePipelineRecord(record):
                self.forget_pipeline(record.name)
            case w.ConsumeCommand() | w.PutCommand():
                self.commands.apply(write, now)
            case w.PutIntervals(pipeline, index, _):
                self.put_intervals(pipeline, index)
            case w.PutDataset(dataset, _):
                self._put_dataset(dataset)
            case w.RemoveDatasetRecord(dataset):
                self.catalog.datasets.pop(dataset.name, None)
                self.tasks.enqueue_readers(dataset.name)
            case w.PutDue(pipeline, due, _):
                self.catalog.put_due(pipeline, due)
            case w.PutBackfill(backfill, _):
                self.catalog.put_backfill(backfill)
            case w.RemoveBackfill(backfill):
                self.catalog.forget_backfill(backfill.id)
            case w.PutAbdication(abdication):
                self.leadership.abdicated(abdication)
            case w.CreateTerm(term) | w.PutTerm(term):
                self.leadership.put_term(term)
            case w.PutSettings(settings):
                self.put_settings(settings, now)
            case w.RaiseSchema(schema):
                self.leadership.schema_raised(schema)
            case w.CreateAlert(alert) | w.PutAlert(alert):
                self.alerts.put(alert)
            case w.RemoveAlert(alert_id):
                self.alerts.forget(alert_id)
            case w.PutHealth(health, _):
                self.alerts.health[health.name] = health
                self.catalog.enqueue_deadline(health.name)
            case w.RemoveHealth(name):
                self.alerts.health.pop(name, None)

    def _put_dataset(self, dataset: Dataset) -> None:
        self.catalog.datasets[dataset.name] = dataset
        self.runs.note_number(dataset)
        self.tasks.enqueue_readers(dataset.name)
        self.catalog.enqueue_freshness(dataset.name)
        self.catalog.enqueue_consumers(dataset.name)
        if dataset.removing:
            self.commands.enqueue_removals(dataset.name)

    def _put_run(self, run: Run, now: Instant) -> None:
        self.runs.put(run, now)
        if run.state.is_final:
            self.catalog.enqueue_consumer(run.pipeline)

    def keep_from(self, before: State) -> None:
        """Copy from `before` what ZooKeeper does not have, before everything is read again."""
        self.work.parked = dict(before.work.parked)
        self.builds.keep_from(before.builds)
        self.leadership.keep_from(before.leadership)
        self.catalog.quarantined = before.catalog.quarantined
        self.commands.keep_from(before.commands)
        self.tasks.renderings.keep_from(before.tasks.renderings)
        self.tasks.pins.keep_from(before.tasks.pins)
        self.runs.keep_from(before.runs)
        self.attempts.silent = dict(before.attempts.silent)
        self.alerts.outbox.keep_from(before.alerts.outbox)

    def finish_loading(self) -> None:
        """Note that everything is read. Drop what was kept about keys that no longer exist."""
        if self.leadership.terms is not None:
            self.work.add(Key("term"))
        self.builds.keep_only(self._waits)
        self.commands.keep_waiting()
        self.tasks.pins.keep_only(lambda key: key.run in self.runs.live)
        self.tasks.renderings.keep_only(lambda key: key.run in self.runs.live)
        self.runs.keep_read(self.catalog.pipelines)
        self.attempts.keep_open()

    def _waits(self, key: Key) -> bool:
        if key.kind == "children":
            return key.run in self.runs.live
        if key.kind == "backfill":
            return key.backfill in self.catalog.backfills
        return key.command in self.commands.waiting or key.pipeline in self.catalog.pipelines

    def dismiss(self, key: Key) -> None:
        """Remove a key that is parked from the work queue. Reading it again brings it back."""
        if key.kind == "task":
            self.ready.discard(key.run, key.task)
        elif key.kind == "queue":
            self.queue.withdraw(key.run)
        else:
            self.work.done(key)

    def postpone(self, key: Key, until: NoDecision) -> None:
        """Apply the answer that there is nothing to decide about a key now."""
        if key.kind == "task":
            self.ready.close(key.run, key.task, until.gates)
            return
        if key.kind == "queue":
            self.queue.close()
            return
        self.work.done(key)
        if key.kind == "alert" and until.at is None:
            self.alerts.outbox.hold(key.name)
        if until.at is not None:
            self.work.add_at(key, until.at)
        if until.after_s is not None:
            self.work.add_after(key, until.after_s)

    def wake(self, now: Instant) -> None:
        """Queue the keys of due timers.

        If the wall clock has stepped back, consumers whose change it dated too late are looked at again: they
        may start before their timers.
        """
        if now.wall < self._woken_at:
            for name, due in self.catalog.due.items():
                if due.dated_by(now.wall) != due:
                    self.work.add(Key("pipeline", name))
        self._woken_at = now.wall
        for key in self.work.pop_due(now):
            match key.kind:
                case "task":
                    self.tasks.add_ready(key.run, key.task)
                case "worker":
                    self.ready.reopen()
                case _:
                    self.work.add(key)
