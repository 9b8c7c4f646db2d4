"""Builds a `PipelineSpec` from a checked definition, with defaults merged into tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from nimbus.config.checking import Strict
from nimbus.config.services import Notify
from nimbus.definition import models as m
from nimbus.domain.cluster.alerts import NotifyRule
from nimbus.domain.data.publications import Accepted, Publication, Read
from nimbus.domain.ids import DatasetName, PipelineName, TaskName
from nimbus.domain.pipelines.pipeline import (
    ENVIRONMENT_KINDS,
    SPARK_KINDS,
    Concurrency,
    DataStart,
    Limits,
    ParameterSpec,
    PipelineSpec,
    Retries,
    Schedule,
    SparkDeploy,
    SparkMode,
    SparkPlace,
    SparkReuse,
    TaskKind,
    TaskSpec,
    TriggerRule,
)
from nimbus.domain.pipelines.webhooks import Webhook
from nimbus.domain.runs.children import DEFAULT_MAX_ITEMS, ChildSpec
from nimbus.domain.starts.waits import OK, DataSource, DataWait, OnFailed, PipelineWait, WaitFor
from nimbus.templates.names import tasks_read, variables_in

_EVENT_LOG = "spark.eventLog.enabled"


def build_pipeline(model: m.PipelineKeys) -> PipelineSpec:
    """The pipeline that a definition describes."""
    tasks = tuple(build_task(name, task, model) for name, task in model.tasks.items())
    schedules = [_schedule(name, schedule) for name, schedule in schedules_of(model).items()]
    reads = tuple(_read(name, read, model.start) for name, read in model.reads.items())
    return replace(
        PipelineSpec(**_same(model, PipelineSpec)),
        tags=tuple(sorted(set(model.tags))),
        schedule=next(iter(schedules), None),
        more_schedules=tuple(schedules[1:]),
        concurrency=_concurrency(model),
        webhook=None if model.webhook is None else _webhook(model.webhook),
        notify=None if model.notify is None else notify_rules(model.notify),
        fresh={
            DatasetName(name): dataset.fresh
            for name, dataset in model.datasets.items()
            if dataset.fresh is not None
        },
        readers={
            DatasetName(name): tuple(dataset.readers)
            for name, dataset in model.datasets.items()
            if dataset.readers is not None
        },
        parameters={name: build_parameter(parameter) for name, parameter in model.parameters.items()},
        tasks=tasks,
        start=None if model.start is None else DataStart(when=model.start.data, settle=model.start.settle),
        reads=reads,
        accepts=_accepted(model),
        variables=variables_of(
            (*(read.key for read in reads), *(text for task in tasks for text in _texts(task)))
        ),
    )


def _same(model: Strict, spec: type) -> dict[str, Any]:
    """The values of keys that the domain has under the same name; what a definition leaves out is missing."""
    names = {field.name for field in fields(spec)}
    said = ((name, value) for name, value in model if name in names and value is not None)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in said}


def notify_rules(models: Iterable[Notify]) -> tuple[NotifyRule, ...]:
    """The notification rules of a definition or configuration."""
    return tuple(NotifyRule(on=tuple(sorted(set(rule.on))), to=rule.to) for rule in models)


def _texts(task: TaskSpec) -> Iterator[str]:
    """The texts of a task that may be templates."""
    yield from (
        *task.args,
        *task.spark_conf.values(),
        task.when,
        *(publication.key for publication in task.publishes),
    )
    given = {} if task.children is None else task.children.parameters
    yield from (value for value in given.values() if isinstance(value, str))


def variables_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Variables of the cluster that templates name."""
    return tuple(sorted({name for text in texts for name in variables_in(text)}))


def build_parameter(model: m.ParameterKeys) -> ParameterSpec:
    """One parameter."""
    return ParameterSpec(**{**_same(model, ParameterSpec), "default": model.default})


def build_retries(own: m.RetriesKeys, defaults: m.RetriesKeys) -> Retries:
    """Retries from the task's own keys, then the definition's defaults, then the defaults of Nimbus."""
    said = _said(own, defaults)
    if "on" in said:
        said["on"] = tuple(sorted(set(said["on"])))
    return Retries(**said)


def _limits(own: m.LimitsKeys, defaults: m.LimitsKeys) -> Limits | None:
    said = _said(own, defaults)
    units = {"memory": "memory_bytes", "open_files": "open_files", "disk": "disk_bytes", "log": "log_bytes"}
    return Limits(**{units[name]: value for name, value in said.items()}) if said else None


