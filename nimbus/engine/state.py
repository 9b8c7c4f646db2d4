"""What the leader knows, with the indexes that its rules ask. Changed by one thread, the engine's.

`apply` takes in what a decision wrote, `put_*` what was read. Each costs what it touches, and puts on the
agenda what must be looked at again because of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import assert_never

from nimbus.domain import writes as w
from nimbus.domain.admission import Capacity, Gate, need_of
from nimbus.domain.alerts import Alert, Claim, Failure
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.child_runs import child_of, is_under_way
from nimbus.domain.children import ItemState
from nimbus.domain.commands import (
    Abdication,
    ActivatePipeline,
    CreateBackfill,
    PublishRelease,
    QueuedCommand,
    StartRun,
    is_urgent,
)
from nimbus.domain.drafts import Draft
from nimbus.domain.earliest import not_before, queue_ends_at
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, PipelineName, RunId, TaskName, WorkerId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.lifecycle import must_stop
from nimbus.domain.pipeline import PipelineSpec, TaskSpec
from nimbus.domain.pipeline_health import PipelineHealth
from nimbus.domain.run import Attempt, Run, RunState, TaskRun, TaskState
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.schema import NEWEST_SCHEMA, older_than
from nimbus.domain.settings import ClusterSettings
from nimbus.domain.slots import Slots
from nimbus.domain.upstream import Upstream, upstream_of
from nimbus.domain.waits import Look, PipelineWait, Seen, faults_of, looks_of
from nimbus.domain.workers import WorkerInfo
from nimbus.engine.agenda import (
    ABOUT_ABDICATION,
    ABOUT_SCHEMA,
    Agenda,
    Instant,
    Subject,
    about_alert,
    about_attempt,
    about_backfill,
    about_child,
    about_children,
    about_command,
    about_deadline,
    about_finished,
    about_late,
    about_overdue,
    about_pipeline,
    about_queued,
    about_rendering,
    about_run,
    about_task,
    about_wait,
    about_worker,
)
from nimbus.engine.command_lines import CommandLines
from nimbus.engine.decision import (
    ArchiveOutcomes,
    ArchiveRun,
    BuildRun,
    Decision,
    LookAt,
    Nothing,
    PrepareRelease,
    RenderTask,
    ResignLeadership,
    SendAlert,
    StorePurge,
)
from nimbus.engine.finished import Finished, finished
from nimbus.engine.looks import Looks
from nimbus.engine.needs import Needs
from nimbus.engine.outbox import Outbox
from nimbus.engine.policy import Policy
from nimbus.engine.pools import PoolUse
from nimbus.engine.purge_orders import PurgeOrders
from nimbus.engine.ready import ReadyTasks
from nimbus.engine.refusal import Refusal
from nimbus.engine.run_queue import RunQueue
from nimbus.engine.workers import Workers


@dataclass(frozen=True, slots=True)
class Built:
    """What became of a draft."""

    draft: Draft
    result: Run | Refusal | None
    """None: it could not be built yet, and is to be tried again: its fire time is kept."""


class State:
    """Everything that rules may look at. They read it and never change it."""

    def __init__(self, *, epoch: int, schema: int, policy: Policy | None = None) -> None:
        self.epoch = epoch
        self.schema = schema
        """Of the cluster: the form of what is written, the layout of new runs."""
        self.policy = policy or Policy()
        self.agenda = Agenda()
        self.census_taken = False
        """Everything was read. Before, only attempts of the runs that were read are decided about."""
        self._read: dict[RunId, Run] = {}
        """Before the census: what was read and changed of runs so far, final ones too."""

        self.pipelines: dict[PipelineName, PipelineRecord] = {}
        self.quarantined: Mapping[PipelineName, str] = {}
        self.backfills: dict[BackfillId, Backfill] = {}
        self.intervals: dict[PipelineName, IntervalIndex] = {}

        self.abdication: Abdication | None = None
        """The last one that was accepted, whatever its epoch."""
        self.resigning = False
        """The abdication of this epoch is being done."""

        self.commands: dict[CommandId, QueuedCommand] = {}
        """That wait, oldest first."""
        self.lines = CommandLines()
        """Of those that are not set aside."""
        self._reruns: defaultdict[RunId, dict[CommandId, None]] = defaultdict(dict)
        """Of those, the ones that repeat a run: they wait for its end."""
        self.preparing: dict[PipelineName, ReleaseOf] = {}
        self.prepared: dict[PipelineName, tuple[ReleaseOf, PipelineSpec | Refusal]] = {}
        """Of the first command in the pipeline's line; the next one asks the disk again."""

        self.purges = PurgeOrders()

        self.building: set[Subject] = set()
        """What waits for the run that it starts."""
        self.built: dict[Subject, Built] = {}

        self.rendering: set[Subject] = set()
        """Ready tasks that wait for their texts."""
        self.rendered: dict[Subject, TaskSpec | Refusal] = {}
        """Of waiting tasks."""

        self.runs: dict[RunId, Run] = {}
        """Runs that are not final."""
        self.finished: dict[RunId, Finished] = {}
        self._runs_of: defaultdict[PipelineName, set[RunId]] = defaultdict(set)
        self._runs_of_backfill: defaultdict[BackfillId, set[RunId]] = defaultdict(set)
        self._backfills_of: defaultdict[PipelineName, set[BackfillId]] = defaultdict(set)
        """Those that are not over."""
        self._needs: dict[RunId, Needs] = {}
        self.queue = RunQueue(self._limit_of, self.policy.max_running)
        self.ready = ReadyTasks()
        self.looks = Looks()
        self._awaiting: defaultdict[PipelineName, set[Subject]] = defaultdict(set)
        """Tasks that wait for runs of a pipeline."""

        self.none_older_since: float | None = None
        """Elapsed seconds at the moment from which on all that are registered know a newer schema."""

        self.settings = ClusterSettings()
        self._registered: tuple[WorkerInfo, ...] = ()
        """As they say themselves; `workers` has them as the settings make them."""
        self.workers = Workers()
        self.pools = PoolUse()
        self.slots: dict[AttemptId, Slots] = {}
        """Of every open attempt."""
        self.silent_since: dict[AttemptId, float] = {}
        """Open attempts without a sign of life, with the elapsed seconds when this leader first missed it."""

        self.outbox = Outbox()
        self.health: dict[PipelineName, PipelineHealth] = {}
        """Of pipelines that something is known of: see `PipelineHealth`."""

        self.set_aside: dict[Subject, str] = {}
        """What no rule is asked about for a while, since deciding about it failed, and how."""

    # -- questions

    def live_runs_of(self, pipeline: PipelineName) -> Collection[RunId]:
        """Runs of a pipeline that are not final."""
        return self._runs_of.get(pipeline, ())

    def runs_of_backfill(self, backfill: BackfillId) -> Collection[RunId]:
        """Runs of a backfill that are not final."""
        return self._runs_of_backfill.get(backfill, ())

    def check_needs(self, run: RunId) -> None:
        """Refuse a run whose record contradicts itself.

        Raises:
            LookupError: a task needs one that the run does not have, so it would wait for ever.
        """
        if self._needs[run].unknown:
            raise LookupError(f"tasks need some that the run does not have: {self._needs[run].unknown}")

    def open_attempt(self, attempt: AttemptId) -> tuple[Run, Attempt] | None:
        """A run and its open attempt; None if it is not open (any more)."""
        run = self.runs.get(attempt.run)
        task = None if run is None else run.tasks.get(attempt.task)
        current = None if task is None else task.open_attempt
        if run is None or current is None or current.number != attempt.number:
            return None
        return run, current

    def waiting_reruns(self, stop: QueuedCommand) -> list[QueuedCommand]:
        """Commands ahead of a stop that start its run once another run has ended, which has not."""
        ahead = (self.commands[command] for command in self.lines.ahead_of(stop))
        return [
            one for one in ahead if isinstance(one.command, StartRun) and one.command.rerun_of in self.runs
        ]

    def _limit_of(self, pipeline: PipelineName) -> int | None:
        record = self.pipelines.get(pipeline)
        if record is None:  # so its limit is not known
            return 0
        concurrency = record.profile.concurrency
        return None if concurrency is None else concurrency.limit

    def next_queued(self) -> Subject | None:
        """The queued run that starts next."""
        found = self.queue.first()
        return None if found is None else about_queued(found)

    def capacity(self) -> Capacity:
        """What ready tasks may take."""
        return self.workers.capacity(self.settings.pools, self.pools.used)

    def rendered_task(self, run: RunId, task: TaskRun) -> TaskSpec:
        """A ready task with its texts.

        Raises:
            LookupError: its templates take results of others, and it is not rendered.
        """
        found = self.rendered.get(about_rendering(run, task.spec.name)) if task.spec.reads else task.spec
        if not isinstance(found, TaskSpec):
            raise LookupError(f"task {task.spec.name} of run {run} is not rendered")  # noqa: TRY004 - no type
        return found

    def next_ready(self) -> Subject | None:
        """The most urgent task that could start, while there may be a slot for it."""
        found = self.ready.first()
        return None if found is None else about_task(*found)

    # -- what a decision wrote

    def apply(self, decision: Decision, now: Instant) -> None:
        """Take in a decision."""
        for write in decision.writes:
            self._apply_write(write, now)
        for effect in decision.effects:
            match effect:
                case PrepareRelease(release):
                    self.preparing[release.pipeline] = release
                case ArchiveRun() | StorePurge():
                    self._apply_to_archive(effect)
                case BuildRun(subject, _):
                    self.building.add(subject)
                case RenderTask(run, task):
                    self.rendering.add(about_rendering(run.id, task))
                case LookAt() | ArchiveOutcomes():
                    pass  # part of no decision: see `Looks` and `Reign.tend`
                case ResignLeadership():
                    self.resigning = True
                case SendAlert(alert):
                    self.outbox.started.add(alert.claim)
                case _:
                    assert_never(effect)

    def _apply_to_archive(self, effect: ArchiveRun | StorePurge) -> None:
        match effect:
            case ArchiveRun(run_id):
                self.finished[run_id] = replace(self.finished[run_id], archiving=True)
            case StorePurge(command):
                self.purges.storing.add(command)

    def _apply_write(self, write: w.Write, now: Instant) -> None:
        match write:
            case w.CreateRun(run) | w.PutRun(run, _):
                self.put_run(run, now)
            case w.RemoveRun(run_id):
                self.forget_run(run_id)
            case w.RemoveAttempt(attempt):
                self.finished[attempt.run].attempts.pop(attempt, None)
            case w.CreatePipeline(record) | w.PutPipeline(record, _):
                self.put_pipeline(record)
            case w.RemovePipelineRecord(record):
                self.forget_pipeline(record.name)
            case w.ConsumeCommand(outcome):
                self.drop_command(outcome.command)
            case _:
                self._apply_of_cluster(write, now)

    def _apply_of_cluster(self, write: w.Write, now: Instant) -> None:
        match write:
            case w.PutIntervals(pipeline, index, _):
                self.put_intervals(pipeline, index)
            case w.PutBackfill(backfill, _):
                self.put_backfill(backfill)
            case w.RemoveBackfill(backfill):
                self.forget_backfill(backfill.id)
            case w.PutAbdication(abdication):
                self.put_abdication(abdication)
            case w.PutSettings(settings):
                self.put_settings(settings, now)
            case w.RaiseSchema(schema):
                self.schema, self.none_older_since = schema, None
            case _:
                self._apply_alert(write)

    # -- runs

    def put_run(
        self, run: Run, now: Instant, slots: Mapping[AttemptId, Slots] = MappingProxyType({})
    ) -> None:
        """Take in a run; a final one leaves but for what is still to be done about it.

        Args:
            run: What was read, or decided.
            now: When.
            slots: Of its open attempts, if they were read; those that are not in it are taken for empty.
        """
        if not self.census_taken:
            self._read[run.id] = run
        before = self.runs.get(run.id)
        if before is not None:
            self._note_refusals(before, run)
        if run.state.is_final:
            self._put_finished(run)
            return
        marked = before is not None and before.state is RunState.QUEUED and before.tasks is not run.tasks
        if before is None or marked:  # of a queued run `_put_tasks` does not tell what ended
            self._needs[run.id] = Needs(run)
        if before is None:
            self._runs_of[run.pipeline].add(run.id)
            if run.backfill is not None:
                self._runs_of_backfill[run.backfill].add(run.id)
        self.runs[run.id] = run
        if before is None or (before.state, before.paused) != (run.state, run.paused):
            self._put_in_queue(run)
        if run.warn_after is not None or run.expect is not None:
            self.agenda.add(about_late(run.id))
        if before is None or _where(before) != _where(run):
            self.agenda.add(about_run(run.id))
            self._look_at_all_open(run)
        self._put_tasks(before, run, now, slots)

    def _put_tasks(
        self, before: Run | None, run: Run, now: Instant, slots: Mapping[AttemptId, Slots]
    ) -> None:
        known = None if before is None or before.state is RunState.QUEUED else before.tasks
        for was, task in run.tasks.changes_since(known):
            self._put_task(run, was, task, now, slots)
        if before is not None and before.paused != run.paused:
            for name, task in run.tasks.items():
                if self._needs[run.id].met(name):
                    self._put_readiness(run, task)
                if is_under_way(task):
                    self._look_at_children(run, task)

    def _put_in_queue(self, run: Run) -> None:
        if run.state is RunState.QUEUED and (run.paused or about_run(run.id) in self.set_aside):
            self.queue.discard(run.id)
        else:
            self.queue.put(run)

    def _note_refusals(self, before: Run, run: Run) -> None:
        changed = False
        for was, task in run.tasks.changes_since(before.tasks):
            if was is not None and was.open_attempt is not None and task.open_attempt is None:
                changed |= self.workers.note_ended(task)
        if changed:
            self._await_back_offs()

    def _await_back_offs(self) -> None:
        for worker, found in self.workers.refusals.items():
            self.agenda.look_at(about_worker(worker), found.until)

    def _look_at_all_open(self, run: Run) -> None:
        for attempt in run.open_attempts():
            if must_stop(run, attempt.task):
                self.agenda.add(about_attempt(attempt))
        for task in run.tasks.in_order():
            if is_under_way(task) and must_stop(run, task.spec.name):
                self._look_at_children(run, task)

    def _put_task(
        self,
        run: Run,
        was: TaskRun | None,
        task: TaskRun,
        now: Instant,
        slots: Mapping[AttemptId, Slots],
    ) -> None:
        old = None if was is None else was.open_attempt
        new = task.open_attempt
        if old is not None and (new is None or new.number != old.number):
            self._forget_attempt(AttemptId(run.id, task.spec.name, old.number), old.worker)
        if new is not None and (old is None or new.number != old.number):
            attempt = AttemptId(run.id, task.spec.name, new.number)
            self._put_attempt(attempt, new, task.spec, slots.get(attempt, Slots()), now)
        if task.spec.warn_after is not None:
            self.agenda.add(about_late(run.id, task.spec.name))
        if task.children is not None and is_under_way(task):
            self._put_children(run, was, task)
        needs = self._needs[run.id]
        if needs.met(task.spec.name) and (was is None or was.state is not task.state):
            self._put_readiness(run, task)
        if task.state.is_final and was is not None and not was.state.is_final:
            for name in needs.ended(task.spec.name):
                self._put_readiness(run, run.tasks[name])

    def _look_at_children(self, run: Run, task: TaskRun) -> None:
        """Look at a task that waits for child runs, and at each of these: it follows its parent."""
        self.agenda.add(about_children(run.id, task.spec.name))
        for index in () if task.children is None else task.children.having(ItemState.OPEN):
            self.agenda.add(about_run(child_of(run, task.spec.name, index) or run.id))

    def _put_children(self, run: Run, was: TaskRun | None, task: TaskRun) -> None:
        """Look at a task whose items moved; at all open ones, when the run is read: some may have ended."""
        subject = about_children(run.id, task.spec.name)
        self.agenda.add(subject)
        if was is None and task.children is not None:
            for index in task.children.having(ItemState.OPEN):
                self.agenda.add(about_child(run.id, task.spec.name, index))

    def _put_readiness(self, run: Run, task: TaskRun) -> None:
        """Queue a task whose needs are met, now or when its pause is over; or take it out of the queue."""
        subject = about_task(run.id, task.spec.name)
        waits = task.state is TaskState.WAITING and run.opens_tasks
        if not task.spec.kind.uses_worker:
            self._put_wait(run, task.spec, waits=waits)
        elif not waits:
            self.ready.discard(run.id, task.spec.name)
            self.agenda.forget(subject)
            self._put_queue_timeout(run.id, task, None)
            self._forget_rendering(run.id, task)
        else:
            self._put_queue_timeout(run.id, task, queue_ends_at(run, task))
            if (moment := not_before(run, task)) is not None:
                self.agenda.look_at(subject, moment)
            else:
                self._add_ready(run.id, task.spec.name)

    def _put_queue_timeout(self, run: RunId, task: TaskRun, due: datetime | None) -> None:
        if task.spec.queue_timeout is None:
            return
        subject = about_overdue(run, task.spec.name)
        if due is None:
            self.agenda.forget(subject)
        else:
            self.agenda.look_at(subject, due)

    def _put_wait(self, run: Run, spec: TaskSpec, *, waits: bool) -> None:
        subject = about_wait(run.id, spec.name)
        pipelines = {upstream_of(wait, run) for wait in spec.waits_for if isinstance(wait, PipelineWait)}
        if not waits:
            self.agenda.forget(subject)
            self.looks.forget(subject)
            for name in pipelines:
                self._awaiting[name].discard(subject)
            return
        self.agenda.add(subject)
        if spec.warn_after is not None:
            self.agenda.add(about_late(run.id, spec.name))
        for name in pipelines:
            self._awaiting[name].add(subject)
        if not faults_of(spec.waits_for, spec.args) and (looks := looks_of(spec.waits_for, spec.args)):
            self.looks.want(subject, looks)

    def upstream(self, name: PipelineName) -> Upstream:
        """What is known of the runs of a pipeline that tasks wait for."""
        live = tuple(self.runs[run] for run in self.live_runs_of(name))
        return Upstream(self.intervals.get(name), live, name in self.pipelines)

    def _look_at_awaiting(self, name: PipelineName) -> None:
        """A run of a pipeline has ended: look at the tasks that wait for it."""
        for subject in sorted(self._awaiting.get(name, ())):
            self.agenda.add(subject)

    def data_seen(self, look: Look, seen: Seen, now: Instant) -> None:
        """Somebody looked at data that tasks wait for, or did wait for."""
        for subject in self.looks.seen(look, seen, now):
            self.agenda.add(subject)

    def _add_ready(self, run_id: RunId, name: TaskName) -> None:
        run = self.runs.get(run_id)
        if run is None or about_run(run_id) in self.set_aside:
            return
        task, subject = run.tasks[name], about_rendering(run_id, name)
        found = self.rendered.get(subject) if task.spec.reads else task.spec
        if not (isinstance(found, TaskSpec) and found.is_wanted):
            self.agenda.add(subject)
        elif task.spec.children is not None:
            self.agenda.add(about_children(run_id, name))
        else:
            self.ready.add(run, task)

    def _forget_rendering(self, run_id: RunId, task: TaskRun) -> None:
        if task.spec.reads:
            subject = about_rendering(run_id, task.spec.name)
            self.agenda.forget(subject)
            self.rendering.discard(subject)
            self.rendered.pop(subject, None)

    def _put_finished(self, run: Run) -> None:
        self._forget_live(run.id)
        self.finished[run.id] = finished(run, self.finished.get(run.id))
        self.agenda.add(about_finished(run.id))
        for command in self._reruns.get(run.id, ()):
            if about_command(command) not in self.set_aside:
                self._look_at_command(command)
        self._look_at_awaiting(run.pipeline)
        if run.parent is not None:
            self.agenda.add(about_child(run.parent.run, run.parent.task, run.parent.index))

    def forget_run(self, run_id: RunId) -> None:
        """A run is out of ZooKeeper."""
        self._forget_live(run_id)
        self._read.pop(run_id, None)
        self.finished.pop(run_id, None)
        self.agenda.forget(about_finished(run_id))

    def _forget_live(self, run_id: RunId) -> None:
        run = self.runs.pop(run_id, None)
        if run is None:
            return
        self.agenda.forget(about_run(run_id))
        self.agenda.forget(about_late(run_id))
        self.queue.discard(run_id)
        self._runs_of[run.pipeline].discard(run_id)
        if run.backfill is not None:
            self._runs_of_backfill[run.backfill].discard(run_id)
            self.agenda.add(about_backfill(run.backfill))
        del self._needs[run_id]
        for name, task in run.tasks.items():
            self.ready.discard(run_id, name)
            self.agenda.forget(about_task(run_id, name))
            self._put_queue_timeout(run_id, task, None)
            if task.spec.warn_after is not None:
                self.agenda.forget(about_late(run_id, name))
            if task.spec.children is not None:
                self._forget_children(about_children(run_id, name))
            self._forget_rendering(run_id, task)
            if not task.spec.kind.uses_worker:
                self._put_wait(run, task.spec, waits=False)
            if (attempt := task.open_attempt) is not None:
                self._forget_attempt(AttemptId(run_id, name, attempt.number), attempt.worker)

    def _forget_children(self, subject: Subject) -> None:
        self.agenda.forget(subject)
        self.building.discard(subject)
        self.built.pop(subject, None)

    def run_archived(self, run_id: RunId) -> None:
        """History has a run."""
        found = self.finished.get(run_id)
        if found is not None and found.archiving:  # not one that an earlier reign asked for
            self.finished[run_id] = replace(found, archiving=False, archived=True)
            self.agenda.add(about_finished(run_id))

    # -- attempts and workers

    def put_slots(self, attempt: AttemptId, slots: Slots, now: Instant) -> None:
        """Take in what there is of an open attempt."""
        if self.slots.get(attempt, slots) != slots:
            self.slots[attempt] = slots
            self._note_silence(attempt, now)

    def put_schedulers(self, schedulers: Collection[SchedulerInfo], now: Instant) -> None:
        """Take in who may lead next, after the workers: since when all of them know a newer schema."""
        upgraded = schedulers and not older_than(NEWEST_SCHEMA, schedulers, self.workers.registered.values())
        if self.schema >= NEWEST_SCHEMA or not upgraded:
            self.none_older_since = None
            return
        if self.none_older_since is None:
            self.none_older_since = now.elapsed_s
        self.agenda.add(ABOUT_SCHEMA)

    def put_workers(self, workers: Iterable[WorkerInfo], now: Instant) -> None:
        """Take in who is registered."""
        self._registered = tuple(workers)
        changed = self.workers.register(self.settings.applied_to(self._registered))
        for worker in changed:
            for attempt in sorted(self.workers.open_on(worker)):
                self._note_silence(attempt, now)
        if changed:  # who looks for a silent attempt may have come or gone
            for attempt in self.silent_since:
                self.agenda.add(about_attempt(attempt))
        self.ready.reopen()

    def put_settings(self, settings: ClusterSettings, now: Instant) -> None:
        """Take in what operators have set."""
        for pool in self.settings.pools.keys() | settings.pools.keys():
            self.ready.open(Gate("pool", pool))
        self.settings = settings
        self.put_workers(self._registered, now)

    def _put_attempt(
        self, attempt_id: AttemptId, attempt: Attempt, task: TaskSpec, slots: Slots, now: Instant
    ) -> None:
        self.workers.opened(attempt_id, attempt.worker, need_of(task))
        self.pools.opened(attempt_id, task.pools)
        self.slots[attempt_id] = slots
        self._note_silence(attempt_id, now)

    def _forget_attempt(self, attempt: AttemptId, worker: WorkerId) -> None:
        self.workers.closed(attempt, worker)
        self.slots.pop(attempt, None)
        self.silent_since.pop(attempt, None)
        self.agenda.forget(about_attempt(attempt))
        self.ready.reopen()
        self.ready.open(Gate("run", attempt.run))
        for pool in self.pools.closed(attempt):
            self.ready.open(Gate("pool", pool))

    def _note_silence(self, attempt_id: AttemptId, now: Instant) -> None:
        """Start, keep or stop the clock of an attempt without a sign of life, and look at the attempt.

        Before CLAIM the sign is the worker's registration, afterwards the runner's beat.
        """
        found = self.open_attempt(attempt_id)
        if found is None:
            return
        seen = self.slots[attempt_id]
        held = seen.claim is not None or seen.submitted is not None
        alive = seen.beating if held else found[1].worker in self.workers.registered
        if alive:
            self.silent_since.pop(attempt_id, None)
        else:
            self.silent_since.setdefault(attempt_id, now.elapsed_s)
        self.agenda.add(about_attempt(attempt_id))

    # -- alerts

    def _apply_alert(self, write: w.Write) -> None:
        match write:
            case w.CreateAlert(alert) | w.PutAlert(alert):
                self.put_alert(alert)
            case w.RemoveAlert(alert_id):
                self.forget_alert(alert_id)
            case w.PutHealth(health, _):
                self.health[health.name] = health
                self._look_at_deadline(health.name)
            case w.RemoveHealth(name):
                self.health.pop(name, None)
            case _:
                pass  # slots and orders: the run's record says what follows from them

    def put_alerts(self, alerts: Iterable[Alert], health: Iterable[PipelineHealth]) -> None:
        """Take in all alerts, and how pipelines fare, as they were read."""
        kept = {alert.id: alert for alert in alerts}
        for gone in self.outbox.ids() - kept.keys():
            self.forget_alert(gone)
        for alert in kept.values():
            if self.outbox.get(alert.id) != alert:
                self.put_alert(alert)
        self.health = {one.name: one for one in health}

    def put_alert(self, alert: Alert) -> None:
        """Take in an alert."""
        freed = self.outbox.put(alert)
        self.agenda.add(about_alert(alert.id))
        if freed is not None:
            self.agenda.add(about_alert(freed))

    def forget_alert(self, alert: str) -> None:
        """An alert is out of ZooKeeper."""
        self.agenda.forget(about_alert(alert))
        if (freed := self.outbox.remove(alert)) is not None:
            self.agenda.add(about_alert(freed))

    def alert_tried(self, claim: Claim, failure: Failure | None) -> None:
        """A try to send an alert has ended."""
        if self.outbox.answer(claim, failure):
            self.agenda.add(about_alert(claim[0]))

    # -- catalog and commands

    def put_abdication(self, abdication: Abdication | None) -> None:
        """Take in the last abdication that was accepted."""
        self.abdication = abdication
        self.agenda.add(ABOUT_ABDICATION)

    def put_pipeline(self, record: PipelineRecord) -> None:
        """Take in a pipeline's record. A run was built for one position of its schedule."""
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
        """A pipeline is out of the catalog."""
        subject = about_pipeline(name)
        self.pipelines.pop(name, None)
        self.building.discard(subject)
        self.built.pop(subject, None)
        self.agenda.forget(subject)
        self.agenda.forget(about_deadline(name))

    def put_backfill(self, backfill: Backfill) -> None:
        """Take in a backfill. A run was built for one position of it."""
        before, subject = self.backfills.get(backfill.id), about_backfill(backfill.id)
        if before is not None and (before.position, before.state) != (backfill.position, backfill.state):
            self.built.pop(subject, None)
        self.backfills[backfill.id] = backfill
        of_pipeline = self._backfills_of[backfill.pipeline]
        (of_pipeline.discard if backfill.state.is_over else of_pipeline.add)(backfill.id)
        self.agenda.add(subject)

    def forget_backfill(self, backfill: BackfillId) -> None:
        """A backfill is not kept any more."""
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
        """Take in what became of a pipeline's data intervals; None: there is no index."""
        if index is None:
            self.intervals.pop(name, None)
        else:
            self.intervals[name] = index
        self._look_at_awaiting(name)
        self._look_at_deadline(name)

    def put_quarantine(self, quarantined: Mapping[PipelineName, str]) -> None:
        """Take in which pipelines cannot run."""
        changed = self.quarantined.keys() ^ quarantined.keys()
        self.quarantined = dict(quarantined)
        for name in changed & self.pipelines.keys():
            self.agenda.add(about_pipeline(name))
        self._look_at_backfills(changed)

    def put_command(self, queued: QueuedCommand) -> None:
        """Take in a command that waits."""
        if queued.id not in self.commands:
            self.commands[queued.id] = queued
            if isinstance(queued.command, StartRun) and queued.command.rerun_of is not None:
                self._reruns[queued.command.rerun_of][queued.id] = None
            self.line_up(queued.id)

    def line_up(self, command: CommandId) -> None:
        """Look at a command when it is the first in its lines. One that is set aside stands in none."""
        if about_command(command) in self.set_aside or command not in self.commands:
            return
        self.lines.join(self.commands[command])
        self._look_at_command(command)

    def _leave_lines(self, command: CommandId) -> None:
        """Let later commands of the same lines be looked at."""
        for first in self.lines.leave(self.commands[command]):
            self._look_at_command(first)

    def _look_at_command(self, command: CommandId) -> None:
        self.agenda.add(about_command(command), urgent=is_urgent(self.commands[command].command))

    def drop_command(self, command: CommandId) -> None:
        """A command is out of the queue."""
        subject = about_command(command)
        self.agenda.forget(subject)
        self.building.discard(subject)
        self.built.pop(subject, None)
        self.purges.forget(command)
        if command in self.commands:
            self._leave_lines(command)
            queued = self.commands.pop(command)
            if isinstance(queued.command, StartRun) and queued.command.rerun_of is not None:
                self._forget_rerun(queued.command.rerun_of, command)
            if isinstance(queued.command, PublishRelease | ActivatePipeline | CreateBackfill):
                self.prepared.pop(queued.command.pipeline, None)

    def _forget_rerun(self, run: RunId, command: CommandId) -> None:
        self._reruns[run].pop(command, None)
        if not self._reruns[run]:
            del self._reruns[run]

    def put_aside(self, subject: Subject, why: str) -> None:
        """Ask no rule about a subject for a while. A command lets those behind it pass."""
        self.set_aside[subject] = why
        if subject.kind == "command" and subject.command in self.commands:
            self._leave_lines(subject.command)

    def run_built(self, subject: Subject, built: Built) -> None:
        """A run is built, or cannot be."""
        if subject in self.building:  # not what an earlier reign asked for
            self.building.discard(subject)
            self.built[subject] = built
            self.agenda.add(subject)

    def task_rendered(self, run: RunId, task: TaskName, result: TaskSpec | Refusal | None) -> None:
        """A ready task has its texts, or cannot have them; None: not now, and it is asked for again."""
        subject = about_rendering(run, task)
        if subject in self.rendering:  # else it waits no more, or an earlier reign asked
            self.rendering.discard(subject)
            if result is not None:
                self.rendered[subject] = result
            self._add_ready(run, task)

    def release_prepared(self, release: ReleaseOf, result: PipelineSpec | Refusal) -> None:
        """A release is on this disk, or cannot be had."""
        if self.preparing.get(release.pipeline) != release:
            return  # an earlier reign asked for it
        del self.preparing[release.pipeline]
        self.prepared[release.pipeline] = release, result
        if (first := self.lines.first(release.pipeline)) is not None:
            self._look_at_command(first)

    def purge_stored(self, command: CommandId, answer: Refusal | None) -> None:
        """Storage keeps what a command asks for, or it is refused."""
        if self.purges.stored(command, answer):
            self.agenda.add(about_command(command))

    # -- the agenda

    def keep_from(self, before: State) -> None:
        """Keep what ZooKeeper does not hold, before everything is read anew: news may come meanwhile."""
        self.quarantined = before.quarantined
        self.set_aside = dict(before.set_aside)
        self.resigning = before.resigning
        self.none_older_since = before.none_older_since
        self.preparing = dict(before.preparing)
        self.prepared = dict(before.prepared)
        self.purges = before.purges
        self.building = set(before.building)
        self.built = dict(before.built)
        self.rendering = set(before.rendering)
        self.rendered = dict(before.rendered)
        self.finished = dict(before.finished)
        self.silent_since = dict(before.silent_since)
        self.outbox.keep_from(before.outbox)

    def take_census(self) -> None:
        """Everything was read: what was kept about things that are gone is forgotten."""
        self.census_taken = True
        runs, self._read = self._read, {}
        self.workers.count_refusals(runs.values())
        self._await_back_offs()
        self.preparing = {name: kept for name, kept in self.preparing.items() if name in self.lines}
        self.prepared = {name: kept for name, kept in self.prepared.items() if name in self.lines}
        self.purges = self.purges.only(self.commands)
        self.building = {subject for subject in self.building if self._waits(subject)}
        self.built = {subject: kept for subject, kept in self.built.items() if self._waits(subject)}
        self.rendering = {subject for subject in self.rendering if subject.run in self.runs}
        self.rendered = {subject: kept for subject, kept in self.rendered.items() if subject.run in self.runs}
        self.finished = {
            run_id: kept
            for run_id, kept in self.finished.items()
            if run_id in runs and runs[run_id].state.is_final
        }
        self.silent_since = {
            attempt: since_s for attempt, since_s in self.silent_since.items() if attempt in self.slots
        }

    def _waits(self, subject: Subject) -> bool:
        if subject.kind == "children":
            return subject.run in self.runs
        if subject.kind == "backfill":
            return subject.backfill in self.backfills
        return subject.command in self.commands or subject.pipeline in self.pipelines

    def dismiss(self, subject: Subject) -> None:
        """Do not ask about a subject that is set aside. It comes back when it is read again."""
        if subject.kind == "task":
            self.ready.discard(subject.run, subject.task)
        elif subject.kind == "queue":
            self.queue.discard(subject.run)
        else:
            self.agenda.done(subject)

    def postpone(self, subject: Subject, until: Nothing) -> None:
        """There is nothing to decide about a subject now."""
        if subject.kind == "task":
            self.ready.close(subject.run, subject.task, until.gates)
            return
        if subject.kind == "queue":
            self.queue.close()
            return
        self.agenda.done(subject)
        if subject.kind == "alert" and until.at is None:
            self.outbox.hold(subject.name)
        if until.at is not None:
            self.agenda.look_at(subject, until.at)
        if until.after_s is not None:
            self.agenda.look_after(subject, until.after_s)

    def wake(self, now: Instant) -> None:
        """Put on the agenda what a timer says."""
        for subject in self.agenda.pop_due(now):
            match subject.kind:
                case "task":
                    self._add_ready(subject.run, subject.task)
                case "worker":
                    self.ready.reopen()
                case _:
                    self.agenda.add(subject)


def _where(run: Run) -> tuple[object, ...]:
    """What decides whether a run must be looked at as a whole."""
    return run.state, run.verdict, run.deadline
