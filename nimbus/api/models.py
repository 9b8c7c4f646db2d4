"""Models of the API's answers. They define both the answers and `/openapi.json`, so the two agree.

Durations are numbers of seconds in fields ending `_s`; times are UTC, ISO 8601. Fields are only ever added.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from nimbus.domain.calendars import OnHolidays
from nimbus.domain.catalog import PipelineState
from nimbus.domain.concurrency import WhenFull
from nimbus.domain.failures import FailureClass
from nimbus.domain.holds import HoldOf
from nimbus.domain.pipeline import (
    CatchUp,
    FailureStrategy,
    Priority,
    Requirement,
    SparkDeploy,
    SparkMode,
    SparkReuse,
    StartWhen,
    TaskKind,
)
from nimbus.domain.publications import Partitioning
from nimbus.domain.schedulers import Role

Seconds = Annotated[
    float, BeforeValidator(lambda value: value.total_seconds() if isinstance(value, timedelta) else value)
]
PriorityName = Annotated[
    str, BeforeValidator(lambda value: value.name.lower() if isinstance(value, Priority) else value)
]


class Model(BaseModel):
    """Base of all answers. Values are read from attributes of the domain's records."""

    model_config = ConfigDict(from_attributes=True, populate_by_name=True)


class PageModel(Model):
    """Base of lists that have pages."""

    next_cursor: str | None = None
    """Cursor of the next page; null: there is none."""
    at_least: int = 0
    """Number of rows, at least, from the first of this page on."""


class MissingFileModel(Model):
    """A file that a scheduler lacks."""

    pipeline: str
    path: str
    role: str
    size_bytes: int
    sha256: str


class LeaderModel(Model):
    """The confirmed leader."""

    id: str
    address: str
    epoch: int
    leader_since: datetime | None = None


class ParticipantModel(Model):
    """One scheduler: its registration and its place in the queue. Either may be missing for a moment."""

    id: str
    registered: bool
    queue_position: int | None
    is_leader: bool
    address: str | None = None
    host: str | None = None
    hostname: str | None = None
    pid: int | None = None
    boot_id: str | None = None
    version: str | None = None
    started_at: datetime | None = None
    reported_at: datetime | None = None
    role: Role | None = None
    epoch: int | None = None
    leader_since: datetime | None = None
    recovered_at: datetime | None = None
    ready: bool = False
    lacks: str = ""
    """Why it is not ready; empty: it is ready, or its release does not report the reason."""
    missing_count: int = 0
    missing_bytes: int = 0
    missing_eta_s: float | None = None
    """Until all of it is here, at the present speed; null: nothing is missing, or nothing came lately."""
    guard_said: str = ""
    """The guard's last answer: `ready`, or the reason; empty: it was not called since the start."""
    missing: list[MissingFileModel] = []
    last_abdication: str = ""
    quarantined: Mapping[str, str] = {}
    clock_ahead_s: float | None = None
    """How far its clock was ahead of ZooKeeper's at its last report; negative: behind. Null: not known."""
    load_average: float = 0.0
    memory_available_bytes: int = 0
    disk_free_bytes: int = 0


class ParticipantsModel(PageModel):
    """Every scheduler, in the order of the queue."""

    leader: LeaderModel | None
    participants: list[ParticipantModel]


class LeaderAnswer(Model):
    """The leader; null while there is none."""

    leader: LeaderModel | None


class SetAsideModel(Model):
    """A subject that the leader leaves out for a while, because a decision about it failed."""

    kind: str
    """For example `run`, `pipeline`, `backfill`, `command`; `children`: a task that starts child runs."""
    id: str
    task: str
    """Name of the task, for `children`; otherwise empty."""
    why: str


class StatusModel(Model):
    """The cluster at a glance."""

    leader: LeaderModel | None
    answered_by: str
    answered_by_lacks: str
    """Why the scheduler that answers is not ready to lead; empty: it is."""
    version: str
    schedulers: int
    schedulers_ready: int
    workers: int
    slots: int
    slots_busy: int
    """Sum of `busy` over all workers."""
    pipelines: dict[str, int]
    runs: dict[str, int]
    runs_max_running: int | None
    """`runs.max_running` of the scheduler that answers; null: any number."""
    runs_counted: int
    """Runs that count for `runs_max_running`: each with its child runs, and none that only wait."""
    clocks_differ_s: float
    """The largest difference between the clocks of two schedulers or workers; above 2, schedules and recorded
    times are off."""
    commands_waiting: int
    quarantined: Mapping[str, str]
    set_aside: list[SetAsideModel]
    """Subjects left out for up to a minute, because a decision about them failed. Cut if there are many."""
    set_aside_count: int
    """Number of all such subjects."""
    succession: str
    """What would follow if the leader died now, in a sentence."""
    cluster_schema: int | None
    """The form of the records; null before the first leader."""
    newest_schema: int
    """The newest schema that the answering scheduler knows."""
    older: list[str]
    """Schedulers and workers that do not know it. While there are any, the schema is not raised."""


