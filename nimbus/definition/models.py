"""The form of `pipeline.yaml`: keys and types. Rules between keys are in `nimbus.definition.rules`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import time
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from nimbus.config.checking import Strict
from nimbus.config.problems import SuggestingError
from nimbus.config.services import MAX_RULES, Notify
from nimbus.config.texts import fitting, link, plain_name, scalar_text, spark_key, variable_name
from nimbus.config.values import (
    AnyValue,
    Duration,
    Flag,
    Number,
    PositiveDuration,
    as_flag,
    clear,
    described,
    named,
    one_of,
    size_at_least,
)
from nimbus.definition.cron import check_cron, check_timezone
from nimbus.domain.data.publications import Partitioning
from nimbus.domain.ids import NAME_PATTERN
from nimbus.domain.pipelines.calendars import OnHolidays
from nimbus.domain.pipelines.pipeline import (
    MAX_MEMORY_SCALE,
    CatchUp,
    FailureClass,
    FailureStrategy,
    Isolation,
    Priority,
    SparkDeploy,
    SparkMode,
    SparkReuse,
    StartWhen,
    TaskKind,
    TriggerRule,
    WhenFull,
)
from nimbus.domain.runs.children import MAX_ITEMS, MAX_PARALLEL, SCALAR, parameter_in
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.waits import LONGEST_ADDRESS, OnFailed
from nimbus.domain.wording import REASON_BYTES, shortened
from nimbus.templates.lists import FILE_FORM, FORM, is_lookup

SCHEMA = 1
MAX_WAITS = 32
"""Limit of the conditions of one task."""
MAX_TASKS = 10_000
"""Limit of tasks. The plan of a run must fit into one transaction, see `nimbus.run_record`."""
MAX_DATASETS = 100
"""Limit of the datasets of a pipeline."""
MAX_READS = 32
"""Limit of the datasets that a pipeline reads."""
MAX_TAGS = 16
MAX_SCHEDULES = 20
"""Limit of the schedules of a pipeline."""
MAX_WORKING_DAYS = 23
"""Limit of `working_day`: no month has more working days in a week of five."""
MAX_PUBLISHED = 10
MAX_KEPT_VERSIONS = 100
"""Limit of the datasets of a task: one transaction publishes them."""

_DATASET = re.compile(r"\w[\w-]*(\.\w[\w-]*)*")
_LARGEST_VARIABLE = 1024
"""Limit in bytes of UTF-8: variables are in the order of each attempt."""
_LONGEST_VARIABLE_NAME = 128
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,126}")
_PARAMETER = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,62}")
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_TAKEN = frozenset(name for name in dir(dict) if not name.startswith("_"))
"""Names that cannot be parameters: in a template, `params.items` is the method of the mapping."""


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


def _libraries(what: str, ending: str) -> Callable[[object], str]:
    """A check of patterns of files with this ending."""

    def checked(value: object) -> str:
        pattern = _pattern(value)
        if not pattern.endswith(ending):
            raise SuggestingError(f"{pattern!r} must name {what}: it must end with {ending}")
        return pattern

    return checked


def _folder(value: object) -> str:
    if not isinstance(value, str) or not value.strip("/"):
        raise SuggestingError(f"must be a folder of the pipeline, not {described(value)}")
    return value if value == "." else _pattern(value[:-1] if value.endswith("/") else value)


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


_class_name = fitting(_CLASS, "{} is not the name of a class, such as com.example.Job")
_dataset = fitting(_DATASET, "{} is not the name of a dataset, such as daily or my_catalog.sales.daily")
_secret_name = fitting(
    _SECRET,
    "{} is not the name of a secret: 1 to 127 letters, digits, '_', '-' and '.', starting with a letter or a "
    "digit",
)


def _no_template(value: object, message: str) -> object:
    """Refuse a text that its author expects to be rendered."""
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        raise SuggestingError(message)
    return value


def _parameter_value(value: object) -> object:
    for item in value if isinstance(value, list) else (value,):
        _no_template(item, "a parameter takes no templates; write one in the argument of a task")
    return clear(value)


def _task_variable(value: object) -> str:
    name = variable_name(value)
    if len(name) > _LONGEST_VARIABLE_NAME:
        raise SuggestingError(f"a variable's name has {_LONGEST_VARIABLE_NAME} characters at most")
    meant = ("PATH", "HOME", "JAVA_HOME", "TMPDIR")
    if name.startswith(("NIMBUS_", "LD_", "SPARK_", "PYTHON", "PYSPARK_")) or name in meant:
        raise SuggestingError(f"{name} means something to Nimbus, Python, Spark or the system; take another")
    return name


def _plain_text(value: object) -> str:
    text = scalar_text("a variable", value)
    if len(text.encode(errors="replace")) > _LARGEST_VARIABLE:
        raise SuggestingError(f"a variable has {_LARGEST_VARIABLE} bytes at most; write it into a file")
    _no_template(text, "env takes no templates; give it to the task as an argument")
    if any(ord(letter) < ord(" ") and letter not in "\t\n\r" for letter in text):
        # JSON needs six bytes for each, and all variables go to a worker's executor in one message.
        raise SuggestingError("a variable has no control characters but tabs and line breaks")
    return text


def _no_infrastructure_failure(value: object) -> object:
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
        if isinstance(values, str) and (is_lookup(values) or parameter_in(values)):
            continue
        if not isinstance(values, list):
            forms = f"{{{{ params.NAME }}}}, {FORM} or {FILE_FORM}"
            what = f"{name} must be a list of values, {forms}, not {described(values)}"
            raise SuggestingError(what.strip())
        if not values:
            raise SuggestingError(f"{name} must have at least one value".strip())
        clear(values, () if name == SCALAR else (name,))
        for item in values:
            if not isinstance(item, str | int | float | bool):
                raise SuggestingError(f"{described(item)} must be a text, a number or a boolean")
            _no_template(item, "a value is no template; `params` can be templates, and use `item`")
    return lists


def _names_of_needs(value: object) -> object:
    return list(value) if isinstance(value, dict) else value


def _said_of_needs(value: object) -> object:
    return value if isinstance(value, dict) else {}


def _publishes(value: object) -> object:
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return {name: {} for name in value} if is_list else value  # type: ignore[attr-defined]  # a list


def _condition(value: object) -> str:
    value = as_flag(value)
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str) or "{{" not in value:
        raise SuggestingError(
            "must be true, false or a template such as {{ params.mode == 'full' }}, "
            f"not {described(value)}"
        )
    return value


def _runbook(value: str) -> str:
    if shortened(value) != value:  # every scheduler watches the catalog, which has it
        raise SuggestingError(f"has {REASON_BYTES} bytes at most; write it on a page, and give its URL")
    if "://" in value.partition(" ")[0]:
        link(value)
    return value


def _at_least_one(value: object) -> object:
    if value is None or value == {}:
        raise SuggestingError("a pipeline needs at least one task")
    if isinstance(value, dict) and len(value) > MAX_TASKS:
        raise SuggestingError(f"{len(value)} tasks are too many; {MAX_TASKS} is the most: split the pipeline")
    return value


_Scalar = str | int | float | bool
Name = Annotated[
    str,
    BeforeValidator(plain_name),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN.pattern}$"}),
]
ScheduleName = Annotated[Name, Field(max_length=40)]
"""It is the end of the ids of its runs."""
ParameterValue = Annotated[Any, BeforeValidator(_parameter_value)]
Argument = Annotated[
    str, BeforeValidator(partial(scalar_text, "an argument"), json_schema_input_type=_Scalar)
]
SparkConf = dict[
    Annotated[str, BeforeValidator(spark_key)],
    Annotated[str, BeforeValidator(partial(scalar_text, "a Spark property"), json_schema_input_type=_Scalar)],
]
TriggerRuleName = Annotated[TriggerRule, one_of(TriggerRule)]
FailureName = Annotated[FailureClass, one_of(FailureClass), BeforeValidator(_no_infrastructure_failure)]
PriorityName = Annotated[Priority, named(Priority)]
Datasets = Annotated[list[Annotated[str, BeforeValidator(_dataset)]], Field(min_length=1)]
Address = Annotated[str, Field(min_length=1, max_length=LONGEST_ADDRESS)]
Description = Annotated[str, Field(max_length=4096)]
Wheels = list[Annotated[str, BeforeValidator(_libraries("wheels", ".whl"))]]
Jars = list[Annotated[str, BeforeValidator(_libraries("jars", ".jar"))]]


class SparkKeys(Strict):
    """Spark settings of a task, or of all tasks."""

    mode: Annotated[SparkMode, one_of(SparkMode)] | None = None
    """`classic`: its own Spark; `connect`: a session on a Spark Connect server. Else as `defaults`,
    else `classic`."""
    target: Name | None = None
    """Name of a target, one of `spark.targets` in the configuration. Else as `defaults`,
    else the worker's own; null: the worker's own."""
    deploy: Annotated[SparkDeploy, one_of(SparkDeploy)] | None = None
    """`client`: the driver runs on the worker's host; `cluster`: inside the cluster of the target. Else
    as `defaults`, else `client`."""
    reuse: Annotated[SparkReuse, one_of(SparkReuse)] | None = None
    """Which attempts may have the JVM of an earlier one: `release`: those of the same release; `off`: none.
    Else as `defaults`, else `release`."""
    event_log: Flag | None = None
    """Keep Spark's event log. Else as `defaults`, else as in the worker's `spark_conf`."""
    conf: SparkConf = Field(default_factory=dict)
    """Spark properties, merged over those of `defaults`; values may hold templates."""


class RetriesKeys(Strict):
    """Retries of a failed task."""

    limit: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of retries after the task's own failures."""
    delay: Duration | None = None
    """Pause before the first retry; 10s by default."""
    factor: Annotated[Number, Field(ge=1, le=100)] | None = None
    """Factor of each further pause; 2 by default."""
    max_delay: PositiveDuration | None = None
    """Longest pause; 10m by default."""
    on: Annotated[list[FailureName], Field(min_length=1)] | None = None
    """Classes of failure after which the task is tried again; all but `analysis` by default."""
    memory_factor: Annotated[Number, Field(ge=1, le=MAX_MEMORY_SCALE)] | None = None
    """Factor on the memory of each retry after an out-of-memory failure; 1 by default."""


