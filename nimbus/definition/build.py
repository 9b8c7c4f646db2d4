"""Makes a `PipelineSpec` of a checked definition: defaults merged into tasks. Pure."""

from __future__ import annotations

from nimbus.definition.models import (
    DefaultsModel,
    DefinitionModel,
    ParameterModel,
    RetriesModel,
    ScheduleModel,
    SparkModel,
    TaskModel,
)
from nimbus.domain.ids import PipelineName, TaskName
from nimbus.domain.pipeline import (
    ParameterSpec,
    PipelineSpec,
    RetryPolicy,
    Schedule,
    SparkMode,
    TaskKind,
    TaskSpec,
)


def build_pipeline(model: DefinitionModel) -> PipelineSpec:
    """The pipeline that a definition describes."""
    return PipelineSpec(
        name=PipelineName(model.name),
        description=model.description,
        schedule=None if model.schedule is None else _schedule(model.schedule),
        failure_strategy=model.failure_strategy,
        priority=model.priority,
        timeout=model.timeout,
        parameters={name: build_parameter(parameter) for name, parameter in model.parameters.items()},
        files=tuple(model.files),
        dependencies=tuple(model.dependencies),
        python_path=tuple(model.python_path),
        tasks=tuple(_task(name, task, model.defaults) for name, task in model.tasks.items()),
    )


def build_parameter(model: ParameterModel) -> ParameterSpec:
    """One parameter."""
    return ParameterSpec(
        type=model.type,
        default=model.default,
        required=model.required,
        minimum=model.minimum,
        maximum=model.maximum,
        choices=tuple(model.choices or ()),
        description=model.description,
    )


def build_retries(own: RetriesModel, defaults: RetriesModel) -> RetryPolicy:
    """The task's own words first, the defaults' where it says nothing, then the house's."""
    said = {
        name: value
        for model in (defaults, own)
        for name, value in model
        if name in model.model_fields_set and value is not None
    }
    return RetryPolicy(**said)


def build_spark(own: SparkModel, defaults: SparkModel) -> tuple[SparkMode, dict[str, str]]:
    """The mode and the properties of a task with Spark: its own words win."""
    return own.mode or defaults.mode or SparkMode.CLASSIC, {**defaults.conf, **own.conf}


def _schedule(model: ScheduleModel) -> Schedule:
    return Schedule(cron=model.cron, timezone=model.timezone, catchup=model.catchup)


def _task(name: str, model: TaskModel, defaults: DefaultsModel) -> TaskSpec:
    mode, conf = SparkMode.CLASSIC, dict[str, str]()
    if model.type is not TaskKind.PYTHON:
        mode, conf = build_spark(model.spark, defaults.spark)
    return TaskSpec(
        name=TaskName(name),
        kind=model.type,
        script=model.script,
        args=tuple(model.args),
        needs=tuple(TaskName(need) for need in model.needs),
        retries=build_retries(model.retries, defaults.retries),
        timeout=defaults.timeout if model.timeout is None else model.timeout,
        priority=defaults.priority if model.priority is None else model.priority,
        spark_conf=conf,
        spark_mode=mode,
    )
