"""The keys of `pipeline.yaml` for a pipeline and its tasks, as types: see `docs/pipelines.md`.

Written by `python -m tests.nimbus.authoring_options` from `nimbus.definition.models`. Standard library only:
the code of a task imports it. Durations are `timedelta` or text such as `90s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, Union

Duration = Union[str, timedelta]
Requirement = Literal[
    "succeeded", "not_failed", "failed", "done", "one_failed", "none_failed_min_one_success"
]
Priority = Literal["highest", "high", "medium", "low", "lowest"]
Kind = Literal[
    "pyspark", "python", "sql", "shell", "spark_submit", "spark_pipeline", "pipeline", "approval", "wait"
]


class Concurrency(TypedDict, total=False):
    """How many runs of the pipeline may be under way at once. Required: `limit`."""

    limit: int
    when_full: Literal["queue", "skip", "replace"]


class Dataset(TypedDict, total=False):
    """A dataset: the newest output of a task, which outlives the run, or the newest for each partition."""

    partition: Literal["whole", "interval", "key"]
    keep: Duration | Keep
    fresh: Duration
    outside: bool | Sequence[str]
    readers: Sequence[str]


class Defaults(TypedDict, total=False):
    """Values of tasks without their own."""

    timeout: Duration
    retries: Retries
    priority: Priority
    spark: Spark
    limits: Limits
    environment: str


class Keep(TypedDict, total=False):
    """What retention and purges keep of a dataset. What a live run has pinned stays in any case."""

    versions: int
    partitions: Duration


class Limits(TypedDict, total=False):
    """What an attempt may use."""

    memory: str
    open_files: int
    disk: str
    log: str


class Notify(TypedDict):
    """Which events are sent to one target."""

    on: Sequence[
        Literal[
            "failed",
            "timed_out",
            "recovered",
            "succeeded",
            "worker_lost",
            "skipped_fire",
            "late",
            "waiting_for_approval",
        ]
    ]
    to: str


class Parameter(TypedDict, total=False):
    """One parameter of a run. Required: `type`."""

    type: Literal["string", "integer", "number", "boolean", "list"]
    items: Literal["string", "integer", "number", "boolean"]
    default: Any
    required: bool
    minimum: float
    maximum: float
    choices: Sequence[Any]
    description: str


class Publication(TypedDict, total=False):
    """What a task publishes of a dataset."""

    of: str
    key: str | int | float | bool


class Read(TypedDict, total=False):
    """A dataset that the pipeline reads. A run pins its versions when all of them are there."""

    dataset: str
    take: Literal["interval", "latest", "new"]
    last: Duration
    key: str | int | float | bool
    optional: bool
    start: bool
    of: str


class Retries(TypedDict, total=False):
    """Retries of a failed task."""

    limit: int
    delay: Duration
    factor: float
    max_delay: Duration
    on: Sequence[
        Literal["out_of_memory", "executor_lost", "analysis", "missing_input", "killed", "timed_out", "error"]
    ]
    memory_factor: float


class Schedule(TypedDict, total=False):
    """When the leader starts runs. Required: `cron`."""

    cron: str
    timezone: str
    catchup: Literal["none", "latest", "all"]
    catchup_window: Duration
    data_interval: Duration
    parameters: Mapping[str, Any]
    calendar: str
    on_holidays: Literal["skip", "before", "after"]
    working_day: int


class Spark(TypedDict, total=False):
    """Spark settings of a task, or of all tasks."""

    mode: Literal["classic", "connect"]
    target: str | None
    deploy: Literal["client", "cluster"]
    reuse: Literal["release", "off"]
    event_log: bool
    conf: Mapping[str, str | int | float | bool]


class Start(TypedDict, total=False):
    """How changes of the datasets that a pipeline reads start its runs."""

    data: Literal["any", "all"]
    settle: Duration


class WaitFor(TypedDict, total=False):
    """What a task of type `wait` waits for: one of `s3`, `file`, `http`, `pipeline`."""

    s3: str
    file: str
    http: str
    status: int
    pipeline: str
    covers: Literal["data_interval"]
    last: Duration
    on_failed: Literal["wait", "fail"]


class Webhook(TypedDict, total=False):
    """A signed request that starts a run. Required: `secret`."""

    secret: str
    params: Mapping[str, str]


class PipelineOptions(TypedDict, total=False):
    """Keys of a pipeline, except `schema`, `name` and `tasks`."""

    description: str
    tags: Sequence[str]
    runbook: str
    schedule: Schedule
    schedules: Mapping[str, Schedule]
    start: Start | Literal["data"]
    failure_strategy: Literal["end", "continue"]
    priority: Priority
    timeout: Duration
    concurrency: Concurrency
    webhook: Webhook
    max_parallel_tasks: int
    notify: Sequence[Notify]
    warn_after: Duration
    expect: Duration
    deadline: str
    parameters: Mapping[str, Parameter]
    files: Sequence[str]
    dependencies: Sequence[str]
    jars: Sequence[str]
    python_path: Sequence[str]
    datasets: Mapping[str, Dataset]
    reads: Mapping[str, Read]
    defaults: Defaults


class TaskOptions(TypedDict, total=False):
    """Keys of a task, except `type`, `needs`, and the keys for what it runs."""

    args: Sequence[str | int | float | bool]
    when: str | bool
    allow_failure: bool
    keep: Literal["running"]
    retries: Retries
    timeout: Duration
    priority: Priority
    spark: Spark
    dependencies: Sequence[str]
    jars: Sequence[str]
    isolation: Literal["isolated", "pooled"]
    limits: Limits
    start_after: Duration
    queue_timeout: Duration
    warn_after: Duration
    secrets: Mapping[str, str]
    env: Mapping[str, str]
    runs_on: Sequence[str]
    environment: str
    reads: Sequence[str]
    publishes: Sequence[str] | Mapping[str, Publication]
    pool: Mapping[str, int]


class ProgramOptions(TaskOptions, total=False):
    """Keys of a task that is no Python function, with what it runs, starts or waits for."""

    script: str
    command: Sequence[str | int | float | bool]
    jar: str
    main_class: str
    spec: str
    refresh: Sequence[str]
    full_refresh: Sequence[str]
    full_refresh_all: bool
    pipeline: str
    params: Mapping[str, Any]
    for_each: Sequence[Any] | str | Mapping[str, Sequence[Any] | str]
    max_parallel: int
    max_items: int
    prompt: str
    waits_for: Sequence[WaitFor]