class ScheduleKeys(Strict):
    """When the leader starts runs."""

    cron: Annotated[str, BeforeValidator(_cron)]
    """Five fields, by Debian's rules, or `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`,
    `@yearly`, `@annually`."""
    timezone: Annotated[str, BeforeValidator(_timezone)] = "UTC"
    """IANA name of the zone that `cron` and the dates in templates are in."""
    catchup: Annotated[CatchUp, one_of(CatchUp)] = CatchUp.LATEST
    """Which fire times that passed without a leader start a run: none, the latest one or all of them."""
    catchup_window: PositiveDuration | None = None
    """Missed fire times that are older are skipped; none: no limit of age."""
    data_interval: PositiveDuration | None = None
    """Length of the data interval, which ends at the fire time; none: it starts at the fire time before."""
    parameters: dict[str, ParameterValue] = Field(default_factory=dict)
    """Parameters of its runs; the others have their defaults."""
    calendar: Name | None = None
    """A calendar: the file `calendars/NAME.yaml` of the release, or else one of the cluster; none: every day
    is like any other."""
    on_holidays: Annotated[OnHolidays, one_of(OnHolidays)] | None = None
    """What happens to a fire time on a day that `calendar` does not work: `skip`, or it moves to the last
    working day `before`, or to the next `after`; `skip` by default."""
    working_day: Annotated[int, Field(ge=-MAX_WORKING_DAYS, le=MAX_WORKING_DAYS)] | None = None
    """Fire only on this working day of each month: 1 is the first, -1 the last; none: on all."""


