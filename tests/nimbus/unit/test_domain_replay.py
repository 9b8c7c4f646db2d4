"""Replays of runs with clean-up, and of workers with wrong clocks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nimbus.domain.attempts.slots import End
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec, TriggerRule
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.replay import as_at
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks

NOW = datetime(2026, 3, 1, tzinfo=UTC)
A, B, TIDY = TaskName("a"), TaskName("b"), TaskName("tidy")
STEP = timedelta(minutes=1)


def a_run() -> Run:
    spec = TaskSpec(name=A, kind=TaskKind.PYTHON, script="x.py")
    tidy = replace(spec, name=TIDY, needs=(A,), requirements={A: TriggerRule.DONE})
    run = Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks=Tasks(TaskRun(spec=one) for one in (spec, replace(spec, name=B, needs=(A,)), tidy)),
    )
    return lifecycle.started(run, NOW)


def tried(
    run: Run, task: TaskName, outcome: Outcome, minutes: int, *, ended_at: datetime | None = None
) -> Run:
    at = NOW + minutes * STEP
    run = lifecycle.open_attempt(run, task, worker=WorkerId("w"), epoch=1, now=at)
    attempt, ended = AttemptId(run.id, task, run.tasks[task].tried), at + STEP
    end = End(attempt=str(attempt), outcome=outcome, written_by="runner", ended_at=ended_at or ended)
    return lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=3, now=ended)


def test_a_run_that_cleaned_up_is_shown_as_running_to_its_verdict_until_it_ended() -> None:
    run = tried(tried(a_run(), A, Outcome.FAILED, 1), TIDY, Outcome.SUCCEEDED, 4)
    assert run.state is RunState.FAILED

    seen = [as_at(run, NOW + minutes * STEP) for minutes in (1, 2, 4)]

    assert [(one.state, one.verdict) for one in seen] == [
        (RunState.RUNNING, None),
        (RunState.RUNNING, RunState.FAILED),
        (RunState.RUNNING, RunState.FAILED),
    ]
    assert [one.tasks[B].state for one in seen] == [TaskState.WAITING, TaskState.NOT_RUN, TaskState.NOT_RUN]
    assert [one.tasks[TIDY].state for one in seen] == [
        TaskState.WAITING,
        TaskState.WAITING,
        TaskState.RUNNING,
    ]


def test_an_attempt_never_ends_before_it_was_opened_nor_after_the_next_one_was() -> None:
    early, late = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
    run = tried(a_run(), A, Outcome.LOST, 1, ended_at=late)
    run = tried(run, A, Outcome.SUCCEEDED, 5, ended_at=early)

    assert as_at(run, NOW).open_attempts() == ()
    assert as_at(run, NOW + 5 * STEP).tasks[A].state is TaskState.SUCCEEDED
    (first,) = as_at(run, NOW + 4 * STEP).tasks[A].attempts
    assert first.outcome is None, "by its worker's clock it still ran"
