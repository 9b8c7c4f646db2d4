"""Which workers refuse attempts. Derived from the attempts in runs, so all schedulers agree.

A worker without Java, or with a full disk, refuses at once and is free again at once; without a back-off it
would attract every task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from nimbus.domain.ids import WorkerId
from nimbus.domain.run import Run
from nimbus.domain.task_run import Attempt, Outcome, TaskRun, TaskState

BACKOFF = timedelta(seconds=10)
"""After one refusal; doubled with each further one in a row, up to BACKOFF_MAX."""
BACKOFF_MAX = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Refusals:
    """Attempts in a row that a worker did not start."""

    count: int
    last_at: datetime

    @property
    def until(self) -> datetime:
        """The worker gets no attempts before this time, unless all others back off, too."""
        return self.last_at + min(BACKOFF * (1 << min(self.count - 1, 16)), BACKOFF_MAX)


def refusals(runs: Iterable[Run]) -> Mapping[WorkerId, Refusals]:
    """The refusals of each worker, from the attempts that its runs still hold."""
    closed = [
        attempt
        for run in runs
        for task in run.tasks.in_order()
        for attempt in task.attempts
        if _is_evidence(task, attempt)
    ]
    known: Mapping[WorkerId, Refusals] = {}
    for attempt in sorted(closed, key=lambda attempt: attempt.ended_at or attempt.opened_at):
        known = _with(known, attempt)
    return known


def with_last(known: Mapping[WorkerId, Refusals], task: TaskRun) -> Mapping[WorkerId, Refusals]:
    """The refusals after a task's last attempt, which has just ended."""
    last = task.attempts[-1]
    return _with(known, last) if _is_evidence(task, last) else known


def _is_evidence(task: TaskRun, attempt: Attempt) -> bool:
    """True when the attempt's end depends on its worker, and not on its pipeline or a stop of its run."""
    stopped = attempt.outcome is Outcome.FENCED and task.state is TaskState.NOT_RUN
    return attempt.outcome is not None and not stopped and not attempt.pipeline_at_fault


def _with(known: Mapping[WorkerId, Refusals], attempt: Attempt) -> Mapping[WorkerId, Refusals]:
    before = known.get(attempt.worker)
    if attempt.outcome in (Outcome.REFUSED, Outcome.FENCED):
        count = before.count + 1 if before else 1
        return {**known, attempt.worker: Refusals(count, attempt.ended_at or attempt.opened_at)}
    if before is None or (attempt.started_at or attempt.opened_at) < before.last_at:
        return known  # it began before the last refusal, so it does not prove that the worker recovered
    return {worker: found for worker, found in known.items() if worker != attempt.worker}
