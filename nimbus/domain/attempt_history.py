"""All attempts of a run's tasks, including those that the run's record only counts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nimbus.domain.growth import brief
from nimbus.domain.ids import AttemptId, WorkerId
from nimbus.domain.run import Run
from nimbus.domain.slots import Slots
from nimbus.domain.task_run import Attempt, TaskRun

Dropped = Mapping[AttemptId, Attempt]
"""Attempts that the run's record does not hold, rebuilt from their slots."""


def attempts(task: TaskRun) -> tuple[Attempt, ...]:
    """Attempts in the record. A task with child runs under way has one more, which stands for them."""
    children = task.children
    if children is None or task.state.is_final or children.attempt <= task.tried:
        return task.attempts
    standing = Attempt(
        number=children.attempt,
        worker=WorkerId(""),
        opened_at=children.began_at,
        opened_by_epoch=children.epoch,
    )
    return (*task.attempts, standing)


def first_untold(was: TaskRun | None) -> int:
    """Number of the first attempt with something unreported, if everything in `was` is reported."""
    told = () if was is None else attempts(was)
    if not told:
        return 1
    return told[-1].number + (told[-1].outcome is not None)


def dropped(before: Run | None, run: Run) -> Iterator[AttemptId]:
    """Attempts that ended since `before` (None: ever) and that the record of `run` does not hold."""
    for was, task in run.tasks.changes_since(None if before is None else before.tasks):
        kept = attempts(task)
        if kept and task.spec.children is None:  # child runs have no slots
            for number in range(first_untold(was), kept[0].number):
                yield AttemptId(run.id, task.spec.name, number)


def from_slots(found: Mapping[AttemptId, Slots]) -> Dropped:
    """Attempts, rebuilt from their slots. An attempt without END is left out."""
    return {
        attempt: Attempt(
            number=attempt.number,
            worker=(None if slots.claim is None else slots.claim.worker) or WorkerId(""),
            opened_at=end.ended_at if slots.claim is None else slots.claim.claimed_at,
            opened_by_epoch=0,
            started_at=end.started_at,
            ended_at=end.ended_at,
            outcome=end.outcome,
            reason=brief(end.reason),
            exit_code=end.exit_code,
            failure=end.failure,
            cost=end.cost,
        )
        for attempt, slots in found.items()
        if (end := slots.end) is not None
    }
