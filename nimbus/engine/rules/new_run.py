"""A new run, from a pipeline's definition: parameters resolved and templates rendered once, then kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from nimbus.definition.rendering import render_tasks
from nimbus.domain.ids import ReleaseDigest, RunId
from nimbus.domain.lifecycle import settle
from nimbus.domain.parameters import InvalidParametersError, resolve_parameters
from nimbus.domain.pipeline import PipelineSpec, Priority
from nimbus.domain.run import Run, RunCause, TaskRun


def new_run(
    spec: PipelineSpec,
    release: ReleaseDigest,
    *,
    run_id: RunId,
    parameters: Mapping[str, Any],
    logical_date: datetime,
    cause: RunCause,
    priority: Priority | None,
    now: datetime,
) -> Run:
    """A run that has started nothing yet, pinned to `release`.

    Raises:
        InvalidParametersError: given parameters, or the logical date, do not fit the definition.
        TemplateError: a task's argument cannot be rendered.
    """
    resolved = resolve_parameters(spec, parameters)
    logical_date = _local(spec, logical_date)
    tasks = render_tasks(spec, run_id=run_id, logical_date=logical_date, parameters=resolved)
    run = Run(
        id=run_id,
        pipeline=spec.name,
        release=release,
        parameters=resolved,
        logical_date=logical_date,
        created_at=now,
        cause=cause,
        priority=spec.priority if priority is None else priority,
        failure_strategy=spec.failure_strategy,
        python_path=spec.python_path,
        deadline=None if spec.timeout is None else now + spec.timeout,
        tasks={task.name: TaskRun(spec=task) for task in tasks},
    )
    return settle(run, now)


def _local(spec: PipelineSpec, moment: datetime) -> datetime:
    """`moment` in the time zone of the pipeline's schedule; in UTC if it has none.

    With the zone's offset, in whole minutes, and not the zone: a record keeps no more, and a date of a named
    zone within a repeated hour equals no date that was read.

    Raises:
        InvalidParametersError: the zone's calendar does not reach that far.
    """
    zone = ZoneInfo("UTC" if spec.schedule is None else spec.schedule.timezone)
    try:
        offset = moment.astimezone(zone).utcoffset() or timedelta(0)
        return moment.astimezone(timezone(timedelta(minutes=round(offset / timedelta(minutes=1)))))
    except OverflowError as exc:
        raise InvalidParametersError(
            (f"logical_date {moment.isoformat()} has no local date in {zone}",)
        ) from exc
