"""The definition of a pipeline: its tasks, their needs, and the rules they run under.

What a field with the name of a key means is told once, at the key in `nimbus.definition.models`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from enum import IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Any, Self

from nimbus.domain.cluster.alerts import NotifyRule
from nimbus.domain.data.publications import Accepted, Publication, Read
from nimbus.domain.ids import DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.calendars import Calendar, OnHolidays, days_in_words
from nimbus.domain.pipelines.webhooks import Webhook
from nimbus.domain.runs.children import ChildSpec
from nimbus.domain.starts.waits import PipelineWait, WaitFor


class WhenFull(StrEnum):
    """What happens to a scheduled run while its pipeline has no room. Other runs always queue."""

    QUEUE = "queue"
    SKIP = "skip"
    """It is not created if a scheduled run of the pipeline is under way or queued."""
    REPLACE = "replace"
    """The oldest scheduled run is stopped; the new one starts once there is room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """The limit of a pipeline. It counts the runs of all its releases together."""

    limit: int
    when_full: WhenFull = WhenFull.QUEUE


class FailureClass(StrEnum):
    """Why an attempt failed or timed out.

    An attempt that was lost, fenced or refused has no class: its task is tried again in any case.
    """

    OUT_OF_MEMORY = "out_of_memory"
    """The driver (Python or JVM), an executor, or a container had too little memory."""
    EXECUTOR_LOST = "executor_lost"
    """Spark lost an executor, or a Python worker of one, for another or an unknown reason."""
    ANALYSIS = "analysis"
    """Spark refused a query before it ran: syntax, or a table, column, function or type that does not fit."""
    MISSING_INPUT = "missing_input"
    """A file, path or object that the task's code reads does not exist."""
    KILLED = "killed"
    """A signal that Nimbus did not send ended the driver or its JVM."""
    TIMED_OUT = "timed_out"
    """It ran longer than the task's `timeout`."""
    ERROR = "error"
    """Anything else: an exception of the task's code, an exit code, a crash of native code."""

    @classmethod
    def _missing_(cls, _value: object) -> FailureClass:
        """A class that a later release has and this one does not know."""
        return cls.ERROR


DEFINITION_FILE = "pipeline.yaml"
"""Name of the definition file in a pipeline's folder, and so in every release."""


class TaskKind(StrEnum):
    """How a task's file is run."""

    PYSPARK = "pyspark"
    PYTHON = "python"
    SQL = "sql"
    SHELL = "shell"
    SPARK_SUBMIT = "spark_submit"
    SPARK_PIPELINE = "spark_pipeline"
    PIPELINE = "pipeline"
    """Starts child runs: it has no file, no driver and no slot."""
    APPROVAL = "approval"
    """Waits until a person approves or rejects it. Its one argument is the question to that person."""
    WAIT = "wait"
    """Waits until data or other runs are there. Its arguments are the addresses of the data."""

    @property
    def uses_worker(self) -> bool:
        """True when its attempts, or those of its child runs, run on workers; False: the leader ends it."""
        return self not in (TaskKind.APPROVAL, TaskKind.WAIT)

    @property
    def uses_spark(self) -> bool:
        """True when it starts a JVM with Spark."""
        return self.uses_worker and self not in (TaskKind.PYTHON, TaskKind.SHELL, TaskKind.PIPELINE)

    @property
    def uses_wheels(self) -> bool:
        """True when its code imports Python modules."""
        return self.uses_worker and not self.is_program and self is not TaskKind.PIPELINE

    @property
    def has_output(self) -> bool:
        """True when its attempts have a folder for output or a result."""
        return self.uses_worker and self is not TaskKind.PIPELINE

    @property
    def is_program(self) -> bool:
        """True when its driver becomes another program, whose exit code alone decides about success."""
        return self in (TaskKind.SHELL, TaskKind.SPARK_SUBMIT)


class Isolation(StrEnum):
    """Which processes belong to one attempt of a task alone."""

    ISOLATED = "isolated"
    """Its own runner and its own driver."""
    POOLED = "pooled"
    """Its own driver. An executor of the worker replaces the runner, for many attempts at once."""


class SparkMode(StrEnum):
    """How a task gets its Spark session."""

    CLASSIC = "classic"
    """Its own Spark, started with the attempt."""
    CONNECT = "connect"
    """A session on a running Spark Connect server."""


class SparkReuse(StrEnum):
    """Which attempts may have the JVM of an earlier one."""

    RELEASE = "release"
    """Those of the same release, with the same environment, secrets and properties of the JVM."""
    OFF = "off"
    """None: the attempt starts its own."""


