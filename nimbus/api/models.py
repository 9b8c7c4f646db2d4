"""Models of the API's answers. They define both the answers and `/openapi.json`, so the two agree.

Durations are numbers of seconds in fields ending `_s`; times are UTC, ISO 8601. Fields are only ever added.
A model of a record declares only what differs from it, or what Python code reads: see `of`. A field without
a docstring is that of its record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Annotated, Any, Self, TypeVar, get_args, get_origin, get_type_hints

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, create_model

from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schedulers import ElectionRole, MissingFile
from nimbus.domain.data.publications import Publication
from nimbus.domain.pipelines.calendars import Calendar
from nimbus.domain.pipelines.catalog import PipelineState, SkippedFires
from nimbus.domain.pipelines.pipeline import (
    Concurrency,
    DataStart,
    Limits,
    ParameterSpec,
    PipelineSpec,
    Priority,
    Retries,
    Schedule,
    SparkDeploy,
    StartWhen,
    TaskSpec,
)
from nimbus.domain.runs.children import ChildSpec

Seconds = Annotated[
    float, BeforeValidator(lambda value: value.total_seconds() if isinstance(value, timedelta) else value)
]
PriorityName = Annotated[
    str, BeforeValidator(lambda value: value.name.lower() if isinstance(value, Priority) else value)
]


class Model(BaseModel):
    """Base of all answers. Values are read from attributes of the domain's records."""

    model_config = ConfigDict(from_attributes=True, populate_by_name=True)

    @classmethod
    def from_records(cls, *records: object, **more: object) -> Self:
        """The model with the values of `more`, and of the first record that has the others; None has none."""
        if unknown := more.keys() - cls.model_fields.keys():
            raise TypeError(f"{cls.__name__} has no field {', '.join(sorted(unknown))}")
        read: dict[str, object] = {}
        for name, field in cls.model_fields.items():
            source = str(field.validation_alias or name)
            for record in reversed(records):
                if hasattr(record, source):
                    read[name] = getattr(record, source)
        return cls.model_validate({**read, **more})


AnyModel = TypeVar("AnyModel", bound=Model)
_MODELS: dict[type, type[Model]] = {}
"""The model of each record that has one."""


def of(record: type, leave_out: Collection[str] = ()) -> Callable[[type[AnyModel]], type[AnyModel]]:
    """Give a model the fields of a dataclass, unless it declares them or they are in `leave_out`.

    A duration gets the ending `_s`, a priority its name, and a nested record the model that was made of it. A
    field that the record gets later is shown, too: a record with secrets is declared field by field instead.
    """

    def derived(model: type[AnyModel]) -> type[AnyModel]:
        types = get_type_hints(record)
        shown: dict[str, Any] = {}
        for field in fields(record):
            name = (
                f"{field.name}_s"
                if timedelta in (types[field.name], *get_args(types[field.name]))
                else field.name
            )
            if name not in model.model_fields and field.name not in leave_out:
                shown[name] = _shown(types[field.name]), Field(validation_alias=field.name)
        made = create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **shown
        )
        _MODELS[record] = made
        return made

    return derived


def _shown(said: Any) -> Any:
    """The type of a field in an answer."""
    if said in (timedelta, Priority):
        return Seconds if said is timedelta else PriorityName
    kind, inner = get_origin(said), get_args(said)
    if kind is tuple:
        return list[_shown(inner[0])]  # type: ignore[misc]  # the item's type is a value here
    if kind is Mapping:
        return dict[_shown(inner[0]), _shown(inner[1])]  # type: ignore[misc]  # likewise
    if inner:
        return reduce(or_, map(_shown, inner))
    return _MODELS[said] if isinstance(said, type) and is_dataclass(said) else said


class PageModel(Model):
    """Base of lists that have pages."""

    next_cursor: str | None = None
    """Cursor of the next page; null: there is none."""
    at_least: int = 0
    """Number of rows, at least, from the first of this page on."""


