"""Which ready task gets the next free slot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nimbus.domain import lifecycle
from nimbus.domain.ids import AttemptId
from nimbus.domain.orders import order_for
from nimbus.domain.run import RunState
from nimbus.domain.workers import AssignmentKind, choose_worker, free_slots, open_workers
from nimbus.domain.writes import Assign, CreateAttempt, PutRun
from nimbus.engine.decision import Decision
from nimbus.engine.facts import Facts, with_run


def open_next_attempt(facts: Facts, now: datetime) -> Decision | None:
    """The most urgent ready task of the most urgent run goes to the best worker: the intent is written."""
    busy = facts.busy()
    workers = open_workers(facts.workers.values(), facts.refusals, now)
    if not any(free_slots(worker, busy.get(worker.id, 0)) for worker in workers):
        return None  # the common reason, found without a look at each ready task
    for run in facts.live_runs():
        for task in lifecycle.ready_tasks(run, now):
            unlucky = frozenset(
                a.worker for a in task.attempts if a.outcome is not None and a.outcome.is_infrastructure
            )
            worker = choose_worker(workers, busy, facts.refusals, unlucky)
            if worker is None:
                continue  # a task that no worker can take must not block the others
            opened = lifecycle.open_attempt(run, task.spec.name, worker=worker.id, epoch=facts.epoch, now=now)
            attempt = AttemptId(run.id, task.spec.name, task.tried + 1)
            order = order_for(opened, attempt, epoch=facts.epoch, kind=AssignmentKind.RUN)
            return Decision(
                name="attempt_opened",
                facts=with_run(facts, opened),
                writes=(PutRun(opened), CreateAttempt(attempt), Assign(worker.id, order)),
                about={"attempt": str(attempt), "worker": worker.id},
            )
    return None


def moments(facts: Facts) -> Iterator[datetime]:
    """When retries are due, and when workers have backed off for long enough."""
    yield from (found.until for worker, found in facts.refusals.items() if worker in facts.workers)
    for run in facts.live_runs():
        if run.state is RunState.RUNNING:
            yield from (task.retry_at for task in run.tasks.values() if task.retry_at is not None)
