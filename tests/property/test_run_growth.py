"""The record of an accepted run can always be written, for all outcomes of its attempts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbus import records
from nimbus.adapters.zookeeper.calls import LARGEST_REQUEST
from nimbus.adapters.zookeeper.run_size import check_growth, grown_bytes
from nimbus.definition.models import MOST_TASKS
from nimbus.domain import growth, lifecycle
from nimbus.domain.errors import RecordTooLargeError
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipeline import (
    FailureStrategy,
    Priority,
    RetryPolicy,
    SparkDeploy,
    SparkPlace,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.run import Run, RunCause
from nimbus.domain.slots import End
from nimbus.domain.spark_application import LONGEST
from nimbus.domain.task_run import Outcome, TaskRun
from nimbus.domain.tasks import Tasks

NOW = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)


def a_run(tasks: int, *, needs: int = 0, retries: int = 3, place: SparkPlace | None = None) -> Run:
    """A run with `tasks` tasks, of which the last one needs the first `needs`."""
    names = [TaskName(f"task-{number:04d}-of-many") for number in range(tasks)]
    specs = [
        TaskSpec(
            name=name,
            kind=TaskKind.PYTHON,
            script=f"{name}.py",
            retries=RetryPolicy(limit=retries),
            needs=tuple(names[:needs]) if name == names[-1] else (),
            spark_place=place,
        )
        for name in names
    ]
    return Run(
        id=RunId("a-pipeline-20260301t120000z-1a2b3c"),
        pipeline=PipelineName("a-pipeline"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.CONTINUE,
        tasks=Tasks(TaskRun(spec=spec) for spec in specs),
    )


def ended(run: Run, task: TaskName, outcome: Outcome, now: datetime) -> Run:
    """One attempt of `task`, from its start to its end, with the longest reason that a worker writes."""
    run = lifecycle.open_attempt(run, task, worker=WorkerId("w" * 127), epoch=10**6, now=now)
    (attempt,) = (found for found in run.open_attempts() if found.task == task)
    run = lifecycle.ask_to_reap(run, attempt, WorkerId("r" * 127))
    end = End(
        attempt=str(attempt),
        outcome=outcome,
        written_by="runner",
        started_at=now,
        ended_at=now,
        exit_code=137,
        reason='Ошибка "ввода"\n\x1b' * 30,
        output=f"{run.pipeline}/{run.id}/{task}/{attempt.number}",
        application="a" * LONGEST,
    )
    return lifecycle.close_attempt(run, attempt, end, max_mishaps=10, now=now)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LOST])
def test_a_run_of_500_tasks_can_be_written_when_each_fails_as_often_as_it_may(outcome: Outcome) -> None:
    run = a_run(500)
    now = NOW
    largest = 0
    for _ in range(10):
        now += timedelta(days=1)
        for task in [task for task in run.tasks.values() if lifecycle.is_ready(run, task)]:
            run = ended(run, task.spec.name, outcome, now)
        largest = max(largest, len(records.RUN.encode(run)))

    assert run.state.is_final
    tried = 4 if outcome is Outcome.FAILED else 10
    assert {(task.tried, task.failures + task.mishaps) for task in run.tasks.values()} == {(tried, tried)}
    assert largest < grown_bytes(run)
    assert largest < LARGEST_REQUEST


@pytest.mark.parametrize(("tasks", "needs"), [(500, 499), (580, 0)])
def test_a_run_that_cannot_outgrow_zookeeper_is_accepted(tasks: int, needs: int) -> None:
    check_growth(a_run(tasks, needs=needs))


@pytest.mark.parametrize("needs", [100, 9_999])
def test_a_task_may_need_all_others_of_the_largest_pipeline(needs: int) -> None:
    check_growth(replace(a_run(MOST_TASKS, needs=needs), layout=2))


@pytest.mark.parametrize(("tasks", "needs"), [(800, 0), (640, 639)])
def test_a_run_that_might_outgrow_zookeeper_is_refused_with_size_and_limit(tasks: int, needs: int) -> None:
    with pytest.raises(RecordTooLargeError, match=rf"its {tasks} tasks .* \d+ bytes, .* at most 1000000"):
        check_growth(a_run(tasks, needs=needs))


def test_the_largest_record_has_room_for_outputs_in_a_bucket_and_for_applications() -> None:
    run = replace(a_run(3), layout=2)
    reference = f"{run.pipeline}/{run.id}/{{}}/1-{'0' * 16}/manifest-{'0' * 64}.json"

    for name, task in growth.largest(run).tasks.items():
        assert len(task.attempts[-1].output or "") >= len(reference.format(name))
        assert len(task.attempts[-1].application or "") == LONGEST


def test_record_of_one_node_has_room_for_as_many_tasks_as_before_attempts_had_an_application() -> None:
    run = growth.largest(a_run(3))
    attempt = next(iter(json.loads(records.RUN.encode(run))["tasks"].values()))["attempts"][0]

    assert "application" not in attempt


@pytest.mark.parametrize("place", [None, SparkPlace(target="t" * 63, deploy=SparkDeploy.CLUSTER)])
@pytest.mark.parametrize("tasks", [1, 7, 300])
def test_the_counted_size_is_that_of_the_largest_record(tasks: int, place: SparkPlace | None) -> None:
    run = a_run(tasks, place=place)

    extra = max(0, growth.MOST_ATTEMPTS - tasks)
    assert grown_bytes(run) == len(records.RUN.encode(growth.largest(run, extra=extra)))


@pytest.mark.parametrize("tasks", [20, 400])
def test_record_of_one_node_keeps_all_attempts_while_they_are_not_too_many(tasks: int) -> None:
    """The previous release computes the number of the next attempt from the attempts in the record."""
    run = a_run(tasks, retries=9)
    task = next(iter(run.tasks))
    for number in range(18):
        run = ended(run, task, Outcome.FAILED if number % 2 else Outcome.LOST, NOW + timedelta(days=number))

    assert [attempt.number for attempt in run.tasks[task].attempts] == list(range(1, 19))


def test_record_of_one_node_keeps_no_more_attempts_than_it_has_room_for() -> None:
    run = a_run(450, retries=9)
    often, once = list(run.tasks)[:10], list(run.tasks)[10:]
    for number in range(10):
        for task in often:
            run = ended(run, task, Outcome.FAILED, NOW + timedelta(days=number))
    for task in once:
        run = ended(run, task, Outcome.SUCCEEDED, NOW)

    assert sum(len(task.attempts) for task in run.tasks.values()) == growth.MOST_ATTEMPTS
    assert {(run.tasks[task].tried, run.tasks[task].failures) for task in often} == {(10, 10)}
    assert len(records.RUN.encode(run)) < grown_bytes(run) < LARGEST_REQUEST


@given(st.text(max_size=600))
def test_a_reason_is_cut_to_its_bytes_and_not_changed_otherwise(text: str) -> None:
    kept = growth.brief(text)

    assert len(json.dumps(kept)) - 2 <= growth.REASON_BYTES
    assert kept == text or (kept.endswith("…") and text.startswith(kept[:-1]))


def test_a_reason_of_an_end_in_ascii_is_kept_whole() -> None:
    assert growth.brief("x" * 490) == "x" * 490
