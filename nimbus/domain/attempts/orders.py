"""Builds the order that a worker gets for an attempt."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from nimbus.domain.attempts.slots import Claim
from nimbus.domain.attempts.workers import Assignment, AssignmentKind
from nimbus.domain.data.publications import Version
from nimbus.domain.data.reads import input_names
from nimbus.domain.ids import AttemptId, PipelineName, TaskName
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs.lifecycle import committed_outputs
from nimbus.domain.runs.run import Run


def output_of(pipeline: PipelineName, attempt: AttemptId) -> str:
    """An attempt's own output folder, relative to the place of all outputs."""
    return f"{pipeline}/{attempt.run}/{attempt.task}/{attempt.number}"


def inputs_of(run: Run, spec: TaskSpec) -> Mapping[str, str]:
    """Outputs that a task reads: those of needed tasks by task, those of datasets by `read:place`."""
    outputs = committed_outputs(run, spec.needs)
    return {**outputs, **input_names(run.pins, spec.uses)} if spec.uses else outputs


def pins_of(run: Run, spec: TaskSpec) -> Mapping[str, tuple[Version, ...]]:
    """The versions that a task reads."""
    return {name: run.pins[name] for name in spec.uses if name in run.pins}


def order_for(
    run: Run,
    attempt: AttemptId,
    *,
    epoch: int,
    kind: AssignmentKind,
    claim: Claim | None = None,
    rendered: TaskSpec | None = None,
    host_lost_after: timedelta | None = None,
) -> Assignment:
    """All that a worker on any host needs to run or reap an attempt.

    `rendered`: the task, if its templates were rendered when it became ready.
    `host_lost_after`: the leader's setting.
    """
    task = run.tasks[attempt.task]
    spec = rendered or task.spec
    return Assignment(
        attempt=str(attempt),
        kind=kind,
        epoch=epoch,
        pipeline=run.pipeline,
        release=run.release,
        run=run.id,
        run_number=run.number,
        task=spec,
        logical_date=run.logical_date,
        data_interval=run.data_interval,
        timezone=run.timezone,
        parameters=run.parameters,
        variables=run.variables,
        python_path=run.python_path,
        inputs=inputs_of(run, spec),
        pins=pins_of(run, spec),
        output=output_of(run.pipeline, attempt),
        publishes=_is_published(run, attempt.task),
        timeout=spec.timeout,
        host_lost_after=host_lost_after if spec.keeps_running else None,
        memory_scale=spec.retries.memory_scale(task.out_of_memory),
        claim=claim,
    )


def _is_published(run: Run, name: TaskName) -> bool:
    """True when the task publishes its output, or a task that needs it does."""
    if not run.tasks.publishes:
        return False
    by_itself = any(publication.of is None for publication in run.tasks[name].spec.publishes)
    return by_itself or any(
        publication.of == name
        for other in run.tasks.dependents(name)
        for publication in run.tasks[other].spec.publishes
    )
