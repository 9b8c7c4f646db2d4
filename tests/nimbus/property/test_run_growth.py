"""The record of an accepted run can always be written, for all outcomes of its attempts."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimbus.adapters.store.runs import check_growth
from nimbus.definition.models import MAX_TASKS
from nimbus.domain import wording
from nimbus.domain.attempts.slots import LONGEST, End
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    FailureStrategy,
    Priority,
    Retries,
    SparkPlace,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs import growth, lifecycle
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks

NOW = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)


def a_run(tasks: int, *, needs: int = 0, retries: int = 3, place: SparkPlace | None = None) -> Run:
    """A run with `tasks` tasks, of which the last one needs the first `needs`."""
    names = [TaskName(f"task-{number:04d}-of-many") for number in range(tasks)]
    specs = [
        TaskSpec(
            name=name,
            kind=TaskKind.PYTHON,
            script=f"{name}.py",
            retries=Retries(limit=retries),
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
    return lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=10, now=now)


@pytest.mark.parametrize(("tasks", "needs"), [(500, 499), (580, 0)])
def test_a_run_that_cannot_outgrow_zookeeper_is_accepted(tasks: int, needs: int) -> None:
    check_growth(a_run(tasks, needs=needs))


@pytest.mark.parametrize("needs", [100, 9_999])
def test_a_task_may_need_all_others_of_the_largest_pipeline(needs: int) -> None:
    check_growth(a_run(MAX_TASKS, needs=needs))


def test_the_largest_record_has_room_for_outputs_in_a_bucket_and_for_applications() -> None:
    run = a_run(3)
    reference = f"{run.pipeline}/{run.id}/{{}}/1-{'0' * 16}/manifest-{'0' * 64}.json"

    for name, task in growth.largest(run).tasks.items():
        assert len(task.attempts[-1].output or "") >= len(reference.format(name))
        assert len(task.attempts[-1].application or "") == LONGEST


@given(st.text(max_size=600))
def test_a_reason_is_cut_to_its_bytes_and_not_changed_otherwise(text: str) -> None:
    kept = wording.shortened(text)

    assert len(json.dumps(kept)) - 2 <= wording.REASON_BYTES
    assert kept == text or (kept.endswith("…") and text.startswith(kept[:-1]))


def test_a_reason_of_an_end_in_ascii_is_kept_whole() -> None:
    assert wording.shortened("x" * 490) == "x" * 490
