"""The keys of `pipeline.yaml` for a pipeline and its tasks, as types: see `docs/pipelines.md`.

Written by `python -m tests.nimbus.authoring_options` from `nimbus.definition.models`. Standard library only:
the code of a task imports it. Durations are `timedelta` or text such as `90s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, Union

Duration = Union[str, timedelta]
TriggerRule = Literal[
    "succeeded", "not_failed", "failed", "done", "one_failed", "none_failed_min_one_success"
]
Priority = Literal["highest", "high", "medium", "low", "lowest"]
Kind = Literal[
    "pyspark", "python", "sql", "shell", "spark_submit", "spark_pipeline", "pipeline", "approval", "wait"
]


class ConcurrencyOptions(TypedDict, total=False):
    """How many runs of the pipeline may be under way at once. Required: `limit`."""

    limit: int
    when_full: Literal["queue", "skip", "replace"]


class DatasetOptions(TypedDict, total=False):
    """A dataset: the newest output of a task, which outlives the run, or the newest for each partition."""

    partition: Literal["whole", "interval", "key"]
    keep: Duration | KeepOptions
    fresh: Duration
    outside: bool | Sequence[str]
    readers: Sequence[str]


class DefaultsOptions(TypedDict, total=False):
    """Values of tasks without their own."""

    timeout: Duration
    retries: RetriesOptions
    priority: Priority
    spark: SparkOptions
    limits: LimitsOptions
    environment: str


class KeepOptions(TypedDict, total=False):
    """What retention and purges keep of a dataset. What a live run has pinned stays in any case."""

    versions: int
    partitions: Duration


class LimitsOptions(TypedDict, total=False):
    """What an attempt may use."""

    memory: str
    open_files: int
    disk: str
    log: str


class NotifyOptions(TypedDict):
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


class ParameterOptions(TypedDict, total=False):
    """One parameter of a run. Required: `type`."""

    type: Literal["string", "integer", "number", "boolean", "list"]
    items: Literal["string", "integer", "number", "boolean"]
    default: Any
    required: bool
    minimum: float
    maximum: float
    choices: Sequence[Any]
    description: str


class PublicationOptions(TypedDict, total=False):
    """What a task publishes of a dataset."""

    of: str
    key: str | int | float | bool


class ReadOptions(TypedDict, total=False):
    """A dataset that the pipeline reads. A run pins its versions when all of them are there."""

    dataset: str
    take: Literal["interval", "latest", "new"]
    last: Duration
    key: str | int | float | bool
    optional: bool
    start: bool
    of: str


class RetriesOptions(TypedDict, total=False):
    """Retries of a failed task."""

    limit: int
    delay: Duration
    factor: float
    max_delay: Duration
    on: Sequence[
        Literal["out_of_memory", "executor_lost", "analysis", "missing_input", "killed", "timed_out", "error"]
    ]
    memory_factor: float


class ScheduleOptions(TypedDict, total=False):
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


class SparkOptions(TypedDict, total=False):
    """Spark settings of a task, or of all tasks."""

    mode: Literal["classic", "connect"]
    target: str | None
    deploy: Literal["client", "cluster"]
    reuse: Literal["release", "off"]
    event_log: bool
    conf: Mapping[str, str | int | float | bool]


class StartOptions(TypedDict, total=False):
    """How changes of the datasets that a pipeline reads start its runs."""

    data: Literal["any", "all"]
    settle: Duration


class WaitForOptions(TypedDict, total=False):
    """What a task of type `wait` waits for: one of `s3`, `file`, `http`, `pipeline`."""

    s3: str
    file: str
    http: str
    status: int
    pipeline: str
    covers: Literal["data_interval"]
    last: Duration
    on_failed: Literal["wait", "fail"]


class WebhookOptions(TypedDict, total=False):
    """A signed request that starts a run. Required: `secret`."""

    secret: str
    params: Mapping[str, str]


class PipelineOptions(TypedDict, total=False):
    """Keys of a pipeline, except `schema`, `name` and `tasks`."""

    description: str
    tags: Sequence[str]
    runbook: str
    schedule: ScheduleOptions
    schedules: Mapping[str, ScheduleOptions]
    start: StartOptions | Literal["data"]
    failure_strategy: Literal["end", "continue"]
    priority: Priority
    timeout: Duration
    concurrency: ConcurrencyOptions
    webhook: WebhookOptions
    max_parallel_tasks: int
    notify: Sequence[NotifyOptions]
    warn_after: Duration
    expect: Duration
    deadline: str
    parameters: Mapping[str, ParameterOptions]
    files: Sequence[str]
    dependencies: Sequence[str]
    jars: Sequence[str]
    python_path: Sequence[str]
    datasets: Mapping[str, DatasetOptions]
    reads: Mapping[str, ReadOptions]
    defaults: DefaultsOptions


class TaskOptions(TypedDict, total=False):
    """Keys of a task, except `type`, `needs`, and the keys for what it runs."""

    args: Sequence[str | int | float | bool]
    when: str | bool
    allow_failure: bool
    keep: Literal["running"]
    retries: RetriesOptions
    timeout: Duration
    priority: Priority
    spark: SparkOptions
    dependencies: Sequence[str]
    jars: Sequence[str]
    isolation: Literal["isolated", "pooled"]
    limits: LimitsOptions
    start_after: Duration
    queue_timeout: Duration
    warn_after: Duration
    secrets: Mapping[str, str]
    env: Mapping[str, str]
    runs_on: Sequence[str]
    environment: str
    reads: Sequence[str]
    publishes: Sequence[str] | Mapping[str, PublicationOptions]
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
    waits_for: Sequence[WaitForOptions]
