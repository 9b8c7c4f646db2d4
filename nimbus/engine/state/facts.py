"""What the leader knows, with the indexes that its rules ask, and questions about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

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
    """What became of a draft."""

    draft: Draft
    result: Run | Refusal | None
    """None: it could not be built yet. It is tried again; its fire time is kept."""


class Facts:
    """All that is known. The classes that are made of this one change it."""

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

        self.terms: TermKeeper | None = None
        """None: nothing is recorded of this term."""
        self.schedulers: tuple[SchedulerInfo, ...] = ()
        """Those that are registered."""
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
        self.live = LiveCounts()
        """Of these."""
        self.finished: dict[RunId, Finished] = {}
        self.last_success: dict[PipelineName, datetime] = {}
        """When the last run of a pipeline ended that succeeded, as far as this leader has seen its record.
        Runs of backfills do not count: they say nothing of what is current."""
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

    def upstream(self, name: PipelineName) -> Upstream:
        """What is known of the runs of a pipeline that tasks wait for."""
        live = tuple(self.runs[run] for run in self.live_runs_of(name))
        return Upstream(self.intervals.get(name), live, name in self.pipelines)
