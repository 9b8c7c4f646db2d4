"""The leader's records, with the indexes and queries for its rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from nimbus.domain.admission import Capacity
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.commands import Abdication, QueuedCommand, StartRun
from nimbus.domain.drafts import Draft
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, PipelineName, RunId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.pipeline import PipelineSpec, TaskSpec
from nimbus.domain.pipeline_health import PipelineHealth
from nimbus.domain.run import Run
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.settings import ClusterSettings
from nimbus.domain.slots import Slots
from nimbus.domain.task_run import Attempt, TaskRun
from nimbus.domain.upstream import Upstream
from nimbus.domain.workers import WorkerInfo
from nimbus.engine.agenda import Agenda, Subject, about_queued, about_rendering, about_task
from nimbus.engine.command_lines import CommandLines
from nimbus.engine.finished import Finished
from nimbus.engine.live_counts import LiveCounts
from nimbus.engine.looks import Looks
from nimbus.engine.needs import Needs
from nimbus.engine.outbox import Outbox
from nimbus.engine.policy import Policy
from nimbus.engine.pools import PoolUse
from nimbus.engine.purge_orders import PurgeOrders
from nimbus.engine.ready import ReadyTasks
from nimbus.engine.refusal import Refusal
from nimbus.engine.run_queue import RunQueue
from nimbus.engine.term_keeper import TermKeeper
from nimbus.engine.workers import Workers


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building a draft."""

    draft: Draft
    result: Run | Refusal | None
    """None: it could not be built yet. It is tried again, with the same fire time."""


class Silence(NamedTuple):
    """No sign of life of an open attempt."""

    is_claimed: bool
    """False: its worker is silent; True: its runner, or its driver in a cluster."""
    since_s: float
    """When this leader noticed it, in elapsed seconds."""


