"""What a pipeline is: tasks, what they need, and the rules they run under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from enum import IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Any

from nimbus.domain.children import ChildSpec
from nimbus.domain.concurrency import Concurrency
from nimbus.domain.failures import FailureClass
from nimbus.domain.ids import PipelineName, TaskName
from nimbus.domain.notify import NotifyRule
from nimbus.domain.waits import PipelineWait, WaitFor
from nimbus.domain.webhooks import Webhook

DEFINITION_FILE = "pipeline.yaml"
"""Where a pipeline's folder, and so every release, keeps its definition."""


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
    """Waits until a person approves or rejects it. Its one argument is what that person is asked."""
    WAIT = "wait"
    """Waits until all is there that it waits for. Its arguments are the addresses of data."""

    @property
    def uses_worker(self) -> bool:
        """Its attempts, or those of its child runs, run on workers; else the leader alone ends it."""
        return self not in (TaskKind.APPROVAL, TaskKind.WAIT)

    @property
    def uses_spark(self) -> bool:
        """It starts a JVM with Spark."""
        return self.uses_worker and self not in (TaskKind.PYTHON, TaskKind.SHELL, TaskKind.PIPELINE)

    @property
    def is_program(self) -> bool:
        """Its driver becomes another program, whose exit code alone tells success."""
        return self in (TaskKind.SHELL, TaskKind.SPARK_SUBMIT)


class Isolation(StrEnum):
    """Which processes an attempt of a task has for itself."""

    ISOLATED = "isolated"
    """A runner and a driver of its own."""
    POOLED = "pooled"
    """A driver of its own; an executor of its worker's does a runner's work for many at once."""


class SparkMode(StrEnum):
    """Which Spark a task gets."""

    CLASSIC = "classic"
    """One of its own, started with it."""
    CONNECT = "connect"
    """A session on a Spark Connect server that is there already."""


class SparkDeploy(StrEnum):
    """Where the driver of a task with Spark runs."""

    CLIENT = "client"
    """On the host of its worker."""
    CLUSTER = "cluster"
    """Inside the cluster that it is submitted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlace:
    """Where a task's Spark runs, if not on its worker alone."""

    target: str
    """Name of one of the places that the workers' configuration has."""
    deploy: SparkDeploy = SparkDeploy.CLIENT


SPARK_KINDS = frozenset({TaskKind.PYSPARK, TaskKind.SQL})
"""Their drivers have a Spark session."""


class Requirement(StrEnum):
    """How a task that another one needs must have ended. The table is in `nimbus.domain.needs`."""

    SUCCEEDED = "succeeded"
    NOT_FAILED = "not_failed"
    """It succeeded, or was skipped."""
    FAILED = "failed"
    """It failed, or could not run since something else failed."""
    DONE = "done"
    """In any way."""


class FailureStrategy(StrEnum):
    """What a failed task (its retries used up) means for the rest of its run."""

    END = "end"
    """Nothing new starts, what runs is stopped, the run fails."""
    CONTINUE = "continue"
    """All that does not depend on the failed task goes on; the run fails at its end."""


class Priority(IntEnum):
    """Smaller goes first."""

    HIGHEST = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3
    LOWEST = 4


