"""`start_after` counts from the time at which the needs of a task are met, for any of their outcomes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec, TriggerRule
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.timing import not_before

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
NOON = START + timedelta(hours=4)
A, B, PAGE = TaskName("a"), TaskName("b"), TaskName("page")


def run_of(*tasks: TaskSpec, strategy: FailureStrategy) -> Run:
    run = Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=START,
        created_at=START,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=strategy,
        tasks=Tasks(TaskRun(spec=task) for task in tasks),
    )
    return lifecycle.begin(lifecycle.started(run, START), START)


def ended(run: Run, name: TaskName, outcome: Outcome) -> Run:
    run = lifecycle.open_attempt(run, name, worker=WorkerId("w"), epoch=1, now=START)
    attempt = AttemptId(run.id, name, 1)
    end = End(attempt=str(attempt), outcome=outcome, written_by="runner", ended_at=NOON)
    return lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=3, now=NOON)


@pytest.mark.parametrize(
    ("strategy", "behind"),
    [(FailureStrategy.END, True), (FailureStrategy.CONTINUE, True), (FailureStrategy.END, False)],
    ids=["behind the failure", "behind it while others go on", "on another branch"],
)
def test_a_task_starts_so_long_after_the_failure_that_kept_its_need_from_running(
    strategy: FailureStrategy, behind: bool
) -> None:
    def spec(name: TaskName, *needs: TaskName) -> TaskSpec:
        return TaskSpec(name=name, kind=TaskKind.PYTHON, script="x.py", needs=needs)

    page = replace(spec(PAGE, B), requirements={B: TriggerRule.FAILED}, start_after=timedelta(minutes=15))
    run = run_of(spec(A), spec(B, A) if behind else spec(B), page, strategy=strategy)
    run = ended(run, A, Outcome.FAILED)

    assert not_before(run, run.tasks[PAGE]) == NOON + timedelta(minutes=15)


def test_a_task_starts_so_long_after_what_decided_that_its_need_is_skipped() -> None:
    b = TaskSpec(name=B, kind=TaskKind.PYTHON, script="x.py", needs=(A,), when="false")
    page = TaskSpec(
        name=PAGE,
        kind=TaskKind.PYTHON,
        script="x.py",
        needs=(B,),
        requirements={B: TriggerRule.NOT_FAILED},
        start_after=timedelta(minutes=15),
    )
    a = TaskSpec(name=A, kind=TaskKind.PYTHON, script="x.py")
    run = ended(run_of(a, b, page, strategy=FailureStrategy.END), A, Outcome.SUCCEEDED)

    assert not_before(run, run.tasks[PAGE]) == NOON + timedelta(minutes=15)
