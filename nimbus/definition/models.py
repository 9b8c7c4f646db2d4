"""The form of `pipeline.yaml`: keys and types. What holds between them is in `nimbus.definition.rules`."""

from __future__ import annotations

import re
from datetime import time
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from nimbus.config.alert_targets import MOST_RULES, Notify
from nimbus.config.checking import Strict
from nimbus.config.problems import SuggestingError
from nimbus.config.texts import plain_name, scalar_text, spark_key, variable_name
from nimbus.config.values import Duration, PositiveDuration, described, named, one_of, size_at_least
from nimbus.definition.cron import check_cron, check_timezone
from nimbus.domain.children import MOST_ITEMS, SCALAR
from nimbus.domain.concurrency import WhenFull
from nimbus.domain.failures import FailureClass
from nimbus.domain.ids import NAME_PATTERN
from nimbus.domain.pipeline import (
    MOST_MEMORY_SCALE,
    CatchUp,
    FailureStrategy,
    Isolation,
    Priority,
    Requirement,
    SparkDeploy,
    SparkMode,
    TaskKind,
)
from nimbus.domain.run import Outcome
from nimbus.domain.waits import LONGEST_ADDRESS, OnFailed
from nimbus.templates.lists import FORM, is_lookup

SCHEMA = 1
MOST_WAITS = 32
"""Of one task."""
MOST_TASKS = 10_000
"""The plan of a run must fit into one transaction, see `nimbus.run_record`."""

_DATASET = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
_LARGEST_VARIABLE = 1024
"""Bytes in UTF-8: it is in the order of each attempt."""
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,126}")
_PARAMETER = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,62}")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_TAKEN = frozenset(name for name in dir(dict) if not name.startswith("_"))
"""In a template `params.items` is the method of the mapping, not a parameter."""


def _schema(value: object) -> object:
    if value != SCHEMA or isinstance(value, bool):
        raise SuggestingError(
            f"must be {SCHEMA}, the only form that this version reads, not {described(value)}"
        )
    return value


def _parameter_name(value: object) -> str:
    if not isinstance(value, str) or not _PARAMETER.fullmatch(value):
        raise SuggestingError(
            f"{described(value)} is not a parameter's name: letters, digits and _, starting with a letter"
        )
    if value in _TAKEN:
        raise SuggestingError(f"{value!r} means something else in templates; take another name")
    return value


def _cron(value: object) -> object:
    if isinstance(value, str):
        check_cron(value)
    return value


def _timezone(value: object) -> object:
    if isinstance(value, str):
        check_timezone(value)
    return value


def _time_of_day(value: object) -> object:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise SuggestingError(f'must be a time of a day such as "07:00", not {described(value)}')
    return time.fromisoformat(value)


