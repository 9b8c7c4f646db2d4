"""A run that a command or a schedule asks for, and how a definition makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId
from nimbus.domain.lifecycle import settle, started
from nimbus.domain.parameters import InvalidParametersError, resolve_parameters
from nimbus.domain.pipeline import PipelineSpec, Priority
from nimbus.domain.run import Run, RunCause, TaskRun
from nimbus.domain.tasks import Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is known of a run before its release's definition is read."""

    id: RunId
    pipeline: PipelineName
    release: ReleaseDigest
    parameters: Mapping[str, Any]
    """As they were given: unchecked, without defaults."""
    logical_date: datetime
    cause: RunCause
    priority: Priority | None = None
    """None: the pipeline's."""
    layout: int
    asked_at: datetime


def new_run(spec: PipelineSpec, draft: Draft) -> Run:
    """A run that has started nothing yet, pinned to its release; its arguments are as they were written.

    Raises:
        InvalidParametersError: given parameters, or the logical date, do not fit the definition.
    """
    run = Run(
        id=draft.id,
        pipeline=draft.pipeline,
        release=draft.release,
        parameters=resolve_parameters(spec, draft.parameters),
        logical_date=_local(spec, draft.logical_date),
        created_at=draft.asked_at,
        cause=draft.cause,
        priority=spec.priority if draft.priority is None else draft.priority,
        failure_strategy=spec.failure_strategy,
        python_path=spec.python_path,
        timeout=spec.timeout,
        max_parallel_tasks=spec.max_parallel_tasks,
        layout=draft.layout,
        tasks=Tasks(TaskRun(spec=task) for task in spec.tasks),
    )
    return settle(started(run, draft.asked_at), draft.asked_at)


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