class OrderModel(Model):
    """An attempt that a worker must run or reap."""

    run: str
    task: str
    attempt: int


class WorkerModel(Model):
    """A registered worker."""

    id: str
    host: str
    hostname: str
    pid: int
    slots: int
    busy: int = 0
    """Open attempts that it must run or reap. Each takes a slot."""
    in_clusters: int = 0
    """Open attempts whose drivers run in clusters, in addition to `busy`."""
    refusals: int = 0
    """Number of attempts in a row that it did not start."""
    backoff_until: datetime | None = None
    """It gets no attempts before, unless all others back off, too; null without refusals."""
    version: str
    started_at: datetime
    draining: bool
    cordoned: str | None = None
    """The operator's reason for the cordon; null if it is not cordoned."""
    load_average: float
    memory_available_bytes: int
    scheduler_id: str | None
    targets: Mapping[str, int] = {}
    """Names of the targets where it can run a task's Spark, with the slots of each."""
    labels: list[str] = []
    """Labels that tasks can require with `runs_on`, and one for each environment that can be used."""
    environments: Mapping[str, str] = {}
    """Versions of each environment, or why it cannot be used."""
    lacks: str = ""
    """What its host has too little of, so that it gets no new attempts."""
    spark_jvms: str = ""
    """How many Spark JVMs it keeps, or why none."""
    jvm_releases: list[str] = []
    """Releases of these JVMs: `pipeline/digest`."""
    executor: str = ""
    """The pid of the executor of pooled attempts, with what it could not preload; or why there is none."""
    unstored_logs: str = ""
    """How many logs storage did not accept, and why. They are on the worker's disk."""
    attempts: list[OrderModel] = []
    """Its orders; at most 20."""
    reported_at: datetime
    """When it registered last."""
    clock_ahead_s: float | None = None
    """How far its clock was ahead of ZooKeeper's at its last heartbeat; negative: behind. Null: not known."""


class WorkersModel(PageModel):
    """Workers, by id."""

    workers: list[WorkerModel]


class WantedSlotsModel(Model):
    """Slots that ready tasks lack, on workers with these labels and this target."""

    labels: list[str]
    target: str | None
    """Null: they need none."""
    slots: int
    """Tasks whose drivers run in a cluster take none, so for all of them it is 1."""
    since: datetime
    """When the oldest of these tasks became ready."""
    waited_s: float


class WantedModel(Model):
    """What workers must be added for."""

    reported_at: datetime | None
    """When the leader has said so, some seconds ago. Null: there is none, or it has not counted them yet."""
    wanted: list[WantedSlotsModel]
    """Empty: no ready task lacks a worker."""


class VariableModel(Model):
    """A variable of the cluster."""

    name: str
    value: str


class VariablesModel(Model):
    """Variables of the cluster."""

    variables: dict[str, str]


class PoolModel(Model):
    """A pool."""

    name: str
    size: int
    used: int
    """How much open attempts take."""
    waiting: int
    """Number of ready tasks that need it."""


class PoolsModel(PageModel):
    """All pools, by name."""

    pools: list[PoolModel]


class ShareModel(Model):
    """What a team has of what teams share. A team is an owner of pipelines."""

    team: str
    """Empty: the pipelines without an owner."""
    weight: int
    slots: int
    """Number of open attempts that take slots of workers."""
    share: float
    """How many slots the team gets while all teams that want or have something want more."""
    runs: int
    """Number of its runs that count for `runs_max_running`."""
    waiting: int
    """Number of ready tasks."""
    reason: str = ""
    """Why the weight was set."""
    set_by: str = ""
    set_at: datetime | None = None
    """Null: the weight was never set."""


class SharesModel(Model):
    """Teams with a weight, and teams that have or want something."""

    slots: int
    """Slots of all workers."""
    shares: list[ShareModel]


class HoldModel(Model):
    """A hold: starts of some pipelines wait."""

    hold: str
    of: HoldOf
    name: str
    """The team, the tag or the prefix; empty for `all`."""
    pipelines: int
    """Number of pipelines that it covers now."""
    reason: str
    until: datetime | None
    """When it ends by itself; null: when somebody ends it."""
    held_by: str
    held_at: datetime
    words: str
    """All this, in a sentence."""


class HoldsModel(Model):
    """All holds."""

    holds: list[HoldModel]


