"""A new run, from a pipeline's definition: parameters resolved and templates rendered once, then kept.

Rendering is an effect, because a template can compute for long. The command or schedule that starts the run
waits for the result; everything else goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import ReleaseDigest, RunId
from nimbus.domain.lifecycle import settle
from nimbus.domain.parameters import InvalidParametersError, resolve_parameters
from nimbus.domain.pipeline import PipelineSpec, Priority
from nimbus.domain.run import Run, RunCause, TaskRun
from nimbus.domain.tasks import Tasks
from nimbus.engine.agenda import Subject
from nimbus.engine.decision import Answer, Decision, Nothing, RenderRun
from nimbus.engine.state import Refusal, State


def new_run(
    spec: PipelineSpec,
    release: ReleaseDigest,
    *,
    run_id: RunId,
    parameters: Mapping[str, Any],
    logical_date: datetime,
    cause: RunCause,
    priority: Priority | None,
    layout: int,
    now: datetime,
) -> Run:
    """A run that has started nothing yet, pinned to `release`; its arguments are as they were written.

    Raises:
        InvalidParametersError: given parameters, or the logical date, do not fit the definition.
    """
    resolved = resolve_parameters(spec, parameters)
    run = Run(
        id=run_id,
        pipeline=spec.name,
        release=release,
        parameters=resolved,
        logical_date=_local(spec, logical_date),
        created_at=now,
        cause=cause,
        priority=spec.priority if priority is None else priority,
        failure_strategy=spec.failure_strategy,
        python_path=spec.python_path,
        deadline=None if spec.timeout is None else now + spec.timeout,
        layout=layout,
        tasks=Tasks(TaskRun(spec=task) for task in spec.tasks),
    )
    return settle(run, now)


def rendered(state: State, subject: Subject, draft: Run) -> Run | Answer:
    """A run with its arguments rendered; a decision to render them; nothing while that is under way.

    Args:
        state: What is known.
        subject: What starts the run. It waits for one run at a time.
        draft: As `new_run` makes it. The answer may be an earlier draft of the same run, with its times.

    Raises:
        RefusedError: they cannot be rendered.
    """
    if not any(task.spec.args for task in draft.tasks.values()):
        return draft
    if subject in state.rendering:
        return Nothing()
    found = state.rendered.get(subject)
    if found is None or (found.draft.id, found.draft.release) != (draft.id, draft.release):
        return Decision(
            name="run_rendering_started", effects=(RenderRun(subject, draft),), about={"run": draft.id}
        )
    if isinstance(found.result, Refusal):
        raise RefusedError(found.result.code, found.result.message)
    return found.result


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