class CatchUp(StrEnum):
    """What happens to fire times that passed while no leader could see them."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


MOST_MEMORY_SCALE = 8.0
"""An attempt never gets more than this many times the memory of the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """After which failures, how often, after which pauses and with how much memory a task is tried again."""

    limit: int = 0
    delay: timedelta = timedelta(seconds=10)
    factor: float = 2.0
    max_delay: timedelta = timedelta(minutes=10)
    on: tuple[FailureClass, ...] | None = None
    """None: after every failure but one of analysis."""
    memory_factor: float = 1.0
    """Each out-of-memory failure multiplies the memory of the next attempts by this."""

    def covers(self, failure: FailureClass | None) -> bool:
        """Whether a task is tried again after such a failure. None: its worker does not tell the class."""
        if failure is None:
            return True
        return failure is not FailureClass.ANALYSIS if self.on is None else failure in self.on

    def pause_after(self, failures: int) -> timedelta:
        """The pause after the n-th failure, counted from 1. Exponential, bounded."""
        seconds = self.delay.total_seconds() * self.factor ** min(failures - 1, 64)
        return min(timedelta(seconds=min(seconds, 1e9)), self.max_delay)

    def memory_scale(self, failures: int) -> float:
        """How many times its own memory a task gets after so many out-of-memory failures."""
        return min(self.memory_factor ** min(failures, 64), MOST_MEMORY_SCALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one attempt may use. None: there is no limit."""

    memory_bytes: int | None = None
    """Of all its processes together."""
    open_files: int | None = None
    """Of each of its processes."""
    disk_bytes: int | None = None
    """Of its folder on the worker and its output together."""
    log_bytes: int = 64 << 20
    """What is kept of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task of a pipeline. In a run its `args` are already rendered, unless it `reads` results."""

    name: TaskName
    kind: TaskKind
    script: str
    """Path of the script, SQL file, jar or spec in the release, with `/`; or the program of a shell task."""
    args: tuple[str, ...] = ()
    needs: tuple[TaskName, ...] = ()
    requirements: Mapping[TaskName, Requirement] = field(default_factory=dict)
    """Of needs that are asked for something else than success."""
    when: str = ""
    """Whether it is wanted: a template; in a run, `true` or `false`. Empty: it is."""
    allow_failure: bool = False
    """Its run can succeed without it."""
    reads: tuple[TaskName, ...] = ()
    """Tasks whose results its templates take: these are rendered when it is ready, others with the run."""

    def requirement(self, need: TaskName) -> Requirement:
        """What it asks of a task that it needs."""
        return self.requirements.get(need, Requirement.SUCCEEDED)

    @property
    def is_wanted(self) -> bool:
        """Its condition holds, or is not known yet, or it has none. In a run only."""
        return bool(self.reads) or self.when in ("", "true")

    @property
    def is_clean_up(self) -> bool:
        """It may begin in a run that has failed: one of its needs may have failed."""
        return any(asked in (Requirement.FAILED, Requirement.DONE) for asked in self.requirements.values())

    retries: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: timedelta | None = None
    """Of one attempt."""
    priority: Priority = Priority.MEDIUM
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    isolation: Isolation | None = None
    """None: as is usual for its kind."""

    @property
    def is_pooled(self) -> bool:
        """Its attempts are run by an executor, with others."""
        usual = Isolation.POOLED if self.kind is TaskKind.PYTHON else Isolation.ISOLATED
        return not self.secrets and (self.isolation or usual) is Isolation.POOLED

    limits: Limits | None = None
    """None: those that `Limits` has. It is in the order of each attempt, so it takes little room there."""
    main_class: str = ""
    """Of a jar."""

    @property
    def file(self) -> str | None:
        """The file of the release that it runs; None: a program of the host, or nothing was said."""
        if not self.script or (self.kind is TaskKind.SHELL and self.script.find("/") < 1):
            return None
        return str(PurePosixPath(self.script))

    spark_mode: SparkMode = SparkMode.CLASSIC
    spark_place: SparkPlace | None = None
    """None: the worker's own Spark. It is in the order of each attempt, so it takes little room there."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Names of secrets, by the environment variable that a driver gets each in. Not their values."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of its drivers; wins over the worker's."""
    pools: Mapping[str, int] = field(default_factory=dict)
    """What an open attempt takes of each pool."""
    runs_on: tuple[str, ...] = ()
    """Labels that its worker must have, all of them."""
    waits_for: tuple[WaitFor, ...] = ()
    start_after: timedelta | None = None
    """From the moment when its needs are met to its first attempt, at least."""
    queue_timeout: timedelta | None = None
    """How long it may wait for room, before each attempt; None: for ever."""
    warn_after: timedelta | None = None
    """How long an attempt, or the wait of a task without any, lasts until `late` is raised."""
    children: ChildSpec | None = None
    """Of a task of kind `pipeline`, and of no other."""

    @property
    def awaits_pipelines(self) -> bool:
        """It waits for runs of a pipeline."""
        return any(isinstance(wait, PipelineWait) for wait in self.waits_for)

    @property
    def runs_in_cluster(self) -> bool:
        """Its drivers run inside the cluster of its target."""
        return self.spark_place is not None and self.spark_place.deploy is SparkDeploy.CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When runs start by themselves."""

    cron: str
    """Five fields, Debian's rules."""
    timezone: str
    """IANA name."""
    catchup: CatchUp = CatchUp.LATEST
    catchup_window: timedelta | None = None
    """Missed fire times that are older are skipped; None: however old they are."""
    data_interval: timedelta | None = None
    """How long before its fire time a run's data interval starts; None: at the fire time before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter of a run."""

    type: str
    """`string`, `integer`, `number` or `boolean`."""
    default: Any = None
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A pipeline as its definition file says it; checked where it was read, then trusted."""

    name: PipelineName
    description: str = ""
    schedule: Schedule | None = None
    failure_strategy: FailureStrategy = FailureStrategy.END
    priority: Priority = Priority.MEDIUM
    timeout: timedelta | None = None
    """Of a whole run, from its start."""
    concurrency: Concurrency | None = None
    """None: any number of runs at once."""
    max_parallel_tasks: int | None = None
    """Of one run; None: as many as there are slots."""
    notify: tuple[NotifyRule, ...] | None = None
    """None: what `alerts.notify` in the schedulers' configuration says."""
    warn_after: timedelta | None = None
    """From the start of a run until `late` is raised."""
    expect: timedelta | None = None
    """From the moment when a run is asked for until `late` is raised, unless it has ended."""
    deadline: time | None = None
    """Of a day, in the zone of the schedule: the run of the last fire time must have succeeded by then."""
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    files: tuple[str, ...] = ("**/*",)
    """Globs, relative to the pipeline's folder, of the release's code."""
    dependencies: tuple[str, ...] = ()
    """Globs of wheels that the release brings along."""
    python_path: tuple[str, ...] = ()
    """Folders of the release that every task can import from."""
    tasks: tuple[TaskSpec, ...] = ()
    variables: tuple[str, ...] = ()
    """Variables of the cluster that templates name; those of SQL files, where these are."""
    webhook: Webhook | None = None
    interval_files: tuple[str, ...] = ()
    """SQL files that need a data interval; found out where the files of the release are."""

    @property
    def children(self) -> tuple[PipelineName, ...]:
        """Pipelines whose runs its tasks start, by name."""
        return tuple(sorted({task.children.pipeline for task in self.tasks if task.children is not None}))

    @property
    def upstream(self) -> tuple[PipelineName, ...]:
        """Other pipelines whose runs its tasks wait for, by name."""
        waits = (wait for task in self.tasks for wait in task.waits_for if isinstance(wait, PipelineWait))
        return tuple(sorted({wait.pipeline for wait in waits if not wait.is_self}))