class ConcurrencyKeys(Strict):
    """How many runs of the pipeline may be under way at once."""

    limit: Annotated[int, Field(ge=1, le=100_000)]
    """How many runs may be under way at once, of all releases together."""
    when_full: Annotated[WhenFull, one_of(WhenFull)] = WhenFull.QUEUE
    """What a further run does: it waits in the queue; a scheduled one is skipped; a scheduled one
    replaces another."""


class ParameterKeys(Strict):
    """One parameter of a run."""

    type: Literal["string", "integer", "number", "boolean", "list"]
    """Type of the value."""
    items: Literal["string", "integer", "number", "boolean"] | None = None
    """Of a list: the type of its values, to which `minimum`, `maximum` and `choices` apply."""
    default: ParameterValue = None
    """Value of a run that gives none; not together with `required: true`."""
    required: Flag = False
    """True: a run must give a value."""
    minimum: Number | None = None
    """Least value of a number; none: any."""
    maximum: Number | None = None
    """Greatest value of a number; none: any."""
    choices: Annotated[list[ParameterValue], Field(min_length=1)] | None = None
    """Allowed values; none: any."""
    description: Description = ""
    """Description for people."""


class LimitsKeys(Strict):
    """What an attempt may use."""

    memory: Annotated[int, size_at_least(16 << 20)] | None = None
    """Memory of all processes of an attempt together; at least 16MiB. Else as `defaults`, else none."""
    open_files: Annotated[int, Field(ge=64, le=1 << 20)] | None = None
    """Open files of each process. Else as `defaults`, else none."""
    disk: Annotated[int, size_at_least(1 << 20)] | None = None
    """Disk space of an attempt's folder and its output; at least 1MiB. Else as `defaults`, else
    none."""
    log: Annotated[int, size_at_least(64 << 10)] | None = None
    """How much is kept of an attempt's log, from its beginning and its end; at least 64KiB. Else as
    `defaults`, else 64MiB."""