def _pattern(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise SuggestingError(f"must be a pattern of file names, not {described(value)}")
    if value.startswith("/") or "\\" in value or {"", "..", "."} & set(value.split("/")):
        raise SuggestingError(
            f"{value!r} must be relative to the pipeline's folder, with / between parts, without '.' and '..'"
        )
    return value


def _wheels(value: object) -> str:
    pattern = _pattern(value)
    if not pattern.endswith(".whl"):
        raise SuggestingError(f"{pattern!r} must name wheels: it must end with .whl")
    return pattern


def _folder(value: object) -> str:
    if not isinstance(value, str) or not value.strip("/"):
        raise SuggestingError(f"must be a folder of the pipeline, not {described(value)}")
    return value if value == "." else _pattern(value[:-1] if value.endswith("/") else value)


def _argument(value: object) -> str:
    return scalar_text("an argument", value)


def _command(value: object) -> object:
    if isinstance(value, str):
        raise SuggestingError(
            "must be a list of a program and its arguments; "
            "for a text that a shell reads, write [sh, -ec, '...']"
        )
    if isinstance(value, list) and value:
        _program(value[0])
    return value


def _program(value: object) -> None:
    if not isinstance(value, str) or not value or "{{" in value or "{%" in value:
        raise SuggestingError(f"must begin with the name or the path of a program, not {described(value)}")
    if "/" in value and not value.startswith("/"):
        _pattern(value.removeprefix("./"))


def _class_name(value: object) -> str:
    if not isinstance(value, str) or not _CLASS.fullmatch(value):
        raise SuggestingError(f"{described(value)} is not the name of a class, such as com.example.Job")
    return value


def _dataset(value: object) -> str:
    if not isinstance(value, str) or not _DATASET.fullmatch(value):
        raise SuggestingError(
            f"{described(value)} is not the name of a dataset, such as daily or my_catalog.sales.daily"
        )
    return value


def _spark_value(value: object) -> str:
    return scalar_text("a Spark property", value)


def _task_variable(value: object) -> str:
    name = variable_name(value)
    meant = ("PATH", "HOME", "JAVA_HOME", "TMPDIR")
    if name.startswith(("NIMBUS_", "LD_", "SPARK_", "PYTHON", "PYSPARK_")) or name in meant:
        raise SuggestingError(f"{name} means something to Nimbus, Python, Spark or the system; take another")
    return name


def _plain_text(value: object) -> str:
    text = scalar_text("a variable", value)
    if len(text.encode(errors="replace")) > _LARGEST_VARIABLE:
        raise SuggestingError(f"a variable has {_LARGEST_VARIABLE} bytes at most; write it into a file")
    if "{{" in text or "{%" in text:
        raise SuggestingError("env takes no templates; give it to the task as an argument")
    return text


def _secret_name(value: object) -> str:
    if not isinstance(value, str) or not _SECRET.fullmatch(value):
        raise SuggestingError(
            f"{described(value)} is not the name of a secret: 1 to 127 letters, digits, '_', '-' and '.', "
            "starting with a letter or a digit"
        )
    return value


def _no_mishap(value: object) -> object:
    if value in [outcome.value for outcome in Outcome if outcome.is_infrastructure]:
        raise SuggestingError(f"a task is always tried again after {value!r}; remove it")
    return value


def _lists(value: object) -> object:
    """`for_each` as a mapping of lists."""
    lists = {SCALAR: value} if isinstance(value, list | str) else value
    if not isinstance(lists, dict) or not lists:
        raise SuggestingError(f"must be a list, or a mapping of names to lists, not {described(value)}")
    for name, values in lists.items():
        if name != SCALAR:
            _parameter_name(name)
        if isinstance(values, str) and is_lookup(values):
            continue
        if not isinstance(values, list):
            what = f"{name} must be a list of values or {FORM}, not {described(values)}"
            raise SuggestingError(what.strip())
        if not values:
            raise SuggestingError(f"{name} must have at least one value".strip())
        for one in values:
            if not isinstance(one, str | int | float | bool):
                raise SuggestingError(f"{described(one)} must be a text, a number or a boolean")
            if isinstance(one, str) and "{{" in one:
                raise SuggestingError("a value is no template; `params` can be templates, and use `item`")
    return lists


def _names_of_needs(value: object) -> object:
    return list(value) if isinstance(value, dict) else value


def _said_of_needs(value: object) -> object:
    return value if isinstance(value, dict) else {}


def _condition(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str) or "{{" not in value:
        raise SuggestingError(
            "must be true, false or a template such as {{ params.mode == 'full' }}, "
            f"not {described(value)}"
        )
    return value


def _at_least_one(value: object) -> object:
    if value is None or value == {}:
        raise SuggestingError("a pipeline needs at least one task")
    if isinstance(value, dict) and len(value) > MOST_TASKS:
        raise SuggestingError(
            f"{len(value)} tasks are too many; {MOST_TASKS} is the most: split the pipeline"
        )
    return value


_Scalar = str | int | float | bool
Name = Annotated[
    str,
    BeforeValidator(plain_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN.pattern}$"}),
]
Argument = Annotated[str, BeforeValidator(_argument, json_schema_input_type=_Scalar)]
SparkConf = dict[
    Annotated[str, BeforeValidator(spark_key)],
    Annotated[str, BeforeValidator(_spark_value, json_schema_input_type=_Scalar)],
]
RequirementName = Annotated[Requirement, one_of(Requirement)]
FailureName = Annotated[FailureClass, one_of(FailureClass), BeforeValidator(_no_mishap)]
PriorityName = Annotated[Priority, named(Priority)]
Datasets = Annotated[list[Annotated[str, BeforeValidator(_dataset)]], Field(min_length=1)]
Address = Annotated[str, Field(min_length=1, max_length=LONGEST_ADDRESS)]
Description = Annotated[str, Field(max_length=4096)]


class SparkModel(Strict):
    """Of a task, or of all."""

    mode: Annotated[SparkMode, one_of(SparkMode)] | None = None
    target: Name | None = None
    deploy: Annotated[SparkDeploy, one_of(SparkDeploy)] | None = None
    event_log: bool | None = None
    conf: SparkConf = Field(default_factory=dict)


class RetriesModel(Strict):
    """How often a failed task is tried again."""

    limit: Annotated[int, Field(ge=0, le=100)] = 0
    delay: Duration | None = None
    factor: Annotated[float, Field(ge=1, le=100)] | None = None
    max_delay: PositiveDuration | None = None
    on: Annotated[list[FailureName], Field(min_length=1)] | None = None
    memory_factor: Annotated[float, Field(ge=1, le=MOST_MEMORY_SCALE)] | None = None


class ScheduleModel(Strict):
    """When runs start by themselves."""

    cron: Annotated[str, BeforeValidator(_cron)]
    timezone: Annotated[str, BeforeValidator(_timezone)] = "UTC"
    catchup: Annotated[CatchUp, one_of(CatchUp)] = CatchUp.LATEST
    catchup_window: PositiveDuration | None = None
    data_interval: PositiveDuration | None = None


class ConcurrencyModel(Strict):
    """How many runs of the pipeline may be under way at once."""

    limit: Annotated[int, Field(ge=1, le=100_000)]
    when_full: Annotated[WhenFull, one_of(WhenFull)] = WhenFull.QUEUE


class ParameterModel(Strict):
    """One parameter of a run."""

    type: Literal["string", "integer", "number", "boolean"]
    default: Any = None
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: Annotated[list[Any], Field(min_length=1)] | None = None
    description: Description = ""


class LimitsModel(Strict):
    """What an attempt may use."""

    memory: Annotated[int, size_at_least(16 << 20)] | None = None
    open_files: Annotated[int, Field(ge=64, le=1 << 20)] | None = None
    disk: Annotated[int, size_at_least(1 << 20)] | None = None
    log: Annotated[int, size_at_least(64 << 10)] | None = None


class DefaultsModel(Strict):
    """What tasks have that do not say otherwise."""

    timeout: PositiveDuration | None = None
    retries: RetriesModel = Field(default_factory=RetriesModel)
    priority: PriorityName = Priority.MEDIUM
    spark: SparkModel = Field(default_factory=SparkModel)
    limits: LimitsModel = Field(default_factory=LimitsModel)


class WaitForModel(Strict):
    """What a task of type `wait` waits for: one of `s3`, `file`, `http`, `pipeline`."""

    s3: Address | None = None
    file: Address | None = None
    http: Address | None = None
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    pipeline: Name | None = None
    covers: Literal["data_interval"] | None = None
    last: PositiveDuration | None = None
    on_failed: Annotated[OnFailed, one_of(OnFailed)] | None = None


class TaskModel(Strict):
    """One task. Which of the keys from `script` to `waits_for` it has depends on its type."""

    type: Annotated[TaskKind, one_of(TaskKind)]
    script: Annotated[str, BeforeValidator(_pattern)] | None = None
    command: (
        Annotated[
            list[Argument],
            Field(min_length=1),
            BeforeValidator(_command),
        ]
        | None
    ) = None
    jar: Annotated[str, BeforeValidator(_pattern)] | None = None
    main_class: Annotated[str, BeforeValidator(_class_name)] | None = None
    spec: Annotated[str, BeforeValidator(_pattern)] | None = None
    refresh: Datasets | None = None
    full_refresh: Datasets | None = None
    full_refresh_all: bool | None = None
    pipeline: Name | None = None
    params: dict[Annotated[str, BeforeValidator(_parameter_name)], Any] | None = None
    for_each: (
        Annotated[
            dict[str, list[Any] | str],
            BeforeValidator(_lists, json_schema_input_type=list[Any] | str | dict[str, list[Any] | str]),
        ]
        | None
    ) = None
    """One list has the key `SCALAR`."""
    max_parallel: Annotated[int, Field(ge=1, le=MOST_ITEMS)] | None = None
    max_items: Annotated[int, Field(ge=1, le=MOST_ITEMS)] | None = None
    prompt: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    waits_for: Annotated[list[WaitForModel], Field(min_length=1, max_length=MOST_WAITS)] | None = None
    args: list[Argument] = Field(default_factory=list)
    needs: Annotated[
        list[str],
        BeforeValidator(_names_of_needs, json_schema_input_type=list[str] | dict[str, RequirementName]),
    ] = Field(default_factory=list)
    requirements: Annotated[SkipJsonSchema[dict[str, RequirementName]], BeforeValidator(_said_of_needs)] = (
        Field(default_factory=dict, validation_alias="needs")
    )
    """What a mapping says of each; empty: `needs` is a list."""
    when: Annotated[str, BeforeValidator(_condition, json_schema_input_type=str | bool)] | None = None
    allow_failure: bool = False
    retries: RetriesModel = Field(default_factory=RetriesModel)
    timeout: PositiveDuration | None = None
    priority: PriorityName | None = None
    spark: SparkModel = Field(default_factory=SparkModel)
    isolation: Annotated[Isolation, one_of(Isolation)] | None = None
    limits: LimitsModel = Field(default_factory=LimitsModel)
    start_after: PositiveDuration | None = None
    queue_timeout: PositiveDuration | None = None
    warn_after: PositiveDuration | None = None
    secrets: Annotated[
        dict[
            Annotated[str, BeforeValidator(_task_variable)],
            Annotated[str, BeforeValidator(_secret_name)],
        ],
        Field(max_length=32),
    ] = Field(default_factory=dict)
    """Names of secrets, by the environment variable that each goes into."""
    env: Annotated[
        dict[Annotated[str, BeforeValidator(_task_variable)], Annotated[str, BeforeValidator(_plain_text)]],
        Field(max_length=32),
    ] = Field(default_factory=dict)
    """Environment variables of the task."""
    runs_on: Annotated[list[Name], Field(max_length=16)] = Field(default_factory=list)
    pool: Annotated[dict[Name, Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=16)] = Field(
        default_factory=dict
    )


class WebhookModel(Strict):
    """A signed request that starts a run."""

    secret: Annotated[str, BeforeValidator(_secret_name)]
    params: dict[str, str] = Field(default_factory=dict)


class DefinitionModel(Strict):
    """A whole definition."""

    form: Annotated[int, BeforeValidator(_schema, json_schema_input_type=Literal[1]), Field(alias="schema")]
    name: Name
    description: Description = ""
    schedule: ScheduleModel | None = None
    failure_strategy: Annotated[FailureStrategy, one_of(FailureStrategy)] = FailureStrategy.END
    priority: PriorityName = Priority.MEDIUM
    timeout: PositiveDuration | None = None
    concurrency: ConcurrencyModel | None = None
    webhook: WebhookModel | None = None
    max_parallel_tasks: Annotated[int, Field(ge=1, le=MOST_TASKS)] | None = None
    notify: Annotated[list[Notify], Field(max_length=MOST_RULES)] | None = None
    warn_after: PositiveDuration | None = None
    expect: PositiveDuration | None = None
    deadline: Annotated[time, BeforeValidator(_time_of_day, json_schema_input_type=str)] | None = None
    parameters: dict[Annotated[str, BeforeValidator(_parameter_name)], ParameterModel] = Field(
        default_factory=dict
    )
    files: Annotated[list[Annotated[str, BeforeValidator(_pattern)]], Field(min_length=1)] = Field(
        default_factory=lambda: ["**/*"]
    )
    dependencies: list[Annotated[str, BeforeValidator(_wheels)]] = Field(default_factory=list)
    python_path: list[Annotated[str, BeforeValidator(_folder)]] = Field(default_factory=list)
    defaults: DefaultsModel = Field(default_factory=DefaultsModel)
    tasks: Annotated[dict[Name, TaskModel], BeforeValidator(_at_least_one)]
