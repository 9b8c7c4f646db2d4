"""Creates a run from a definition and the request of a command or a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from nimbus.domain.data.publications import Partitioning
from nimbus.domain.ids import BackfillId, PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.intervals import NO_INTERVAL, DataInterval, local
from nimbus.domain.pipelines.parameters import InvalidParametersError, resolve_parameters
from nimbus.domain.pipelines.pipeline import PipelineSpec, Priority, TaskSpec
from nimbus.domain.runs.children import Parent
from nimbus.domain.runs.lifecycle import started
from nimbus.domain.runs.run import DataCause, Run, RunCause
from nimbus.domain.runs.selection import Selection
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.wording import shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A requested run, before its release's definition is read."""

    id: RunId
    pipeline: PipelineName
    release: ReleaseDigest
    parameters: Mapping[str, Any]
    """Parameters as given: unchecked, without defaults."""
    logical_date: datetime
    data_interval: DataInterval | None = None
    cause: RunCause
    priority: Priority | None = None
    """None: the priority of the pipeline."""
    parent: Parent | None = None
    backfill: BackfillId | None = None
    asked_at: datetime
    variables: Mapping[str, str] = field(default_factory=dict)
    """All variables of the cluster."""
    submitted_by: str = ""
    selection: Selection | None = None
    """Which tasks are run; None: all."""
    causes: tuple[DataCause, ...] = ()
    schedule: str = ""
    """Name of the schedule that asks, or whose dates a backfill has."""
    is_early: bool = False
    """True: a schedule has asked before the run is due."""
    may_exist: bool = False
    """True: history must be asked whether there was a run of this id."""


def copied(draft: Draft, earlier: Run) -> Draft:
    """The draft of a run that copies what `earlier` was given."""
    keeps = draft.selection is not None and draft.selection.keeps_releases
    return replace(
        draft,
        parameters=earlier.parameters,
        logical_date=earlier.logical_date,
        data_interval=earlier.data_interval,
        priority=earlier.priority,
        release=earlier.release if keeps else draft.release,
    )


def new_run(spec: PipelineSpec, draft: Draft) -> Run:
    """A run that has not begun, pinned to its release. Its templates are not rendered yet.

    Raises InvalidParametersError: given parameters or dates do not fit the definition, or a data interval or
    a variable of the cluster that it needs is missing.
    """
    interval = draft.data_interval
    zone = ZoneInfo("UTC" if spec.schedule is None else spec.schedule.timezone)
    if spec.interval_files and interval is None:
        raise InvalidParametersError((f"{spec.interval_files[0]} needs a data interval: {NO_INTERVAL}",))
    waiter = next((task.name for task in spec.tasks if task.awaits_pipelines), None)
    if interval is None and waiter is not None:
        raise InvalidParametersError((f"task {waiter} waits for a pipeline: {NO_INTERVAL}",))
    publisher = _interval_publisher(spec)
    if interval is None and publisher is not None:
        raise InvalidParametersError((f"task {publisher} publishes a dataset by interval: {NO_INTERVAL}",))
    if publisher is not None and interval and (interval.start.microsecond or interval.end.microsecond):
        raise InvalidParametersError(
            (f"task {publisher} publishes its data interval, which must be of whole seconds",)
        )
    given = draft.parameters
    if draft.cause in (RunCause.SCHEDULE, RunCause.BACKFILL):
        own = next(
            (schedule.parameters for schedule in spec.schedules if schedule.name == draft.schedule), {}
        )
        given = {**own, **given}
    parameters = resolve_parameters(spec, given, strings=draft.parent is not None)
    run = Run(
        id=draft.id,
        pipeline=draft.pipeline,
        release=draft.release,
        parameters=parameters,
        logical_date=_local("logical_date", draft.logical_date, zone),
        data_interval=_local_interval(interval, zone),
        timezone=zone.key,
        created_at=draft.asked_at,
        cause=draft.cause,
        submitted_by=shortened(draft.submitted_by),
        backfill=draft.backfill,
        causes=draft.causes,
        priority=spec.priority if draft.priority is None else draft.priority,
        failure_strategy=spec.failure_strategy,
        python_path=spec.python_path,
        reads=spec.reads,
        timeout=spec.timeout,
        max_parallel_tasks=spec.max_parallel_tasks,
        notify=spec.notify,
        warn_after=spec.warn_after,
        expect=spec.expect,
        variables=_variables(spec, draft.variables),
        parent=draft.parent,
        tasks=Tasks(TaskRun(spec=_with_lists(task, parameters)) for task in spec.tasks),
    )
    return started(run, draft.asked_at)


def _with_lists(task: TaskSpec, parameters: Mapping[str, Any]) -> TaskSpec:
    """The task with the parameters in its `for_each`."""
    if task.children is None or not task.children.templates:
        return task
    return replace(task, children=task.children.with_parameters(parameters))


def _interval_publisher(spec: PipelineSpec) -> TaskName | None:
    """A task that publishes the data interval of its run."""
    by_interval = Partitioning.INTERVAL
    return next(
        (
            task.name
            for task in spec.tasks
            for publication in task.publishes
            if publication.partition is by_interval
        ),
        None,
    )


def _variables(spec: PipelineSpec, known: Mapping[str, str]) -> dict[str, str]:
    unknown = [name for name in spec.variables if name not in known]
    if unknown:
        raise InvalidParametersError(tuple(unknown_variable(name) for name in unknown))
    return {name: known[name] for name in spec.variables}


def unknown_variable(name: str) -> str:
    """The message about a variable that is not set."""
    return f"there is no variable vars.{name}: `nimbus var set {name} VALUE`"


def _local_interval(interval: DataInterval | None, zone: tzinfo) -> DataInterval | None:
    if interval is None:
        return None
    return DataInterval(
        start=_local("data_interval start", interval.start, zone),
        end=_local("data_interval end", interval.end, zone),
    )


def _local(name: str, moment: datetime, zone: tzinfo) -> datetime:
    """`moment` in the time zone of the pipeline's schedule; in UTC if it has none.

    Raises InvalidParametersError: the moment has no representable date in the zone.
    """
    try:
        return local(moment, zone)
    except OverflowError as exc:
        raise InvalidParametersError((f"{name} {moment.isoformat()} has no local date in {zone}",)) from exc