class DefaultsKeys(Strict):
    """Values of tasks without their own."""

    timeout: PositiveDuration | None = None
    """Longest time of an attempt, from the start of its code; none: no limit."""
    retries: RetriesKeys = Field(default_factory=RetriesKeys)
    """Retries of failed tasks."""
    priority: PriorityName = Priority.MEDIUM
    """Priority of tasks, among the ready tasks of a run."""
    spark: SparkKeys = Field(default_factory=SparkKeys)
    """Spark settings of tasks."""
    limits: LimitsKeys = Field(default_factory=LimitsKeys)
    """What an attempt may use."""
    environment: Name | None = None
    """Interpreter and Spark of tasks with a Python or Spark driver; none: the worker's own."""


class WaitForKeys(Strict):
    """What a task of type `wait` waits for: one of `s3`, `file`, `http`, `pipeline`."""

    s3: Address | None = None
    """An object, `s3://bucket/key`; with a `/` at the end, any object whose key begins so. May hold
    templates."""
    file: Address | None = None
    """Path of a file or folder on the host of the leader. May hold templates."""
    http: Address | None = None
    """A URL that is requested with GET. May hold templates."""
    status: Annotated[int, Field(ge=100, le=599)] | None = None
    """With `http`: the expected status; 200 by default."""
    pipeline: Name | None = None
    """Pipeline whose runs are waited for; `self`: this pipeline, for the interval before."""
    covers: Literal["data_interval"] | None = None
    """With `pipeline`: the time that its successful runs must cover; the data interval by default, unless
    `last` is set."""
    last: PositiveDuration | None = None
    """With `pipeline`: the time of this length before the interval's end, instead of the interval."""
    on_failed: Annotated[OnFailed, one_of(OnFailed)] | None = None
    """With `pipeline`: after a failed run, the wait goes on (`wait`, the default) or fails (`fail`)."""


def _keep(value: Any) -> Any:
    """A duration alone, as an object."""
    return value if isinstance(value, dict) else {"partitions": value}


class KeepKeys(Strict):
    """What retention and purges keep of a dataset. What a live run has pinned stays in any case."""

    versions: Annotated[int, Field(ge=1, le=MAX_KEPT_VERSIONS)] = 1
    """How many newest versions of each partition are kept."""
    partitions: PositiveDuration | None = None
    """Age of a partition after which all its versions may be deleted; none: it is kept."""


class DatasetKeys(Strict):
    """A dataset: the newest output of a task, which outlives the run, or the newest for each partition."""

    partition: Annotated[Partitioning, one_of(Partitioning)] = Partitioning.WHOLE
    """Division of the dataset: none (`whole`), by the data interval of the run (`interval`), or by a text
    that the task names (`key`)."""
    keep: Annotated[KeepKeys, BeforeValidator(_keep, json_schema_input_type=PositiveDuration | KeepKeys)] = (
        Field(default_factory=KeepKeys)
    )
    """How many versions of a partition are kept, and how long; a duration alone is that of `partitions`."""
    fresh: PositiveDuration | None = None
    """Age from which the newest data (the end of the last interval, or the last publication) are late."""
    outside: Flag | Annotated[list[Address], Field(min_length=1, max_length=20)] = False
    """True: operators publish versions of it by commands, for data that no task makes. A list: only these
    principals and teams do, and the owner of the pipeline."""
    readers: Annotated[list[Address], Field(max_length=20)] | None = None
    """Only these principals and teams, and their pipelines, read it, besides the owner of the pipeline; none:
    everybody does."""