class SparkDeploy(StrEnum):
    """Where the driver of a task with Spark runs."""

    CLIENT = "client"
    """On the host of its worker."""
    CLUSTER = "cluster"
    """Inside the cluster that the driver is submitted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlace:
    """Where a task's Spark runs, if not on its worker alone."""

    target: str
    """Name of a target in the workers' configuration."""
    deploy: SparkDeploy = SparkDeploy.CLIENT


ENVIRONMENT_KINDS = frozenset(
    {TaskKind.PYTHON, TaskKind.PYSPARK, TaskKind.SQL, TaskKind.SPARK_SUBMIT, TaskKind.SPARK_PIPELINE}
)
"""Kinds whose drivers can have an environment."""
SPARK_KINDS = frozenset({TaskKind.PYSPARK, TaskKind.SQL})
"""Kinds whose drivers have a Spark session."""
KEPT_KINDS = frozenset({TaskKind.PYSPARK, TaskKind.PYTHON})
"""Kinds that can be kept running."""


def environment_label(name: str) -> str:
    """The label of a worker that has an environment. No label of a configuration has a colon."""
    return f"environment:{name}"


class TriggerRule(StrEnum):
    """How a task that another one needs must have ended. The table is in `nimbus.domain.starts.needs`."""

    SUCCEEDED = "succeeded"
    NOT_FAILED = "not_failed"
    """It succeeded, or was skipped."""
    FAILED = "failed"
    """It failed, or could not run because another task failed."""
    DONE = "done"
    """It ended in any way."""
    ONE_FAILED = "one_failed"
    """`failed`, for one of the needs with this word."""
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    """`not_failed`, and one of the needs with this word succeeded."""

    @property
    def accepts_failure(self) -> bool:
        """True when a task may begin after the need has failed."""
        return self in (TriggerRule.FAILED, TriggerRule.DONE, TriggerRule.ONE_FAILED)


class FailureStrategy(StrEnum):
    """What happens to a run after one of its tasks has failed, with its retries used up."""

    END = "end"
    """No new task starts, running tasks are stopped, the run fails."""
    CONTINUE = "continue"
    """Tasks that do not depend on the failed task go on; the run fails at its end."""


class Priority(IntEnum):
    """Smaller goes first."""

    HIGHEST = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3
    LOWEST = 4


class CatchUp(StrEnum):
    """What happens to fire times that passed while there was no leader."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class StartWhen(StrEnum):
    """Which changes start a run of a pipeline without a schedule."""

    ANY = "any"
    """One of its datasets has changed since the last start."""
    ALL = "all"
    """Each of them has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStart:
    """Changes of the datasets that a pipeline reads start its runs: see `nimbus.domain.starts.due`."""

    when: StartWhen = StartWhen.ANY
    settle: timedelta | None = None


