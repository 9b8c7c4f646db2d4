"""The keys of `pipeline.yaml` for a pipeline and its tasks, as types: see `docs/pipelines.md`.

Standard library only: the code of a task imports it. Durations are `timedelta` or text such as `90s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict, Union

Duration = Union[str, timedelta]
Requirement = Literal[
    "succeeded", "not_failed", "failed", "done", "one_failed", "none_failed_min_one_success"
]
Priority = Literal["highest", "high", "medium", "low", "lowest"]
Kind = Literal[
    "pyspark", "python", "sql", "shell", "spark_submit", "spark_pipeline", "pipeline", "approval", "wait"
]


class Retries(TypedDict, total=False):
    """`retries`."""

    limit: int
    delay: Duration
    factor: float
    max_delay: Duration
    on: Sequence[str]
    memory_factor: float


class Spark(TypedDict, total=False):
    """`spark`."""

    mode: Literal["classic", "connect"]
    target: str | None
    deploy: Literal["client", "cluster"]
    reuse: Literal["release", "off"]
    event_log: bool
    conf: Mapping[str, str | int | float | bool]


class Limits(TypedDict, total=False):
    """`limits`. Sizes are text such as `512MiB`."""

    memory: str
    open_files: int
    disk: str
    log: str


class Publication(TypedDict, total=False):
    """One of `publishes`."""

    of: str
    key: str


class Keep(TypedDict, total=False):
    """`keep` of one of `datasets`."""

    versions: int
    partitions: Duration


class Dataset(TypedDict, total=False):
    """One of `datasets`."""

    partition: Literal["whole", "interval", "key"]
    keep: Duration | Keep
    fresh: Duration
    outside: bool | Sequence[str]
    readers: Sequence[str]


class Read(TypedDict, total=False):
    """One of `reads` of a pipeline."""

    dataset: str
    take: Literal["interval", "latest", "new"]
    last: Duration
    key: str
    optional: bool
    start: bool
    of: str


class GivenVersion(TypedDict, total=False):
    """A version of a dataset, for `Pipeline.test`."""

    path: Path
    """Folder with its files."""
    partition: str
    """Interval or key; empty by default: the whole dataset."""
    item: Any
    """Of a read with `of`: the item of the child run."""
    value: Mapping[str, Any]
    """Of a read with `of`: the result of the task that published it."""


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


class WaitFor(TypedDict, total=False):
    """One of `waits_for`."""

    s3: str
    file: str
    http: str
    status: int
    pipeline: str
    covers: Literal["data_interval"]
    last: Duration
    on_failed: Literal["wait", "fail"]


class ProgramOptions(TaskOptions, total=False):
    """Keys of a task that is no Python function, including what it runs, starts or waits for."""

    script: str
    command: Sequence[str | int | float | bool]
    jar: str
    main_class: str
    spec: str
    refresh: Sequence[str]
    full_refresh: Sequence[str]
    full_refresh_all: bool
    pipeline: str
    params: Mapping[str, str | int | float | bool]
    for_each: Sequence[Any] | Mapping[str, Sequence[Any] | str]
    max_parallel: int
    max_items: int
    prompt: str
    waits_for: Sequence[WaitFor]


class Schedule(TypedDict, total=False):
    """`schedule`, or one of `schedules`. `cron` is required."""

    cron: str
    timezone: str
    catchup: Literal["none", "latest", "all"]
    catchup_window: Duration
    data_interval: Duration
    parameters: Mapping[str, Any]
    calendar: str
    on_holidays: Literal["skip", "before", "after"]
    working_day: int


class Parameter(TypedDict, total=False):
    """One of `parameters`. `type` is required, and `default` or `required`."""

    type: Literal["string", "integer", "number", "boolean", "list"]
    items: Literal["string", "integer", "number", "boolean"]
    default: Any
    required: bool
    minimum: float
    maximum: float
    choices: Sequence[Any]
    description: str


class Concurrency(TypedDict, total=False):
    """`concurrency`. `limit` is required."""

    limit: int
    when_full: Literal["queue", "skip", "replace"]


class Start(TypedDict, total=False):
    """`start`, if it is not just `data`."""

    data: Literal["any", "all"]
    settle: str


class Webhook(TypedDict, total=False):
    """`webhook`. `secret` is required."""

    secret: str
    params: Mapping[str, str]


class Notify(TypedDict):
    """One of `notify`."""

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


class Defaults(TypedDict, total=False):
    """`defaults`."""

    timeout: Duration
    retries: Retries
    priority: Priority
    spark: Spark
    limits: Limits
    environment: str


class PipelineOptions(TypedDict, total=False):
    """Keys of a pipeline, except `schema`, `name` and `tasks`."""

    description: str
    tags: Sequence[str]
    runbook: str
    schedule: Schedule
    schedules: Mapping[str, Schedule]
    start: Literal["data"] | Start
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