def _said(own: Strict, defaults: Strict) -> dict[str, Any]:
    return {
        name: value
        for model in (defaults, own)
        for name, value in model
        if name in model.model_fields_set and value is not None
    }


class SparkSettings(NamedTuple):
    """The Spark settings of a task."""

    mode: SparkMode = SparkMode.CLASSIC
    conf: Mapping[str, str] = MappingProxyType({})
    target: str | None = None
    deploy: SparkDeploy = SparkDeploy.CLIENT
    reuse: SparkReuse = SparkReuse.RELEASE

    @property
    def place(self) -> SparkPlace | None:
        """None: the worker's own Spark."""
        return None if self.target is None else SparkPlace(target=self.target, deploy=self.deploy)


def build_spark(kind: TaskKind, own: m.SparkKeys, defaults: m.SparkKeys) -> SparkSettings:
    """Merge a task's Spark keys with the defaults. The task's own keys win, also `target: null`.

    Kinds that start their own Spark are always classic.
    """
    usual = defaults.mode if kind in SPARK_KINDS else SparkMode.CLASSIC
    mode = own.mode or usual or SparkMode.CLASSIC
    event_log = defaults.event_log if own.event_log is None else own.event_log
    said = {} if event_log is None or mode is SparkMode.CONNECT else {_EVENT_LOG: str(event_log).lower()}
    return SparkSettings(
        mode=mode,
        conf={**defaults.conf, **said, **own.conf},
        target=own.target if "target" in own.model_fields_set else defaults.target,
        deploy=own.deploy or defaults.deploy or SparkDeploy.CLIENT,
        reuse=own.reuse or defaults.reuse or SparkReuse.RELEASE,
    )


def _concurrency(model: m.PipelineKeys) -> Concurrency | None:
    if any(task.keep for task in model.tasks.values()):
        return Concurrency(limit=1)  # the next run begins after the one before has ended
    return None if model.concurrency is None else Concurrency(**_same(model.concurrency, Concurrency))


def _webhook(model: m.WebhookKeys) -> Webhook:
    return Webhook(secret=model.secret, parameters=dict(model.params))


def schedules_of(model: m.PipelineKeys) -> Mapping[str, m.ScheduleKeys]:
    """The schedules of a definition by name; the name of `schedule` is empty."""
    return (model.schedules or {}) if model.schedule is None else {"": model.schedule}


def _schedule(name: str, model: m.ScheduleKeys) -> Schedule:
    return Schedule(name=name, **_same(model, Schedule))


def _arguments(model: m.TaskKeys) -> tuple[str, ...]:
    if model.command:
        return tuple(model.command[1:])
    if model.prompt is not None:
        return (model.prompt,)
    if model.waits_for is not None:
        return tuple(address for address in map(address_of, model.waits_for) if address is not None)
    if model.type is not TaskKind.SPARK_PIPELINE:
        return tuple(model.args)
    said = {"--refresh": model.refresh, "--full-refresh": model.full_refresh}
    chosen = (word for flag, names in said.items() if names for word in (flag, ",".join(names)))
    return ("run", *chosen, *(["--full-refresh-all"] if model.full_refresh_all else ()))


def source_of(model: m.WaitForKeys) -> DataSource | None:
    """The source of a wait for data; None: it waits for a pipeline."""
    return next((source for source in DataSource if getattr(model, source.value) is not None), None)


def address_of(model: m.WaitForKeys) -> str | None:
    """The address of a wait for data; None: it waits for a pipeline."""
    source = source_of(model)
    return None if source is None else str(getattr(model, source.value))


def _wait_for(model: m.WaitForKeys) -> WaitFor:
    source = source_of(model)
    if source is not None:
        return DataWait(source=source, status=model.status or OK)
    return PipelineWait(
        pipeline=PipelineName(model.pipeline or ""),
        last=model.last,
        on_failed=model.on_failed or OnFailed.WAIT,
    )


def _timeout(model: m.TaskKeys, defaults: m.DefaultsKeys) -> timedelta | None:
    if model.type is TaskKind.PIPELINE or model.keep:
        return None  # child runs have the timeout of their pipeline; a kept task is to run for ever
    return defaults.timeout if model.timeout is None and model.type.uses_worker else model.timeout


def build_children(model: m.TaskKeys) -> ChildSpec | None:
    """The child runs that a task starts; None: it starts none."""
    if model.type is not TaskKind.PIPELINE or model.pipeline is None:
        return None
    return ChildSpec(
        pipeline=PipelineName(model.pipeline),
        parameters=dict(model.params or {}),
        for_each={
            name: values if isinstance(values, str) else tuple(values)
            for name, values in (model.for_each or {}).items()
        },
        max_parallel=model.max_parallel,
        max_items=model.max_items or DEFAULT_MAX_ITEMS,
    )


