"""The events of a run, derived from its record. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nimbus.api.explain.task import how_settled
from nimbus.api.models_runs import TimelineEventModel, TimelineModel
from nimbus.domain.run import Run
from nimbus.domain.task_run import Attempt, TaskRun

_ORDER = (
    "run_created",
    "run_started",
    "attempt_opened",
    "attempt_started",
    "attempt_ended",
    "retry_due",
    "task_settled",
    "run_finished",
)
"""The order of events with the same time."""


def timeline(run: Run) -> TimelineModel:
    """Every event of a run, oldest first."""
    events = sorted(_events(run), key=key_of)
    return TimelineModel(run_id=run.id, events=events)


def key_of(event: TimelineEventModel) -> tuple[str | int, ...]:
    """Sort key of an event, which is unique in a run."""
    return event.at.isoformat(), _ORDER.index(event.kind), event.task or "", event.attempt or 0


def _events(run: Run) -> Iterator[TimelineEventModel]:
    by = f", by {run.submitted_by}" if run.submitted_by else ""
    detail = f"{run.cause.value}{by}, release {run.release[:12]}"
    yield TimelineEventModel(at=run.created_at, kind="run_created", detail=detail)
    if run.started_at is not None and run.started_at != run.created_at:
        yield TimelineEventModel(at=run.started_at, kind="run_started", detail="it was queued")
    for task in run.tasks.values():
        for attempt in task.attempts:
            yield from _attempt_events(task, attempt)
        if task.settled is not None:
            detail = f"{task.state.value}: {how_settled(task, task.settled)}"
            yield TimelineEventModel(
                at=task.settled.at, kind="task_settled", task=task.spec.name, detail=detail
            )
        if task.retry_at is not None:
            yield TimelineEventModel(at=task.retry_at, kind="retry_due", task=task.spec.name)
    if run.finished_at is not None:
        detail = run.state.value + (f": {run.reason}" if run.reason else "")
        yield TimelineEventModel(at=run.finished_at, kind="run_finished", detail=detail)


def _attempt_events(task: TaskRun, attempt: Attempt) -> Iterator[TimelineEventModel]:
    base = TimelineEventModel(
        at=attempt.opened_at,
        kind="attempt_opened",
        task=task.spec.name,
        attempt=attempt.number,
        worker=attempt.worker or None,
        epoch=attempt.opened_by_epoch,
    )
    yield base
    if attempt.started_at is not None:
        yield base.model_copy(update={"at": attempt.started_at, "kind": "attempt_started", "epoch": None})
    if attempt.ended_at is not None and attempt.outcome is not None:
        detail = attempt.ending + (f": {attempt.reason}" if attempt.reason else "")
        yield base.model_copy(
            update={"at": attempt.ended_at, "kind": "attempt_ended", "epoch": None, "detail": detail}
        )