class PublicationKeys(Strict):
    """What a task publishes of a dataset."""

    of: Name | None = None
    """Task whose output is published, when this one has checked it; one of `needs`. None: the task's own."""
    key: Argument | None = None
    """Of `partition: key`: the key of the partition; may hold templates."""


class ReadKeys(Strict):
    """A dataset that the pipeline reads. A run pins its versions when all of them are there."""

    dataset: Name | None = None
    """Name of the dataset; by default, the name of the read."""
    take: Literal["interval", "latest", "new"] = "interval"
    """Of a dataset by interval: the versions for the data interval of the run (`interval`), or the last one
    (`latest`). Of any dataset: what was published since the last success of the pipeline (`new`)."""
    last: PositiveDuration | None = None
    """Of a dataset by interval: the versions of this time before the end of the run's interval."""
    key: Argument | None = None
    """Of a dataset by key: the key; may hold templates. None: all keys."""
    optional: Flag = False
    """True: the run does not wait for it, and reads what is there. `new` never waits."""
    start: Flag = True
    """False: in a pipeline with `start: data`, changes of it start no run."""
    of: Name | None = None
    """Task of type `pipeline`: only what its child runs published, item by item."""


class TaskKeys(Strict):
    """One task. Which of the keys from `script` to `waits_for` it has depends on its type."""

    type: Annotated[TaskKind, one_of(TaskKind)]
    """Type of the task."""
    script: Annotated[str, BeforeValidator(_pattern)] | None = None
    """Of `pyspark`, `python`, `sql`: path in the release, ends with `.py` or `.sql`."""
    command: (
        Annotated[
            list[Argument],
            Field(min_length=1),
            BeforeValidator(_command),
        ]
        | None
    ) = None
    """Of `shell`: a program and its arguments; the arguments may hold templates."""
    jar: Annotated[str, BeforeValidator(_pattern)] | None = None
    """Of `spark_submit`: path in the release, ends with `.jar`."""
    main_class: Annotated[str, BeforeValidator(_class_name)] | None = None
    """Of `spark_submit`: the class whose `main` is run."""
    spec: Annotated[str, BeforeValidator(_pattern)] | None = None
    """Of `spark_pipeline`: path in the release, ends with `.yml` or `.yaml`."""
    refresh: Datasets | None = None
    """Of `spark_pipeline`: datasets to update; none: all."""
    full_refresh: Datasets | None = None
    """Of `spark_pipeline`: datasets to reset and compute again."""
    full_refresh_all: Flag | None = None
    """Of `spark_pipeline`: reset and compute all datasets again."""
    pipeline: Name | None = None
    """Of `pipeline`: the pipeline whose runs it starts."""
    params: dict[Annotated[str, BeforeValidator(_parameter_name)], AnyValue] | None = None
    """Of `pipeline`: parameters of these runs; may hold templates, with `item` of `for_each`."""
    for_each: (
        Annotated[
            dict[str, list[Any] | str],
            # one list gets the key SCALAR
            BeforeValidator(_lists, json_schema_input_type=list[Any] | str | dict[str, list[Any] | str]),
        ]
        | None
    ) = None
    """Of `pipeline`: a list, or a mapping of names to lists; a run for each value, or for each
    combination. A list may be a parameter, the result of a task, or a file of JSON lines in its output."""
    max_parallel: Annotated[int, Field(ge=1, le=MAX_PARALLEL)] | None = None
    """Of `pipeline`: how many of its runs are under way at once; none: all. With `max_items`
    above 1000 it is required."""
    max_items: Annotated[int, Field(ge=1, le=MAX_ITEMS)] | None = None
    """Of `pipeline`: with more values the task fails before it starts a run; 200 by default."""
    prompt: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    """Of `approval`: the question to the person; may hold templates."""
    waits_for: Annotated[list[WaitForKeys], Field(min_length=1, max_length=MAX_WAITS)] | None = None
    """Of `wait`: the conditions, which must all be met."""
    args: list[Argument] = Field(default_factory=list)
    """Arguments, as text; may hold templates."""
    needs: Annotated[
        list[str],
        BeforeValidator(_names_of_needs, json_schema_input_type=list[str] | dict[str, TriggerRuleName]),
    ] = Field(default_factory=list)
    """Tasks that must have ended before: a list (they succeeded), or a mapping of each to `succeeded`,
    `not_failed`, `failed`, `done`, `one_failed` or `none_failed_min_one_success`."""
    requirements: Annotated[SkipJsonSchema[dict[str, TriggerRuleName]], BeforeValidator(_said_of_needs)] = (
        Field(default_factory=dict, validation_alias="needs")
    )
    """Trigger rules, if `needs` is a mapping; empty: it is a list."""
    when: Annotated[str, BeforeValidator(_condition, json_schema_input_type=str | bool)] | None = None
    """Condition for running the task: true, false or a template; none: no condition."""
    allow_failure: Flag = False
    """True: the run can succeed even if the task fails."""
    keep: Literal["running"] | None = None
    """Of `pyspark` and `python`: `running`: the task is started again whenever it ends, until its run is
    stopped; none: it ends."""
    retries: RetriesKeys = Field(default_factory=RetriesKeys)
    """Retries; each key alone overrides that of `defaults`."""
    timeout: PositiveDuration | None = None
    """Longest time of an attempt, from the start of its code; if no worker runs the task, longest time
    of its wait. Else as `defaults`, else none."""
    priority: PriorityName | None = None
    """Priority among the ready tasks of a run. Else as `defaults`, else `medium`."""
    spark: SparkKeys = Field(default_factory=SparkKeys)
    """Spark settings; each key alone overrides that of `defaults`."""
    dependencies: Wheels = Field(default_factory=list)
    """Patterns of wheels that the task imports, in addition to those of the pipeline, and before them."""
    jars: Jars = Field(default_factory=list)
    """Patterns of jars for the task's Spark, in addition to those of the pipeline, and before them."""
    isolation: Annotated[Isolation, one_of(Isolation)] | None = None
    """`pooled`: a fork of the worker's executor; `isolated`: its own process. By default, `pooled` for
    `python`, else `isolated`."""
    limits: LimitsKeys = Field(default_factory=LimitsKeys)
    """What an attempt may use; each key alone overrides that of `defaults`."""
    start_after: PositiveDuration | None = None
    """Shortest time from when its needs are met to its first attempt; none: at once."""
    queue_timeout: PositiveDuration | None = None
    """Longest wait for room before each attempt, after which it fails; none: no limit."""
    warn_after: PositiveDuration | None = None
    """How long an attempt or a wait may last before a `late` alert; none: no alert."""
    secrets: Annotated[
        dict[
            Annotated[str, BeforeValidator(_task_variable)],
            Annotated[str, BeforeValidator(_secret_name)],
        ],
        Field(max_length=32),
    ] = Field(default_factory=dict)
    """Names of secrets, by the environment variable that gets the value."""
    env: Annotated[
        dict[Annotated[str, BeforeValidator(_task_variable)], Annotated[str, BeforeValidator(_plain_text)]],
        Field(max_length=32),
    ] = Field(default_factory=dict)
    """Environment variables of the task."""
    runs_on: Annotated[list[Name], Field(max_length=16)] = Field(default_factory=list)
    """Labels of which its worker must have all."""
    environment: Name | None = None
    """Interpreter and Spark of its driver, one of `worker.environments`; none: that of `defaults`."""
    reads: Annotated[list[Name], Field(max_length=MAX_READS)] = Field(default_factory=list)
    """Datasets that it reads, of those in `reads` of the pipeline; it begins when they are there."""
    publishes: Annotated[
        dict[Name, PublicationKeys],
        BeforeValidator(_publishes, json_schema_input_type=list[Name] | dict[Name, PublicationKeys]),
        Field(max_length=MAX_PUBLISHED),
    ] = Field(default_factory=dict)
    """Datasets that its success publishes: a list of names, or a mapping of each to `of` and `key`."""
    pool: Annotated[dict[Name, Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=16)] = Field(
        default_factory=dict
    )
    """How much an open attempt takes of each pool."""