@of(MissingFile)
class MissingFileModel(Model):
    """A file that a scheduler lacks."""


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
    role: ElectionRole | None = None
    epoch: int | None = None
    leader_since: datetime | None = None
    recovered_at: datetime | None = None
    ready: bool = False
    lacks: str = ""
    missing_count: int = 0
    missing_bytes: int = 0
    missing_eta_s: float | None = None
    guard_said: str = ""
    missing: list[MissingFileModel] = []
    last_abdication: str = ""
    quarantined: Mapping[str, str] = {}
    clock_ahead_s: float | None = None
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


class ParkedKeyModel(Model):
    """A key that the leader leaves out for a while, because it could not decide about it."""

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
    parked: list[ParkedKeyModel]
    """Keys left out for up to a minute: the leader could not decide about them. Cut if there are many."""
    parked_count: int
    """Number of all such keys."""
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


@of(WorkerInfo, leave_out=("evicts", "newest_schema", "has_java", "submits", "orders_in_clusters"))
class WorkerModel(Model):
    """A registered worker."""

    id: str
    hostname: str
    slots: int
    busy: int = 0
    """Open attempts that it must run or reap. Each takes a slot."""
    in_clusters: int = 0
    """Open attempts whose drivers run in clusters, in addition to `busy`."""
    refusals: int = 0
    """Number of attempts in a row that it did not start."""
    backoff_until: datetime | None = None
    """It gets no attempts before, unless all others back off, too; null without refusals."""
    draining: bool
    cordoned: str | None = None
    """The operator's reason for the cordon; null if it is not cordoned."""
    load_average: float
    memory_available_bytes: int
    targets: Mapping[str, int] = {}
    labels: list[str] = []
    lacks: str = ""
    unstored_logs: str = ""
    attempts: list[OrderModel] = []
    """Its orders; at most 20."""
    reported_at: datetime


class WorkersModel(PageModel):
    """Workers, by id."""

    workers: list[WorkerModel]


@of(Calendar)
class CalendarDaysModel(Model):
    """Which days are worked."""


@of(Schedule)
class ScheduleModel(Model):
    """When the leader starts runs."""


@of(ParameterSpec)
class ParameterModel(Model):
    """One parameter of a pipeline."""


@of(Retries)
class RetryModel(Model):
    """A task's retries."""


@of(Limits)
class LimitsModel(Model):
    """What one attempt of a task may use; null: there is no limit."""


@of(ChildSpec, leave_out=("release",))
class ChildSpecModel(Model):
    """The child runs that a task starts.

    Texts in `parameters` are templates. A single list of `for_each` has an empty key; a text there is a
    template that reads its list.
    """


@of(Publication)
class PublicationModel(Model):
    """A dataset that a task publishes."""


@of(TaskSpec, leave_out=("isolation", "spark_place", "secrets", "env", "waits_for", "reads"))
class TaskSpecModel(Model):
    """One task of a pipeline. Empty or null: it is as its kind, or its worker, has it."""

    spark_target: str | None = Field(None, validation_alias=AliasPath("spark_place", "target"))
    """Name of its target; null: the worker's own Spark."""
    spark_deploy: SparkDeploy | None = Field(None, validation_alias=AliasPath("spark_place", "deploy"))
    """Where its driver runs; null without a target."""


@of(Concurrency)
class ConcurrencyModel(Model):
    """How many runs of a pipeline may be under way at once."""


@of(DataStart, leave_out=("when",))
class DataStartModel(Model):
    """Which changes of the datasets that a pipeline reads start its runs."""

    data: StartWhen = Field(validation_alias="when")
    """Without a schedule: `any` or `all` of the datasets must have changed. With one: `any`."""


@of(PipelineSpec, leave_out=(
    "name", "tags", "runbook", "notify", "readers", "files", "dependencies", "jars", "python_path",
    "variables", "reads", "accepts", "webhook", "interval_files",
))  # fmt: skip
class PipelineSpecModel(Model):
    """A pipeline as its release defines it."""


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


@of(SkippedFires)
class SkippedFiresModel(Model):
    """Consecutive fire times that started no run, for one reason."""


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


class RequestFaultModel(Model):
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
    errors: list[RequestFaultModel] = []
