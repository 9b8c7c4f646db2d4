"""The order that a worker gets for an attempt."""

from __future__ import annotations

from nimbus.domain.ids import AttemptId
from nimbus.domain.lifecycle import committed_outputs
from nimbus.domain.run import Run
from nimbus.domain.slots import Claim
from nimbus.domain.workers import Assignment, AssignmentKind


def order_for(
    run: Run, attempt: AttemptId, *, epoch: int, kind: AssignmentKind, claim: Claim | None = None
) -> Assignment:
    """All that a worker on any host must know to run an attempt, or to look for what is left of it."""
    task = run.tasks[attempt.task]
    spec = task.spec
    return Assignment(
        attempt=str(attempt),
        kind=kind,
        epoch=epoch,
        pipeline=run.pipeline,
        release=run.release,
        run=run.id,
        task=spec,
        logical_date=run.logical_date,
        parameters=run.parameters,
        python_path=run.python_path,
        inputs=committed_outputs(run, spec.needs),
        output=f"{run.pipeline}/{run.id}/{attempt.task}/{attempt.number}",
        timeout=spec.timeout,
        memory_scale=spec.retries.memory_scale(task.out_of_memory),
        claim=claim,
    )