def _read(name: str, model: m.ReadKeys, start: m.StartKeys | None) -> Read:
    return Read(
        name=name,
        dataset=DatasetName(model.dataset or name),
        latest=model.take == "latest",
        new=model.take == "new",
        last=model.last,
        key=model.key or "",
        optional=model.optional,
        of=None if model.of is None else TaskName(model.of),
        starts=start is not None and model.start and model.of is None,
    )


def _accepted(model: m.PipelineKeys) -> tuple[Accepted, ...]:
    return tuple(
        Accepted(
            dataset=DatasetName(name),
            partition=said.partition,
            keep=said.keep.partitions,
            keep_versions=said.keep.versions,
            senders=() if said.outside is True else tuple(said.outside),
        )
        for name, said in model.datasets.items()
        if said.outside
    )


def _publications(model: m.TaskKeys, pipeline: m.PipelineKeys) -> tuple[Publication, ...]:
    return tuple(
        Publication(
            dataset=DatasetName(name),
            partition=pipeline.datasets[name].partition,
            keep=pipeline.datasets[name].keep.partitions,
            keep_versions=pipeline.datasets[name].keep.versions,
            key=said.key or "",
            of=None if said.of is None else TaskName(said.of),
        )
        for name, said in model.publishes.items()
    )


def _both(own: Iterable[str], shared: Iterable[str]) -> tuple[str, ...]:
    """The patterns of a task: its own first."""
    return tuple(dict.fromkeys((*own, *shared)))


def _environment(model: m.TaskKeys, spark: SparkSettings, defaults: m.DefaultsKeys) -> str:
    """A default is for tasks that can have one."""
    if model.environment is not None:
        return model.environment
    return "" if environment_fault(model.type, spark) else defaults.environment or ""


def environment_fault(kind: TaskKind, spark: SparkSettings) -> str | None:
    """Why a task has no environment; None: it may have one."""
    if kind not in ENVIRONMENT_KINDS:
        return f"a task of type {kind} has no interpreter that could be another"
    if spark.mode is SparkMode.CONNECT:
        return "the client of Spark Connect runs in the worker's own interpreter: say mode: classic"
    if spark.place is not None and spark.place.deploy is SparkDeploy.CLUSTER:
        return "a driver in a cluster has what the target's conf names, such as spark.pyspark.python"
    return None


def build_task(name: str, model: m.TaskKeys, pipeline: m.PipelineKeys) -> TaskSpec:
    """One task."""
    defaults = pipeline.defaults
    spark = build_spark(model.type, model.spark, defaults.spark) if model.type.uses_spark else SparkSettings()
    args = _arguments(model)
    texts = (
        *args,
        *spark.conf.values(),
        model.when or "",
        *(text for text in (model.params or {}).values() if isinstance(text, str)),
        *(text for text in (model.for_each or {}).values() if isinstance(text, str)),
    )
    script = model.command[0] if model.command else model.script or model.jar or model.spec or ""
    return replace(
        TaskSpec(name=TaskName(name), kind=model.type, **{**_same(model, TaskSpec), "script": script}),
        args=args,
        reads=tuple(TaskName(read) for read in sorted(tasks_read("\n".join(texts)))),
        requirements={
            TaskName(need): asked
            for need, asked in model.requirements.items()
            if asked is not TriggerRule.SUCCEEDED
        },
        keeps_running=model.keep is not None,
        retries=build_retries(model.retries, defaults.retries),
        timeout=_timeout(model, defaults),
        priority=defaults.priority if model.priority is None else model.priority,
        spark_conf=dict(spark.conf),
        spark_mode=spark.mode,
        spark_reuse=spark.reuse,
        spark_place=spark.place,
        dependencies=_both(model.dependencies, pipeline.dependencies) if model.type.uses_wheels else (),
        jars=_both(model.jars, pipeline.jars) if model.type.uses_spark else (),
        limits=_limits(model.limits, defaults.limits),
        pools=dict(model.pool),
        waits_for=tuple(map(_wait_for, model.waits_for or ())),
        runs_on=tuple(sorted(set(model.runs_on))),
        environment=_environment(model, spark, defaults),
        uses=tuple(model.reads),
        publishes=_publications(model, pipeline),
        children=build_children(model),
    )
