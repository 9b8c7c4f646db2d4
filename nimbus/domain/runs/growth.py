"""The largest size of a run's record. A run is accepted only if all its later states can be written.

A record holds the last attempts of each task, and only counts the earlier ones: their END records have the
details until the run moves to history. So the largest size is known at the start, whatever the retries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nimbus.domain.attempts.cost import LARGEST as LARGEST_FIGURE
from nimbus.domain.attempts.cost import Cost
from nimbus.domain.attempts.slots import LONGEST
from nimbus.domain.cluster.alerts import Lateness
from nimbus.domain.ids import RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.domain.runs.run import Paused, Run, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, Settlement, TaskRun, TaskState
from nimbus.domain.runs.tasks import PAGE
from nimbus.domain.wording import REASON_BYTES

_MANIFEST = f"-{'0' * 16}/manifest-{'0' * 64}.json"
"""What the reference of an output in a bucket adds: a nonce, and the digest of its manifest."""
_SOME_TIME = datetime(2026, 12, 31, 23, 59, 59, 999999, UTC)
_LONGEST_ID = WorkerId("w" * 127)
"""A `worker.id` of the largest allowed length."""


def with_attempt(run: Run, task: TaskRun, attempt: Attempt, **changes: Any) -> TaskRun:
    """Append an attempt, with other changes. Drop the oldest attempts beyond the limit, and count them."""
    most = max(1, PAGE // len(run.tasks))
    attempts = (*task.attempts, attempt)
    if len(attempts) <= most:
        return replace(task, attempts=attempts, **changes)
    earlier = replace(task, attempts=attempts[:-most])
    return replace(
        task,
        attempts=attempts[-most:],
        earlier_failures=earlier.failures,
        earlier_mishaps=earlier.infrastructure_failures,
        earlier_out_of_memory=earlier.out_of_memory,
        **changes,
    )


def largest(run: Run, only: Iterable[TaskName] | None = None) -> Run:
    """`run` with every field at its longest, and one attempt in each task, or in some tasks `only`."""
    reason = "w" * REASON_BYTES
    enlarged = run.tasks.items() if only is None else ((name, run.tasks[name]) for name in only)
    tasks = run.tasks.replaced(
        replace(
            task,
            state=TaskState.SUCCEEDED,
            retry_at=_SOME_TIME,
            settled=Settlement(at=_SOME_TIME, by=reason, reason=reason),
            warned=10**6,
            asked=True,
            sequence=(1 << 63) - 1,
            earlier_failures=10**6,
            earlier_mishaps=10**6,
            earlier_out_of_memory=10**6,
            early_ends=10**6,
            attempts=(_widest(f"{run.pipeline}/{run.id}/{name}/{10**6 - 1}{_MANIFEST}", reason),),
        )
        for name, task in enlarged
    )
    verdict = RunState.SUCCEEDED
    return replace(
        run,
        verdict=verdict,
        state=verdict,
        reason=reason,
        timeout=timedelta.max,
        max_parallel_tasks=10**6,
        submitted_by=reason,
        rerun_of=RunId("r" * 127),
        selected=reason,
        note=reason,
        paused=Paused(by=reason, at=_SOME_TIME),
        late=tuple(Lateness),
        started_at=_SOME_TIME,
        stopping_at=_SOME_TIME,
        deadline=_SOME_TIME,
        finished_at=_SOME_TIME,
        tasks=tasks,
    )


def _widest(output: str, reason: str) -> Attempt:
    return Attempt(
        number=10**6 - 1,
        worker=_LONGEST_ID,
        opened_at=_SOME_TIME,
        opened_by_epoch=10**9,
        reaper=_LONGEST_ID,
        started_at=_SOME_TIME,
        ended_at=_SOME_TIME,
        outcome=Outcome.SUCCEEDED,
        reason=reason,
        exit_code=-(10**3),
        failure=max(FailureClass, key=len),
        output=output,
        application="a" * LONGEST,
        jvm=reason,
        cost=Cost(**{field.name: LARGEST_FIGURE for field in fields(Cost)}),
        has_result=True,
    )
