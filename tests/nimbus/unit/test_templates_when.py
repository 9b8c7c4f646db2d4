"""Conditions of tasks are rendered with the arguments of their run."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.run import Run, RunCause
from nimbus.domain.task_run import TaskRun
from nimbus.domain.tasks import Tasks
from nimbus.templates.answers import TemplateError
from tests.nimbus.in_process_templates import InProcessTemplates

WHEN = datetime(2026, 3, 1, tzinfo=UTC)


def rendered(*conditions: str) -> list[TaskSpec]:
    tasks = [
        TaskSpec(
            name=TaskName(f"t{n}"), kind=TaskKind.PYTHON, script="x.py", args=("{{ ds }}",), when=condition
        )
        for n, condition in enumerate(conditions)
    ]
    run = Run(
        id=RunId("r1"),
        pipeline=PipelineName("flights"),
        release=ReleaseDigest("a" * 64),
        parameters={"mode": "full", "rows": 3},
        logical_date=WHEN,
        created_at=WHEN,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks=Tasks(TaskRun(spec=task) for task in tasks),
    )
    return [task.spec for task in InProcessTemplates().render(run).tasks.values()]


def test_conditions_become_true_or_false() -> None:
    found = rendered("{{ params.mode == 'full' }}", "", "{{ params.rows > 3 }}", " {{ 'TRUE' }} ", "false")

    assert [spec.when for spec in found] == ["true", "", "false", "true", "false"]
    assert [spec.is_wanted for spec in found] == [True, True, False, True, False]
    assert {spec.args for spec in found} == {("2026-03-01",)}


@pytest.mark.parametrize("condition", ["{{ params.mode }}", "{{ '' }}", "{{ params.rows }}"])
def test_a_condition_that_is_neither_refuses_the_run(condition: str) -> None:
    with pytest.raises(TemplateError, match=r"task t1, when: .* must be true or false: write a comparison"):
        rendered("true", condition)


def test_a_condition_that_cannot_be_rendered_is_named() -> None:
    with pytest.raises(TemplateError, match="task t1, when: "):
        rendered("", "{{ 1 / 0 }}")
