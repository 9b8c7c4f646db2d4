"""A new run, from a pipeline's definition: parameters resolved and templates rendered once, then kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nimbus.definition.rendering import render_tasks
from nimbus.domain.ids import ReleaseDigest, RunId
from nimbus.domain.lifecycle import settle
from nimbus.domain.parameters import resolve_parameters
from nimbus.domain.pipeline import PipelineSpec, Priority
from nimbus.domain.run import Run, RunCause, TaskRun
from nimbus.domain.tasks import Tasks


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
        InvalidParametersError: given parameters do not fit the definition.
        TemplateError: a task's argument cannot be rendered.
    """
    resolved = resolve_parameters(spec, parameters)
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
        tasks=Tasks(TaskRun(spec=task) for task in tasks),
    )
    return settle(run, now)