MAX_MEMORY_SCALE = 8.0
"""An attempt never gets more than this many times the memory of the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Retries of a task: after which failures, how many, with which pauses and how much memory."""

    limit: int = 0
    delay: timedelta = timedelta(seconds=10)
    factor: float = 2.0
    max_delay: timedelta = timedelta(minutes=10)
    on: tuple[FailureClass, ...] | None = None
    memory_factor: float = 1.0

    def covers(self, failure: FailureClass | None) -> bool:
        """True when a task is tried again after a failure of this class. None: the class is not reported."""
        if failure is None:
            return True
        return failure is not FailureClass.ANALYSIS if self.on is None else failure in self.on

    def pause_after(self, failures: int) -> timedelta:
        """The pause after the n-th failure, counted from 1. Exponential, bounded."""
        seconds = self.delay.total_seconds() * self.factor ** min(failures - 1, 64)
        return min(timedelta(seconds=min(seconds, 1e9)), self.max_delay)

    def memory_scale(self, failures: int) -> float:
        """Factor on a task's memory after this number of out-of-memory failures."""
        return min(self.memory_factor ** min(failures, 64), MAX_MEMORY_SCALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one attempt may use. None: there is no limit."""

    memory_bytes: int | None = None
    open_files: int | None = None
    disk_bytes: int | None = None
    log_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task of a pipeline. In a run its `args` are already rendered, unless it `reads` results."""

    name: TaskName
    kind: TaskKind
    script: str
    """Path of the script, SQL file, jar or spec in the release, with `/`; or the program of a shell task."""
    args: tuple[str, ...] = ()
    needs: tuple[TaskName, ...] = ()
    requirements: Mapping[TaskName, TriggerRule] = field(default_factory=dict)
    """Trigger rules of needs other than success."""
    when: str = ""
    """The condition for running it: a template; in a run, `true` or `false`. Empty: no condition."""
    allow_failure: bool = False
    keeps_running: bool = False
    """True: it is started again whatever ends it, until its run is stopped. `retries` has only the pauses."""
    reads: tuple[TaskName, ...] = ()
    """Tasks whose results its templates read. If there are any, templates are rendered when it is ready, and
    otherwise when the run is created."""

    def trigger_rule(self, need: TaskName) -> TriggerRule:
        """How the task `need` must have ended."""
        return self.requirements.get(need, TriggerRule.SUCCEEDED)

    @property
    def is_wanted(self) -> bool:
        """True when its condition holds, is not known yet, or is absent. For a task of a run only."""
        return bool(self.reads) or self.when in ("", "true")

    @property
    def is_clean_up(self) -> bool:
        """True when it may begin in a failed run, because it accepts a failed need."""
        return any(asked.accepts_failure for asked in self.requirements.values())

    retries: Retries = field(default_factory=Retries)
    timeout: timedelta | None = None
    priority: Priority = Priority.MEDIUM
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    isolation: Isolation | None = None

    @property
    def is_pooled(self) -> bool:
        """True when an executor runs its attempts, together with others."""
        usual = Isolation.POOLED if self.kind is TaskKind.PYTHON else Isolation.ISOLATED
        return not self.secrets and not self.keeps_running and (self.isolation or usual) is Isolation.POOLED

    limits: Limits | None = None
    """None: the defaults of `Limits`. None keeps the order of each attempt small."""
    main_class: str = ""

    @property
    def file(self) -> str | None:
        """The file of the release that it runs; None: a program of the host, or no file."""
        if not self.script or (self.kind is TaskKind.SHELL and self.script.find("/") < 1):
            return None
        return str(PurePosixPath(self.script))

    spark_mode: SparkMode = SparkMode.CLASSIC
    spark_reuse: SparkReuse = SparkReuse.RELEASE
    dependencies: tuple[str, ...] = ()
    """Globs of wheels of the release that it imports: its own before those of the pipeline."""
    jars: tuple[str, ...] = ()
    """Globs of jars of the release for its Spark: its own before those of the pipeline."""
    spark_place: SparkPlace | None = None
    """None: the worker's own Spark. None keeps the order of each attempt small."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its drivers; they override those of the worker."""
    pools: Mapping[str, int] = field(default_factory=dict)
    runs_on: tuple[str, ...] = ()
    environment: str = ""
    """Name of the interpreter and Spark of its drivers in the workers' configuration; empty: the worker's."""
    waits_for: tuple[WaitFor, ...] = ()
    start_after: timedelta | None = None
    queue_timeout: timedelta | None = None
    warn_after: timedelta | None = None
    uses: tuple[str, ...] = ()
    """Names of reads of its pipeline that it uses."""
    publishes: tuple[Publication, ...] = ()
    children: ChildSpec | None = None
    """Set only for a task of kind `pipeline`."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of which its worker must have all, also that of its environment."""
        return (*self.runs_on, environment_label(self.environment)) if self.environment else self.runs_on

    @property
    def awaits_pipelines(self) -> bool:
        """True when it waits for runs of a pipeline."""
        return any(isinstance(wait, PipelineWait) for wait in self.waits_for)

    @property
    def runs_in_cluster(self) -> bool:
        """True when its drivers run inside the cluster of its target."""
        return self.spark_place is not None and self.spark_place.deploy is SparkDeploy.CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When the leader starts runs of a pipeline."""

    name: str = ""
    """Empty: the only schedule of its pipeline, without a name."""
    cron: str
    timezone: str
    catchup: CatchUp = CatchUp.LATEST
    catchup_window: timedelta | None = None
    data_interval: timedelta | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Parameters of its runs; the others have their defaults. A profile does not have them."""
    calendar: str | None = None
    on_holidays: OnHolidays = OnHolidays.SKIP
    working_day: int | None = None
    days: Calendar | None = None
    """Content of the calendar. None, with a calendar: it is the cluster's, and not looked up yet."""
    of_release: bool = False
    """True: the calendar is a file of the release. False: it is the cluster's."""

    @property
    def times(self) -> tuple[object, ...]:
        """What decides its fire times, except for the content of its calendar."""
        return self.cron, self.timezone, self.calendar, self.on_holidays, self.working_day

    @property
    def in_words(self) -> str:
        """Its times, for messages."""
        days = days_in_words(self.calendar, self.on_holidays, self.working_day)
        return " ".join(filter(None, (self.cron, f"({self.timezone})", days)))

    def run_id(self, pipeline: PipelineName, fire: datetime) -> RunId:
        """Id of the run of a fire time. It is derived from it, so that two leaders cannot start it twice."""
        return RunId("-".join(filter(None, (pipeline, f"{fire:%Y%m%dt%H%M%Sz}", self.name))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A pipeline's schedules."""

    schedule: Schedule | None = None
    """The first: its fire times are the dates of backfills, and what a deadline is about."""
    more_schedules: tuple[Schedule, ...] = ()

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """All of them."""
        return () if self.schedule is None else (self.schedule, *self.more_schedules)

    def with_days(self, find: Callable[[str], Calendar | None], *, of_release: bool = False) -> Self:
        """The same with the content of calendars that `find` returns. Files of the release stay."""
        schedules = tuple(
            schedule
            if schedule.calendar is None
            or schedule.of_release
            or (days := find(schedule.calendar)) in (None, schedule.days)
            else replace(schedule, days=days, of_release=of_release)
            for schedule in self.schedules
        )
        return (
            self
            if schedules == self.schedules
            else replace(self, schedule=schedules[0], more_schedules=schedules[1:])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter of a run."""

    type: str
    items: str = ""
    """Type of a list's values, to which `minimum`, `maximum` and `choices` apply; empty: it is no list."""
    default: Any = None
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec(Scheduled):
    """A pipeline, from its definition file. It was checked when it was read, and is trusted from then on."""

    name: PipelineName
    description: str = ""
    tags: tuple[str, ...] = ()
    runbook: str = ""
    start: DataStart | None = None
    failure_strategy: FailureStrategy = FailureStrategy.END
    priority: Priority = Priority.MEDIUM
    timeout: timedelta | None = None
    concurrency: Concurrency | None = None
    max_parallel_tasks: int | None = None
    notify: tuple[NotifyRule, ...] | None = None
    warn_after: timedelta | None = None
    expect: timedelta | None = None
    deadline: time | None = None
    """Time of day, in the schedule's zone, by which the run of the last fire time must have succeeded."""
    fresh: Mapping[DatasetName, timedelta] = field(default_factory=dict)
    readers: Mapping[DatasetName, tuple[str, ...]] = field(default_factory=dict)
    """Principals and teams that may read a dataset, besides its owner; of the others, everybody may."""
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    files: tuple[str, ...] = ("**/*",)
    dependencies: tuple[str, ...] = ()
    """Globs of wheels of the release. The tasks that import them have them, too."""
    jars: tuple[str, ...] = ()
    """Globs of jars of the release, likewise."""
    python_path: tuple[str, ...] = ()
    tasks: tuple[TaskSpec, ...] = ()
    variables: tuple[str, ...] = ()
    """Variables of the cluster that templates name. Those in SQL files are known only with the files."""
    reads: tuple[Read, ...] = ()
    accepts: tuple[Accepted, ...] = ()
    """Its datasets that take versions from outside."""
    webhook: Webhook | None = None
    interval_files: tuple[str, ...] = ()
    """SQL files that need a data interval. Known only where the files of the release are."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Globs of all wheels and jars."""
        of_tasks = (glob for task in self.tasks for glob in (*task.dependencies, *task.jars))
        return tuple(dict.fromkeys((*self.dependencies, *self.jars, *of_tasks)))

    @property
    def datasets(self) -> tuple[DatasetName, ...]:
        """Datasets that its tasks publish, or that come from outside, by name."""
        of_tasks = {publication.dataset for task in self.tasks for publication in task.publishes}
        return tuple(sorted(of_tasks.union(acceptance.dataset for acceptance in self.accepts)))

    @property
    def published_together(self) -> tuple[tuple[DatasetName, ...], ...]:
        """The datasets of each task that publishes several, by name: one transaction publishes them."""
        of_tasks = {
            tuple(sorted({publication.dataset for publication in task.publishes})) for task in self.tasks
        }
        return tuple(sorted(names for names in of_tasks if len(names) > 1))

    @property
    def keeps_running(self) -> bool:
        """True when its runs do not end by themselves. The activation of a release starts one."""
        return any(task.keeps_running for task in self.tasks)

    @property
    def children(self) -> tuple[PipelineName, ...]:
        """Pipelines whose runs its tasks start, by name."""
        return tuple(sorted({task.children.pipeline for task in self.tasks if task.children is not None}))

    @property
    def upstream(self) -> tuple[PipelineName, ...]:
        """Other pipelines whose runs its tasks wait for, by name."""
        waits = (wait for task in self.tasks for wait in task.waits_for if isinstance(wait, PipelineWait))
        return tuple(sorted({wait.pipeline for wait in waits if not wait.is_self}))
