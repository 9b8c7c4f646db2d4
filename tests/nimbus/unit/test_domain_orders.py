"""The content of an order depends only on the run, so a successor gives the same one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus import run_record
from nimbus.adapters.store.runs import completed_order, encode_order
from nimbus.domain.attempts.orders import order_for
from nimbus.domain.attempts.slots import End
from nimbus.domain.attempts.workers import AssignmentKind
from nimbus.domain.data.publications import OutsideData, Publication, Version
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    FailureClass,
    FailureStrategy,
    Priority,
    Retries,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import PAGE, Tasks
from nimbus.records import ASSIGNMENT

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LOAD = TaskName("load")
MEMORY, ERROR = FailureClass.OUT_OF_MEMORY, FailureClass.ERROR


def a_run(factor: float, *, tasks: int = 1) -> Run:
    retries = Retries(limit=100, delay=timedelta(0), memory_factor=factor)
    names = [LOAD, *(TaskName(f"t{number}") for number in range(1, tasks))]
    return Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks=Tasks(
            TaskRun(spec=TaskSpec(name=name, kind=TaskKind.PYSPARK, script="x.py", retries=retries))
            for name in names
        ),
    )


def opened(run: Run) -> Run:
    return lifecycle.open_attempt(run, LOAD, worker=WorkerId("w"), epoch=1, now=NOW)


def failed(run: Run, failure: FailureClass) -> Run:
    run = opened(run)
    (attempt,) = run.open_attempts()
    end = End(
        attempt=str(attempt), outcome=Outcome.FAILED, failure=failure, written_by="runner", ended_at=NOW
    )
    return lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=10, now=NOW)


def memory_scale(run: Run) -> float:
    run = opened(run)
    (attempt,) = run.open_attempts()
    return order_for(run, attempt, epoch=1, kind=AssignmentKind.RUN).memory_scale


@pytest.mark.parametrize(
    ("factor", "failures", "scale"),
    [
        (1.5, [], 1.0),
        (1.5, [MEMORY], 1.5),
        (1.5, [MEMORY, ERROR, MEMORY], 2.25),
        (1.5, [ERROR, ERROR], 1.0),
        (1.0, [MEMORY, MEMORY], 1.0),
        (4.0, [MEMORY] * 3, 8.0),
    ],
)
def test_order_scales_memory_by_the_failures_that_ran_out_of_it(
    factor: float, failures: list[FailureClass], scale: float
) -> None:
    run = a_run(factor)
    for failure in failures:
        run = failed(run, failure)

    assert memory_scale(run) == scale


def test_order_scales_memory_by_attempts_that_the_record_has_dropped_too() -> None:
    run = a_run(1.1, tasks=PAGE)  # a page with this many tasks keeps one attempt of each
    for failure in (MEMORY, MEMORY, ERROR, ERROR):
        run = failed(run, failure)

    assert len(run.tasks[LOAD].attempts) == 1
    assert memory_scale(run) == pytest.approx(1.21)


def test_successor_gives_the_same_order() -> None:
    run = opened(failed(failed(a_run(1.5), MEMORY), MEMORY))
    run = replace(run, number=1 << 32)
    (attempt,) = run.open_attempts()
    read = run_record.decode(run_record.encode_new(run), "/runs/r")

    assert order_for(read, attempt, epoch=1, kind=AssignmentKind.RUN) == order_for(
        run, attempt, epoch=1, kind=AssignmentKind.RUN
    )
    assert replace(read, tasks=run.tasks) == run
    assert order_for(read, attempt, epoch=1, kind=AssignmentKind.RUN).run_number == 1 << 32


@pytest.mark.parametrize(
    ("publisher", "of", "expected"),
    [("load", None, {"load"}), ("check", None, {"check"}), ("check", "load", {"load"}), (None, None, set())],
)
def test_order_says_whether_a_success_publishes_the_output(
    publisher: str | None, of: str | None, expected: set[str]
) -> None:
    task = TaskName(of) if of is not None else None
    publication = Publication(dataset=DatasetName("orders"), of=task)
    specs = [
        TaskSpec(
            name=TaskName(name),
            kind=TaskKind.PYTHON,
            script="x.py",
            needs=needs,
            publishes=(publication,) if name == publisher else (),
        )
        for name, needs in (("load", ()), ("check", (LOAD,)), ("other", (LOAD,)))
    ]
    run = replace(a_run(1), tasks=Tasks(TaskRun(spec=spec) for spec in specs))
    orders = [
        order_for(run, AttemptId(run.id, spec.name, 1), epoch=1, kind=AssignmentKind.RUN) for spec in specs
    ]

    assert {order.task.name for order in orders if order.publishes} == expected


def test_order_does_not_grow_with_the_uris_and_values_that_its_task_reads() -> None:
    outside = OutsideData(uri=f"https://in/{'x' * 1900}", value={"rows": "y" * 400})
    of = Version(partition="", number=1, at=NOW, outside=outside)
    run = a_run(1)
    (task,) = run.tasks.in_order()
    tasks = Tasks([replace(task, spec=replace(task.spec, uses=("landing",)))])
    for count in (1, 90):
        pins = {"landing": tuple(replace(of, partition=f"k{number}") for number in range(count))}
        order = order_for(
            replace(run, tasks=tasks, pins=pins), AttemptId(run.id, LOAD, 1), epoch=1, kind=AssignmentKind.RUN
        )
        stored = encode_order(order)
        assert len(stored) < 20_000
        assert (
            completed_order(ASSIGNMENT.decode(stored, "o"), replace(run, tasks=tasks, pins=pins)).pins == pins
        )