class CalendarDaysModel(Model):
    """Which days are worked."""

    weekdays: list[int]
    """Weekdays that are worked; 0 is Monday."""
    exceptions: list[date]
    """Holidays on such weekdays, and days that are worked on other weekdays; in order."""


class CalendarModel(Model):
    """A calendar of the cluster."""

    name: str
    days: CalendarDaysModel
    followed_by: list[str]
    """Pipelines with a schedule that follows it."""
    reason: str
    """Why it was set."""
    set_by: str
    set_at: datetime


class CalendarsModel(Model):
    """The calendars of the cluster, by name. Those in releases are not among them."""

    calendars: list[CalendarModel]


class ScheduleModel(Model):
    """When the leader starts runs."""

    cron: str
    timezone: str
    catchup: CatchUp
    catchup_window_s: Seconds | None = Field(None, validation_alias="catchup_window")
    data_interval_s: Seconds | None = Field(None, validation_alias="data_interval")
    """Null: since the fire time before."""
    name: str = ""
    """Empty: the only schedule, without a name."""
    parameters: dict[str, Any] = {}
    """Parameters of its runs; the others have their defaults."""
    calendar: str | None = None
    on_holidays: OnHolidays = OnHolidays.SKIP
    """What happens to a fire time on a day that the calendar does not work."""
    working_day: int | None = None
    """It fires only on this working day of each month; negative: from the end. Null: on all."""
    days: CalendarDaysModel | None = None
    """Content of the calendar."""
    of_release: bool = False
    """True: the calendar is a file of the release; false: it is one of the cluster."""


class ParameterModel(Model):
    """One parameter of a pipeline."""

    type: str
    items: str
    """Type of the values of a list; empty: it is no list."""
    default: Any = None
    required: bool
    minimum: float | None
    maximum: float | None
    choices: list[Any]
    description: str


class RetryModel(Model):
    """A task's retries."""

    limit: int
    delay_s: Seconds = Field(validation_alias="delay")
    factor: float
    max_delay_s: Seconds = Field(validation_alias="max_delay")
    on: list[FailureClass] | None
    """Classes of failure after which it is tried again; null: all but `analysis`."""
    memory_factor: float


class LimitsModel(Model):
    """What one attempt of a task may use; null: there is no limit."""

    memory_bytes: int | None
    open_files: int | None
    disk_bytes: int | None
    log_bytes: int


class ChildSpecModel(Model):
    """The child runs that a task starts."""

    pipeline: str
    parameters: dict[str, Any]
    """Texts are templates."""
    for_each: dict[str, list[Any] | str]
    """A single list has an empty key. A text is a template that reads its list from a task's result."""
    max_parallel: int | None
    max_items: int


class PublicationModel(Model):
    """A dataset that a task publishes."""

    dataset: str
    partition: Partitioning
    key: str
    """Key of the partition; empty for another partitioning."""
    of: str | None
    """The task whose output is published; null: its own."""
    keep_s: Seconds | None = Field(None, validation_alias="keep")


class TaskSpecModel(Model):
    """One task of a pipeline."""

    name: str
    kind: TaskKind
    script: str
    """Path in the release of the script, SQL file or jar; for a shell task, its program."""
    main_class: str
    args: list[str]
    needs: list[str]
    requirements: dict[str, Requirement]
    """How some of `needs` must have ended; all others must have succeeded."""
    when: str
    """Template of the condition for running it; empty: no condition."""
    allow_failure: bool
    retries: RetryModel
    timeout_s: Seconds | None = Field(None, validation_alias="timeout")
    priority: PriorityName
    spark_conf: dict[str, str]
    dependencies: list[str]
    """Patterns of wheels of the release that it imports: its own before those of the pipeline."""
    jars: list[str]
    """Patterns of jars of the release for its Spark: its own before those of the pipeline."""
    limits: LimitsModel | None
    """Null: only the log is limited, to 64 MiB."""
    spark_mode: SparkMode
    spark_reuse: SparkReuse
    """Which attempts may have the JVM of an earlier one."""
    spark_target: str | None = Field(None, validation_alias=AliasPath("spark_place", "target"))
    """Name of its target; null: the worker's own Spark."""
    spark_deploy: SparkDeploy | None = Field(None, validation_alias=AliasPath("spark_place", "deploy"))
    """Where its driver runs; null without a target."""
    children: ChildSpecModel | None = None
    """For a task of kind `pipeline`: the child runs that it starts."""
    pools: dict[str, int]
    """How much an open attempt takes of each pool."""
    runs_on: list[str]
    """Labels that its worker must have."""
    environment: str
    """Its interpreter and Spark; empty: the worker's own."""
    uses: list[str]
    """Reads of its pipeline that it uses."""
    publishes: list[PublicationModel]
    """Datasets that its success publishes."""
    keeps_running: bool
    """True: it is started again whatever ends it, until its run is stopped."""
    start_after_s: Seconds | None = Field(None, validation_alias="start_after")
    queue_timeout_s: Seconds | None = Field(None, validation_alias="queue_timeout")
    """Longest wait for room before each attempt; null: no limit."""
    warn_after_s: Seconds | None = Field(None, validation_alias="warn_after")


