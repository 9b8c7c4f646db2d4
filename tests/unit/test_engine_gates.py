"""Limits that tasks share: of their run, and of pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from nimbus.domain.ids import HostId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.run import Outcome, Run, RunCause, TaskRun
from nimbus.domain.slots import End, Slots
from nimbus.domain.tasks import Tasks
from nimbus.domain.workers import WorkerInfo
from nimbus.engine.agenda import Instant
from nimbus.engine.decision import Decision
from nimbus.engine.rules import ask, next_subject
from nimbus.engine.state import State

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WORKER = WorkerInfo(
    id=WorkerId("w"),
    host=HostId("h"),
    hostname="h",
    pid=1,
    slots=10,
    version="1",
    started_at=NOW,
    newest_schema=2,
)


def at(now: datetime = NOW) -> Instant:
    return Instant(now, (now - NOW).total_seconds())


def a_task(
    name: str, *, pools: Mapping[str, int] | None = None, kind: TaskKind = TaskKind.PYTHON
) -> TaskSpec:
    return TaskSpec(name=TaskName(name), kind=kind, script="a.py", pools=pools or {})


def a_run(name: str, *tasks: TaskSpec, most: int | None = None, priority: Priority = Priority.MEDIUM) -> Run:
    return Run(
        id=RunId(name),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=priority,
        failure_strategy=FailureStrategy.CONTINUE,
        max_parallel_tasks=most,
        layout=2,
        tasks=Tasks(TaskRun(spec=task) for task in tasks),
    )


def known(*runs: Run, slots: int = 10) -> State:
    state = State(epoch=3, schema=2)
    state.put_workers([replace(WORKER, slots=slots)], at())
    for run in runs:
        state.put_run(run, at())
    state.take_census()
    return state


def open_all(state: State) -> list[str]:
    """Decide until there is nothing more to decide. The attempts that were opened, in order."""
    opened = []
    while (subject := next_subject(state)) is not None:
        answer = ask(state, subject, at())
        if isinstance(answer, Decision):
            state.apply(answer, at())
            if answer.name == "attempt_opened":
                opened.append(answer.about["attempt"])
        else:
            state.postpone(subject, answer)
    return opened


def end(state: State, attempt: str) -> None:
    found = next(known for known in state.slots if str(known) == attempt)
    ended = End(attempt=attempt, outcome=Outcome.SUCCEEDED, written_by="r", ended_at=NOW)
    state.put_slots(found, Slots(end=ended), at())


def test_run_opens_no_more_tasks_at_once_than_it_may() -> None:
    state = known(a_run("r", a_task("a"), a_task("b"), a_task("c"), most=2))
    assert open_all(state) == ["r.a.1", "r.b.1"]

    end(state, "r.b.1")

    assert open_all(state) == ["r.c.1"]


def test_run_at_its_limit_holds_up_no_other_run() -> None:
    narrow = a_run("narrow", a_task("a"), a_task("b"), most=1, priority=Priority.HIGHEST)
    wide = a_run("wide", a_task("a"), a_task("b"))

    assert open_all(known(narrow, wide)) == ["narrow.a.1", "wide.a.1", "wide.b.1"]


def test_limit_of_a_run_counts_tasks_of_all_needs() -> None:
    spark = a_task("b", kind=TaskKind.PYSPARK)
    state = known(a_run("r", a_task("a"), spark, most=1))
    assert open_all(state) == ["r.a.1"]

    end(state, "r.a.1")

    assert open_all(state) == ["r.b.1"]


def test_many_limited_runs_share_the_slots_that_there_are() -> None:
    runs = [a_run(f"r{number}", a_task("a"), a_task("b"), most=1) for number in range(5)]
    state = known(*runs, slots=3)
    opened = open_all(state)
    assert opened == ["r0.a.1", "r1.a.1", "r2.a.1"]
    for _ in range(10):
        end(state, opened[0])
        opened = [*opened[1:], *open_all(state)]
        assert len({str(attempt).split(".")[0] for attempt in state.slots}) == len(state.slots) <= 3

    assert not state.runs
