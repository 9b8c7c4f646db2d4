"""The queue of ready tasks: by rank, and separately for each requirement of a worker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.pipeline import (
    FailureStrategy,
    Priority,
    SparkDeploy,
    SparkPlace,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.admission import Gate
from nimbus.engine.ready import ReadyTasks

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PYTHON = TaskRun(spec=TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py"))
SPARK = TaskRun(spec=replace(PYTHON.spec, name=TaskName("b"), kind=TaskKind.PYSPARK))
RUN = Run(
    id=RunId("r"),
    pipeline=PipelineName("p"),
    release=ReleaseDigest("0" * 64),
    parameters={},
    logical_date=NOW,
    created_at=NOW,
    cause=RunCause.MANUAL,
    priority=Priority.MEDIUM,
    failure_strategy=FailureStrategy.CONTINUE,
    tasks=Tasks([PYTHON, SPARK]),
)
URGENT = replace(RUN, id=RunId("urgent"), priority=Priority.HIGHEST)
A, B = (RUN.id, PYTHON.spec.name), (RUN.id, SPARK.spec.name)


def _queue() -> ReadyTasks:
    ready = ReadyTasks()
    ready.add(RUN, PYTHON)
    ready.add(RUN, SPARK)
    return ready


def test_task_without_a_worker_holds_up_those_of_its_need_alone() -> None:
    ready = _queue()
    ready.add(URGENT, PYTHON)
    assert ready.first() == (URGENT.id, "a")

    ready.close(URGENT.id, PYTHON.spec.name)
    assert ready.first() == B
    ready.close(*B)
    assert ready.first() is None

    ready.reopen()
    assert ready.first() == (URGENT.id, "a")


def test_task_that_becomes_ready_is_asked_about_with_all_of_its_need() -> None:
    ready = _queue()
    ready.close(*A)
    ready.close(*B)

    ready.add(URGENT, SPARK)

    assert ready.first() == (URGENT.id, "b")
    ready.discard(URGENT.id, SPARK.spec.name)
    assert ready.first() == B
    assert A in ready
    assert len(ready) == 2


def test_tasks_that_take_of_a_pool_are_counted_once_while_they_wait() -> None:
    ready, pooled = _queue(), replace(PYTHON, spec=replace(PYTHON.spec, pools={"db": 2}))
    ready.add(RUN, pooled)
    ready.add(replace(RUN, priority=Priority.HIGHEST), pooled)
    ready.add(URGENT, pooled)
    assert (ready.waiting_at_pool("db"), ready.waiting_at_pool("api")) == (2, 0)

    ready.discard(URGENT.id, PYTHON.spec.name)
    ready.add(RUN, PYTHON)
    assert ready.waiting_at_pool("db") == 0


def test_task_that_does_not_fit_into_a_pool_holds_it_while_no_slot_is_free() -> None:
    ready = ReadyTasks()
    pooled = replace(PYTHON, spec=replace(PYTHON.spec, pools={"db": 2}))
    ready.add(URGENT, pooled)
    place = SparkPlace(target="k8s", deploy=SparkDeploy.CLUSTER)
    ready.add(RUN, replace(SPARK, spec=replace(SPARK.spec, pools={"db": 1}, spark_place=place)))

    assert ready.first(slots_free=False) == (URGENT.id, "a")
    ready.close(URGENT.id, PYTHON.spec.name, (Gate("pool", "db"),))
    assert ready.first(slots_free=False) is None
