"""What the API answers, as models: they make the answers and `/openapi.json`, so the two agree.

Durations are numbers of seconds in fields ending `_s`; times are UTC, ISO 8601. Fields are only ever added.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from nimbus.domain.catalog import PipelineState
from nimbus.domain.pipeline import CatchUp, FailureStrategy, Priority, TaskKind
from nimbus.domain.run import Outcome, RunCause, RunState, TaskState
from nimbus.domain.schedulers import Role

Seconds = Annotated[
    float, BeforeValidator(lambda value: value.total_seconds() if isinstance(value, timedelta) else value)
]
PriorityName = Annotated[
    str, BeforeValidator(lambda value: value.name.lower() if isinstance(value, Priority) else value)
]


class _Model(BaseModel):
    model_config = ConfigDict(from_attributes=True, populate_by_name=True)


class MissingFileModel(_Model):
    """A file that a scheduler lacks."""

    pipeline: str
    path: str
    role: str
    size_bytes: int
    sha256: str


class LeaderModel(_Model):
    """The confirmed leader."""

    id: str
    address: str
    epoch: int
    leader_since: datetime | None = None


class ParticipantModel(_Model):
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
    missing_count: int = 0
    missing_bytes: int = 0
    missing: list[MissingFileModel] = []
    last_abdication: str = ""
    quarantined: Mapping[str, str] = {}
    load_average: float = 0.0
    memory_available_bytes: int = 0
    disk_free_bytes: int = 0


class ParticipantsModel(_Model):
    """Every scheduler, first in the queue first."""

    leader: LeaderModel | None
    participants: list[ParticipantModel]


class LeaderAnswer(_Model):
    """Who leads; null while nobody does."""

    leader: LeaderModel | None


class StatusModel(_Model):
    """The cluster at a glance."""

    leader: LeaderModel | None
    answered_by: str
    version: str
    schedulers: int
    schedulers_ready: int
    workers: int
    slots: int
    slots_busy: int
    pipelines: dict[str, int]
    runs: dict[str, int]
    commands_waiting: int
    quarantined: Mapping[str, str]


class WorkerModel(_Model):
    """A registered worker."""

    id: str
    host: str
    hostname: str
    pid: int
    slots: int
    busy: int = 0
    version: str
    started_at: datetime
    draining: bool
    load_average: float
    memory_available_bytes: int
    scheduler_id: str | None


class ScheduleModel(_Model):
    """When runs start by themselves."""

    cron: str
    timezone: str
    catchup: CatchUp


class ParameterModel(_Model):
    """One parameter of a pipeline."""

    type: str
    default: Any = None
    required: bool
    minimum: float | None
    maximum: float | None
    choices: list[Any]
    description: str


class RetryModel(_Model):
    """A task's retries."""

    limit: int
    delay_s: Seconds = Field(validation_alias="delay")
    factor: float
    max_delay_s: Seconds = Field(validation_alias="max_delay")


class TaskSpecModel(_Model):
    """One task of a pipeline."""

    name: str
    kind: TaskKind
    script: str
    args: list[str]
    needs: list[str]
    retries: RetryModel
    timeout_s: Seconds | None = Field(None, validation_alias="timeout")
    priority: PriorityName
    spark_conf: dict[str, str]


class PipelineSpecModel(_Model):
    """A pipeline as its release defines it."""

    description: str
    schedule: ScheduleModel | None
    failure_strategy: FailureStrategy
    priority: PriorityName
    timeout_s: Seconds | None = Field(None, validation_alias="timeout")
    parameters: dict[str, ParameterModel]
    tasks: list[TaskSpecModel]


class PipelineSummaryModel(_Model):
    """One line of the catalog."""

    name: str
    state: PipelineState
    description: str
    release: str | None
    published: str
    schedule: ScheduleModel | None
    tasks: int
    quarantined: str | None
    """Why nothing of it starts, or null."""
    updated_at: datetime


class PipelineModel(PipelineSummaryModel):
    """One pipeline in full. `spec` is of the active release; of the newest, while none is active."""

    schedule_position: datetime | None
    spec: PipelineSpecModel


class PipelinesModel(_Model):
    """The catalog, by name."""

    pipelines: list[PipelineSummaryModel]


class AttemptModel(_Model):
    """One try at a task. Open while `outcome` is null."""

    number: int
    worker: str
    opened_at: datetime
    opened_by_epoch: int
    started_at: datetime | None
    ended_at: datetime | None
    outcome: Outcome | None
    reason: str
    exit_code: int | None
    output: str | None
    host: str | None = None
    pid: int | None = None
    progress: Mapping[str, Any] | None = None
    """As the driver last told it, while the attempt is open."""


class TaskModel(_Model):
    """One task within a run."""

    name: str
    kind: TaskKind
    state: TaskState
    needs: list[str]
    retry_at: datetime | None
    why: str | None
    """Why it is not computing; null when there is nothing to explain."""
    attempts: list[AttemptModel]


class RunSummaryModel(_Model):
    """One line of the list of runs."""

    id: str
    pipeline: str
    release: str
    state: RunState
    reason: str
    cause: RunCause
    priority: PriorityName
    logical_date: datetime
    created_at: datetime
    finished_at: datetime | None
    tasks_total: int
    tasks_done: int
    archived: bool = False
    """It has moved to history."""


class RunModel(RunSummaryModel):
    """One run in full; tasks in the order of their needs."""

    parameters: Mapping[str, Any]
    verdict: RunState | None
    deadline: datetime | None
    failure_strategy: FailureStrategy
    tasks: list[TaskModel]


class RunsModel(_Model):
    """Runs, newest first."""

    runs: list[RunSummaryModel]
    history_complete: bool = True
    """False: history did not answer, and finished runs may be missing."""


class TimelineEventModel(_Model):
    """Something that happened in a run."""

    at: datetime
    kind: str
    task: str | None = None
    attempt: int | None = None
    worker: str | None = None
    epoch: int | None = None
    detail: str = ""


class TimelineModel(_Model):
    """What happened in a run, oldest first."""

    run_id: str
    events: list[TimelineEventModel]


class OutcomeModel(_Model):
    """The leader's answer to a command."""

    accepted: bool
    code: str
    message: str
    decided_at: datetime
    epoch: int


class CommandModel(_Model):
    """A command: `pending` until a leader has answered it."""

    command_id: str
    status: str
    """`pending`, `accepted` or `refused`."""
    run_id: str | None = None
    outcome: OutcomeModel | None = None


class CheckModel(_Model):
    """One thing that was looked at."""

    name: str
    ok: bool
    required: bool
    detail: str


class ReadinessModel(_Model):
    """Whether this scheduler can serve. A standby can."""

    ready: bool
    role: Role
    checks: list[CheckModel]


class ProblemError(_Model):
    """One thing that is wrong with a request."""

    place: str
    """Where it stands, such as `body.parameters` or `query.limit`."""
    message: str


class ProblemModel(_Model):
    """RFC 9457 problem details. `code` is stable; texts are for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[ProblemError] = []