class Facts:
    """All records and indexes. Subclasses update them."""

    def __init__(self, *, epoch: int, schema: int, policy: Policy | None = None) -> None:
        self.epoch = epoch
        self.schema = schema
        """The cluster's schema: it decides the form of records and the layout of new runs."""
        self.policy = policy or Policy()
        self.agenda = Agenda()
        self.census_taken = False
        """True after everything is read. Until then, only attempts of runs that are read are decided."""
        self._read: dict[RunId, Run] = {}
        """Until `take_census`: all runs that were read or changed so far, including final ones."""

        self.pipelines: dict[PipelineName, PipelineRecord] = {}
        self.quarantined: Mapping[PipelineName, str] = {}
        self.backfills: dict[BackfillId, Backfill] = {}
        self.intervals: dict[PipelineName, IntervalIndex] = {}

        self.terms: TermKeeper | None = None
        """None: this term is not recorded."""
        self.schedulers: tuple[SchedulerInfo, ...] = ()
        """Registered schedulers."""
        self.abdication: Abdication | None = None
        """The last accepted abdication, of any epoch."""
        self.resigning = False
        """True while this leader resigns because of an abdication."""

        self.commands: dict[CommandId, QueuedCommand] = {}
        """Waiting commands, oldest first."""
        self.lines = CommandLines()
        """Lines of the commands that are not set aside."""
        self._reruns: defaultdict[RunId, dict[CommandId, None]] = defaultdict(dict)
        """Waiting commands that start a rerun, by the run that they repeat and whose end they wait for."""
        self.preparing: dict[PipelineName, ReleaseOf] = {}
        self.prepared: dict[PipelineName, tuple[ReleaseOf, PipelineSpec | Refusal]] = {}
        """Results for the first command of each pipeline's line. The next command reads the disk again."""

        self.purges = PurgeOrders()

        self.building: set[Subject] = set()
        """Subjects whose run is being built."""
        self.built: dict[Subject, Built] = {}

        self.rendering: set[Subject] = set()
        """Ready tasks whose templates are being rendered."""
        self.rendered: dict[Subject, TaskSpec | Refusal] = {}
        """Results of rendering, for waiting tasks."""

        self.runs: dict[RunId, Run] = {}
        """Runs that are not final."""
        self.live = LiveCounts()
        """Counts of these runs."""
        self.finished: dict[RunId, Finished] = {}
        self.last_success: dict[PipelineName, datetime] = {}
        """End of each pipeline's last successful run whose record this leader has seen. Runs of backfills do
        not count, because they process old data."""
        self._runs_of: defaultdict[PipelineName, set[RunId]] = defaultdict(set)
        self._runs_of_backfill: defaultdict[BackfillId, set[RunId]] = defaultdict(set)
        self._backfills_of: defaultdict[PipelineName, set[BackfillId]] = defaultdict(set)
        """Backfills that have not ended."""
        self._needs: dict[RunId, Needs] = {}
        self.queue = RunQueue(self._limit_of, self.policy.max_running)
        self.ready = ReadyTasks()
        self.looks = Looks()
        self._awaiting: defaultdict[PipelineName, set[Subject]] = defaultdict(set)
        """Tasks that wait for runs of a pipeline."""

        self.none_older_since: float | None = None
        """Since when all registered processes know a newer schema, in elapsed seconds; None: not all do."""

        self.settings = ClusterSettings()
        self._registered: tuple[WorkerInfo, ...] = ()
        """Registrations as read; `workers` has them with the settings applied, such as cordons."""
        self.workers = Workers()
        self.pools = PoolUse()
        self.slots: dict[AttemptId, Slots] = {}
        """Slots of every open attempt."""
        self.silent: dict[AttemptId, Silence] = {}
        """Silent open attempts."""

        self.outbox = Outbox()
        self.health: dict[PipelineName, PipelineHealth] = {}
        """Health of the pipelines that have a record: see `PipelineHealth`."""

        self.set_aside: dict[Subject, str] = {}
        """Subjects that are left out for a while because a decision failed, with the error."""

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
        """A run and its open attempt; None if the attempt is not open (any more)."""
        run = self.runs.get(attempt.run)
        task = None if run is None else run.tasks.get(attempt.task)
        current = None if task is None else task.open_attempt
        if run is None or current is None or current.number != attempt.number:
            return None
        return run, current

    def waiting_reruns(self, stop: QueuedCommand) -> list[QueuedCommand]:
        """Older commands that start the run of `stop`, and still wait for the end of the repeated run."""
        ahead = (self.commands[command] for command in self.lines.ahead_of(stop))
        return [
            one for one in ahead if isinstance(one.command, StartRun) and one.command.rerun_of in self.runs
        ]

    def _limit_of(self, pipeline: PipelineName) -> int | None:
        record = self.pipelines.get(pipeline)
        if record is None:  # its limit is not known
            return 0
        concurrency = record.profile.concurrency
        return None if concurrency is None else concurrency.limit

    def next_queued(self) -> Subject | None:
        """The queued run that starts next."""
        found = self.queue.first()
        return None if found is None else about_queued(found)

    def capacity(self) -> Capacity:
        """The capacity for ready tasks."""
        return self.workers.capacity(self.settings.pools, self.pools.used)

    def rendered_task(self, run: RunId, task: TaskRun) -> TaskSpec:
        """A ready task with rendered templates.

        Raises:
            LookupError: its templates read results of other tasks, and are not rendered.
        """
        found = self.rendered.get(about_rendering(run, task.spec.name)) if task.spec.reads else task.spec
        if not isinstance(found, TaskSpec):
            raise LookupError(f"task {task.spec.name} of run {run} is not rendered")  # noqa: TRY004 - no type
        return found

    def next_ready(self) -> Subject | None:
        """The most urgent ready task for which there may be a slot."""
        found = self.ready.first()
        return None if found is None else about_task(*found)

    def upstream(self, name: PipelineName) -> Upstream:
        """Facts about the runs of a pipeline, for tasks that wait for them."""
        live = tuple(self.runs[run] for run in self.live_runs_of(name))
        return Upstream(self.intervals.get(name), live, name in self.pipelines)
