"""Final runs, until they are removed from ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nimbus.domain.children import Parent
from nimbus.domain.ids import AttemptId, PipelineName
from nimbus.domain.run import Run, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The state of a final run in the engine's memory."""

    pipeline: PipelineName
    state: RunState
    reason: str
    finished_at: datetime
    parent: Parent | None
    attempts: dict[AttemptId, None]
    """Attempts that are still in ZooKeeper. Changed in place: a run can have tens of thousands."""
    archiving: bool = False
    """True: the archive was asked to store the run."""
    archived: bool = False
    """True: history has the run."""


def finished(run: Run, before: Finished | None) -> Finished:
    """The state of a run that is final. `before`: its earlier state, whose archiving goes on."""
    attempts = dict.fromkeys(
        AttemptId(run.id, name, number)
        for name, task in run.tasks.items()
        if task.spec.children is None and task.attempts
        for number in range(task.attempts[0].number if task.spec.keeps_running else 1, task.tried + 1)
    )
    return Finished(
        pipeline=run.pipeline,
        state=run.state,
        reason=run.reason,
        finished_at=run.finished_at or run.created_at,
        parent=run.parent,
        attempts=attempts,
        archiving=before is not None and before.archiving,
        archived=before is not None and before.archived,
    )
