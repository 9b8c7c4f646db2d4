"""Final runs, until they are out of ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nimbus.domain.ids import AttemptId, PipelineName
from nimbus.domain.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What is left of a final run in memory."""

    pipeline: PipelineName
    finished_at: datetime
    attempts: dict[AttemptId, None]
    """That are in ZooKeeper. Changed in place: a run can have tens of thousands."""
    archiving: bool = False
    """The archive has been asked to store it."""
    archived: bool = False
    """History has it."""


def finished(run: Run, before: Finished | None) -> Finished:
    """What is left of a run. `before`: what was known of it as final; its archive goes on."""
    attempts = dict.fromkeys(
        AttemptId(run.id, name, number)
        for name, task in run.tasks.items()
        for number in range(1, task.tried + 1)
    )
    return Finished(
        pipeline=run.pipeline,
        finished_at=run.finished_at or run.created_at,
        attempts=attempts,
        archiving=before is not None and before.archiving,
        archived=before is not None and before.archived,
    )