class ConcurrencyModel(Model):
    """How many runs of a pipeline may be under way at once."""

    limit: int
    when_full: WhenFull


class DataStartModel(Model):
    """Which changes of the datasets that a pipeline reads start its runs."""

    data: StartWhen = Field(validation_alias="when")
    """Without a schedule: `any` or `all` of the datasets must have changed. With one: `any`."""
    settle_s: Seconds | None = Field(validation_alias="settle")
    """How long nothing must have changed before a run starts."""


class PipelineSpecModel(Model):
    """A pipeline as its release defines it."""

    description: str
    schedule: ScheduleModel | None
    more_schedules: list[ScheduleModel] = []
    start: DataStartModel | None = None
    """Changes of data start its runs, and fire times do not; null: fire times do."""
    failure_strategy: FailureStrategy
    priority: PriorityName
    timeout_s: Seconds | None = Field(None, validation_alias="timeout")
    warn_after_s: Seconds | None = Field(None, validation_alias="warn_after")
    expect_s: Seconds | None = Field(None, validation_alias="expect")
    deadline: time | None = None
    """Time of day, in the zone of the schedule."""
    fresh_s: dict[str, Seconds] = Field({}, validation_alias="fresh")
    """Age of the newest data of a dataset from which it is late."""
    concurrency: ConcurrencyModel | None
    max_parallel_tasks: int | None
    parameters: dict[str, ParameterModel]
    tasks: list[TaskSpecModel]


class PipelineSummaryModel(Model):
    """One line of the catalog."""

    name: str
    state: PipelineState
    description: str
    release: str | None
    published: str
    schedule: ScheduleModel | None
    """The first; null: it has none."""
    more_schedules: list[ScheduleModel] = []
    """The others."""
    starts_by_data: bool
    """True: changes of data start its runs; fire times of `schedule` are then the ends of their intervals."""
    concurrency: ConcurrencyModel | None
    tasks: int
    tags: list[str] = []
    runbook: str = ""
    """What to do when it fails: a URL or a text."""
    quarantined: str | None
    """Why it is quarantined, so that none of its runs starts; null: it is not."""
    owner: str | None
    """A principal or a team; null: admins alone may publish and remove it."""
    schedule_position: datetime | None
    """All fire times of the first schedule up to here are done. In the future: a leader's clock was ahead."""
    positions: dict[str, datetime] = {}
    """The same of each schedule with a name."""
    updated_at: datetime


class SkippedFiresModel(Model):
    """Consecutive fire times that started no run, for one reason."""

    first: datetime
    last: datetime
    count: int
    reason: str
    at: datetime
    """When the last one was skipped."""
    schedule: str = ""
    """Name of their schedule."""


class PipelineModel(PipelineSummaryModel):
    """One pipeline in full. `spec` is that of the active release, or of the newest while none is active."""

    skipped_fires_total: int
    """Number of fire times that started no run."""
    skipped_fires: list[SkippedFiresModel]
    """The last entries, oldest first; at most 20."""
    spec: PipelineSpecModel | None
    """Null while the release is not on the answering scheduler's disk."""


class PipelinesModel(PageModel):
    """The catalog, by name."""

    pipelines: list[PipelineSummaryModel]


class OutcomeModel(Model):
    """The leader's answer to a command."""

    accepted: bool
    code: str
    message: str
    decided_at: datetime
    epoch: int


class CommandModel(Model):
    """A command: `pending` until a leader has answered it."""

    command_id: str
    status: str
    """`pending`, `accepted` or `refused`."""
    run_id: str | None = None
    outcome: OutcomeModel | None = None


class CheckModel(Model):
    """One check of readiness."""

    name: str
    ok: bool
    required: bool
    detail: str


class ReadinessModel(Model):
    """True when this scheduler can serve. A standby can."""

    ready: bool
    role: Role
    checks: list[CheckModel]


class ProblemError(Model):
    """One fault of a request."""

    place: str
    """Place of the fault, such as `body.parameters` or `query.limit`."""
    message: str
    pointer: str | None = None
    """The place as a JSON pointer into the body, such as `/parameters`; null: it is not in the body."""


class ProblemModel(Model):
    """RFC 9457 problem details. `code` is stable; texts are for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[ProblemError] = []