class WebhookKeys(Strict):
    """A signed request that starts a run."""

    secret: Annotated[str, BeforeValidator(_secret_name)]
    """Name of the secret that signs requests; it must be one of the schedulers' secrets."""
    params: dict[str, str] = Field(default_factory=dict)
    """Parameters of the run, each a place in the JSON body such as `{{ body.region }}`."""


class StartKeys(Strict):
    """How changes of the datasets that a pipeline reads start its runs."""

    data: Annotated[StartWhen, one_of(StartWhen)] = StartWhen.ANY
    """Without a schedule: start when `any` or `all` of them have changed since the last start."""
    settle: PositiveDuration | None = None
    """How long nothing must have changed before a run starts; none: it starts at once."""


def _start(value: object) -> object:
    return {} if value == "data" else value


class PipelineKeys(Strict):
    """A whole definition."""

    form: Annotated[int, BeforeValidator(_schema, json_schema_input_type=Literal[1]), Field(alias="schema")]
    """Form of the file."""
    name: Name
    """Name of the pipeline."""
    description: Description = ""
    """Description for people."""
    tags: Annotated[list[Name], Field(max_length=MAX_TAGS)] = Field(default_factory=list)
    """Words by which lists and selections find it."""
    runbook: Annotated[str, AfterValidator(_runbook)] = ""
    """What to do when it fails, as a URL or a text."""
    schedule: ScheduleKeys | None = None
    """When the leader starts runs; none: runs start on request only."""
    schedules: (
        Annotated[dict[ScheduleName, ScheduleKeys], Field(min_length=1, max_length=MAX_SCHEDULES)] | None
    ) = None
    """Several schedules, by name, instead of `schedule`. Backfills and `deadline` follow the first."""
    start: Annotated[
        StartKeys | None, BeforeValidator(_start, json_schema_input_type=StartKeys | Literal["data"] | None)
    ] = None
    """`data`: changes of what it reads start runs, and fire times of `schedule` are only the ends of data
    intervals; none: the schedule starts runs."""
    failure_strategy: Annotated[FailureStrategy, one_of(FailureStrategy)] = FailureStrategy.END
    """After a failure: only clean-up still starts (`end`), or every task that does not need the failed one
    goes on (`continue`)."""
    priority: PriorityName = Priority.MEDIUM
    """Priority of its runs."""
    timeout: PositiveDuration | None = None
    """Longest time of a run, from its start; none: no limit."""
    concurrency: ConcurrencyKeys | None = None
    """How many runs may be under way at once; none: any number."""
    webhook: WebhookKeys | None = None
    """A signed request that starts a run; none: there is no webhook."""
    max_parallel_tasks: Annotated[int, Field(ge=1, le=MAX_TASKS)] | None = None
    """How many tasks of one run may be open at once; none: any number."""
    notify: Annotated[list[Notify], Field(max_length=MAX_RULES)] | None = None
    """Which events raise alerts for which target; none: as `alerts.notify` of the configuration."""
    warn_after: PositiveDuration | None = None
    """How long a run may be under way before a `late` alert; none: no alert."""
    expect: PositiveDuration | None = None
    """Time from the request of a run to its expected end, after which a `late` alert is raised; none: no
    alert."""
    deadline: Annotated[time, BeforeValidator(_time_of_day, json_schema_input_type=str)] | None = None
    """Time of day, such as "07:00", by which the run of the last fire time must have succeeded; else a
    `late` alert is raised; none: no alert."""
    parameters: dict[Annotated[str, BeforeValidator(_parameter_name)], ParameterKeys] = Field(
        default_factory=dict
    )
    """Parameters of a run, by name."""
    files: Annotated[list[Annotated[str, BeforeValidator(_pattern)]], Field(min_length=1)] = Field(
        default_factory=lambda: ["**/*"]
    )
    """Patterns of the release's files, relative to the folder; `pipeline.yaml` is always in."""
    dependencies: Wheels = Field(default_factory=list)
    """Patterns of wheels that all tasks can import."""
    jars: Jars = Field(default_factory=list)
    """Patterns of jars for the Spark of all tasks."""
    python_path: list[Annotated[str, BeforeValidator(_folder)]] = Field(default_factory=list)
    """Folders of the release that every task can import from."""
    datasets: Annotated[dict[Name, DatasetKeys], Field(max_length=MAX_DATASETS)] = Field(default_factory=dict)
    """Datasets that its tasks publish, by name."""
    reads: Annotated[dict[Name, ReadKeys], Field(max_length=MAX_READS)] = Field(default_factory=dict)
    """Datasets that its tasks read, by the name under which they find them."""
    defaults: DefaultsKeys = Field(default_factory=DefaultsKeys)
    """Values of tasks without their own."""
    tasks: Annotated[dict[Name, TaskKeys], BeforeValidator(_at_least_one)]
    """Tasks by name."""
