"""Conditions and properties of tasks are rendered with the arguments of their run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import pytest

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError, at_release

WHEN = datetime(2026, 3, 1, tzinfo=UTC)


def rendered(*conditions: str) -> list[TaskSpec]:
    return rendered_tasks(
        TaskSpec(
            name=TaskName(f"t{n}"), kind=TaskKind.PYTHON, script="x.py", args=("{{ ds }}",), when=condition
        )
        for n, condition in enumerate(conditions)
    )


def rendered_tasks(tasks: Iterable[TaskSpec]) -> list[TaskSpec]:
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
    return [task.spec for task in Templates().render(run).tasks.values()]


def test_conditions_become_true_or_false() -> None:
    found = rendered("{{ params.mode == 'full' }}", "", "{{ params.rows > 3 }}", " {{ 'TRUE' }} ", "false")

    assert [spec.when for spec in found] == ["true", "", "false", "true", "false"]
    assert [spec.is_wanted for spec in found] == [True, True, False, True, False]
    assert {spec.args for spec in found} == {("2026-03-01",)}


@pytest.mark.parametrize("condition", ["{{ params.mode }}", "{{ '' }}", "{{ params.rows }}"])
def test_a_condition_that_is_neither_refuses_the_run(condition: str) -> None:
    with pytest.raises(TemplateError, match=r"task t1, when: .* must be true or false: write a comparison"):
        rendered("true", condition)


def rendered_conf(conf: Mapping[str, str], when: str = "") -> TaskSpec:
    task = TaskSpec(
        name=TaskName("t"),
        kind=TaskKind.PYSPARK,
        script="x.py",
        args=("{{ ds }}", "{{release_root}}/{{ ds }}"),
        spark_conf=conf,
        when=when,
    )
    return rendered_tasks([task])[0]


@pytest.mark.parametrize("when", ["", "{{ params.mode == 'full' }}"])
def test_properties_are_rendered_and_what_only_a_host_or_spark_knows_is_kept(when: str) -> None:
    spec = rendered_conf(
        {
            "spark.plain": "1",
            "spark.app.day": "{{ params.rows }}-{{ ds }}",
            "spark.log": "{{ release_root }}/{{ params.mode }}/{{APP_ID}}.log",
            "spark.jars": "{{release_root}}/a.jar",
        },
        when,
    )

    assert spec.spark_conf == {
        "spark.plain": "1",
        "spark.app.day": "3-2026-03-01",
        "spark.log": "{{ release_root }}/full/{{APP_ID}}.log",
        "spark.jars": "{{release_root}}/a.jar",
    }
    assert spec.args == ("2026-03-01", "{{release_root}}/2026-03-01")
    assert spec.when == ("true" if when else "")
    assert at_release(spec.args[1], "/srv/r") == "/srv/r/2026-03-01"
    assert at_release(spec.spark_conf["spark.log"], "/srv/r") == "/srv/r/full/{{APP_ID}}.log"


def test_a_property_that_cannot_be_rendered_is_named() -> None:
    with pytest.raises(TemplateError, match=r"task t, spark\.conf\.spark\.b: "):
        rendered_conf({"spark.a": "{{ ds }}", "spark.b": "{{ 1 / 0 }}"})


def test_a_condition_that_cannot_be_rendered_is_named() -> None:
    with pytest.raises(TemplateError, match="task t1, when: "):
        rendered("", "{{ 1 / 0 }}")
