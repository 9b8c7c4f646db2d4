"""A run in nodes: written step by step, it reads back as it was in memory, and no node grows."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus import run_record
from nimbus.domain.attempts.slots import LONGEST, End
from nimbus.domain.data.publications import MAX_VALUE_BYTES, OutsideData, Read, Version
from nimbus.domain.errors import RecordTooLargeError
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    FailureClass,
    FailureStrategy,
    Priority,
    Retries,
    TaskKind,
    TaskSpec,
    TriggerRule,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, Settlement, TaskRun, TaskState
from nimbus.domain.runs.tasks import PAGE, Tasks
from nimbus.records import END, UnreadableRecordError

NOW = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
LARGEST_NODE = 128 * 1024


def a_run(size: int, *, strategy: FailureStrategy = FailureStrategy.CONTINUE, argument: str = "x") -> Run:
    return Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={"month": 2, "name": "Zoë"},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.LOW,
        failure_strategy=strategy,
        python_path=("lib",),
        timeout=timedelta(hours=1),
        state=RunState.QUEUED,
        tasks=Tasks(
            TaskRun(
                spec=TaskSpec(
                    name=TaskName(f"t{number}"),
                    kind=TaskKind.APPROVAL if number % 11 == 5 else TaskKind.PYTHON,
                    script="x.py",
                    args=(argument,),
                    needs=(TaskName(f"t{number - 3}"),) if number % 5 >= 3 else (),
                    requirements={TaskName(f"t{number - 3}"): TriggerRule.DONE} if number % 5 == 4 else {},
                    allow_failure=number % 7 == 6,
                    retries=Retries(limit=2, delay=timedelta(seconds=1.5)),
                    timeout=timedelta(minutes=3),
                )
            )
            for number in range(size)
        ),
    )


def moved(run: Run, data: st.DataObject, now: datetime) -> Run:
    """The run after one possible event."""
    ready = [task.spec.name for task in run.tasks.values() if lifecycle.is_ready(run, task)]
    if run.state is RunState.QUEUED:
        return lifecycle.started(run, now)
    choices = ["open"] * bool(ready) + ["close"] * bool(run.open_attempts())
    if not data.draw(st.integers(0, 20)):
        choices.append("stop")
    if ready and not data.draw(st.integers(0, 10)):
        choices.append("conclude")
    match data.draw(st.sampled_from(choices)):
        case "open":
            name = data.draw(st.sampled_from(ready))
            if not run.tasks[name].spec.kind.uses_worker:
                state = data.draw(st.sampled_from((TaskState.SUCCEEDED, TaskState.FAILED)))
                settlement = Settlement(at=now, by="ada", reason="so it is")
                return lifecycle.end_task(run, name, state=state, settlement=settlement, now=now)
            return lifecycle.open_attempt(run, name, worker=WorkerId("w"), epoch=7, now=now)
        case "close":
            attempt: AttemptId = data.draw(st.sampled_from(run.open_attempts()))
            end = End(
                attempt=str(attempt),
                outcome=data.draw(st.sampled_from(Outcome)),
                written_by="runner",
                ended_at=now,
                exit_code=1,
                failure=data.draw(st.none() | st.sampled_from(FailureClass)),
                reason="so it is",
                output="p/r/x",
                application=data.draw(st.none() | st.just("app-1")),
                result=data.draw(st.none() | st.just({"rows": 3})),
            )
            return lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=3, now=now)
        case "conclude":
            name, state = (
                data.draw(st.sampled_from(ready)),
                data.draw(st.sampled_from([TaskState.FAILED, TaskState.SKIPPED])),
            )
            return lifecycle.conclude_waiting(run, name, state, now, "its template is wrong")
        case _:
            return lifecycle.stop(run, verdict=RunState.STOPPED, reason="by hand", now=now)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([1, 3, PAGE, PAGE + 1, 150]), st.sampled_from(FailureStrategy), st.data())
def test_what_is_written_step_by_step_reads_back_as_it_was(
    size: int, strategy: FailureStrategy, data: st.DataObject
) -> None:
    run = a_run(size, strategy=strategy)
    run = lifecycle.begin(run, NOW)
    nodes = run_record.encode_new(run)
    assert run_record.decode(nodes, "/runs/r") == run
    for step in range(30):
        if run.state.is_final:
            break
        before, run = run, moved(run, data, NOW + timedelta(seconds=step))
        changed = encoded(run, before)
        assert changed.keys() <= nodes.keys(), "no node is made after the run was"
        nodes |= changed
        assert run_record.decode(nodes, "/runs/r") == run


def encoded(run: Run, before: Run) -> dict[str, bytes]:
    return {name: encode() for name, encode in run_record.changes(run, before).items()}


def test_interval_and_zone_read_back_as_they_were() -> None:
    berlin = timezone(timedelta(hours=1))
    end = datetime(2026, 3, 1, tzinfo=berlin)
    interval = DataInterval(start=end - timedelta(days=1), end=end)
    run = replace(a_run(3), data_interval=interval, timezone="Europe/Berlin", variables={"dwh": "jdbc:x"})

    read = run_record.decode(run_record.encode_new(run), "/runs/r")

    assert read == run
    assert read.data_interval is not None
    assert read.data_interval.end.isoformat() == "2026-03-01T00:00:00+01:00"


def pins_of(count: int) -> tuple[Version, ...]:
    return tuple(
        Version(
            partition=f"k{number}",
            number=number,
            run=RunId(f"r{number}"),
            task=TaskName("t"),
            source=AttemptId(RunId(f"r{number}"), TaskName("t"), 1),
            output=f"p/r{number}/t/1-{number:016x}/manifest-{number:064x}.json",
            at=NOW,
        )
        for number in range(count)
    )


@pytest.mark.parametrize("size", [3, 100])
def test_pins_are_written_once_each_in_a_node_of_its_own(size: int) -> None:
    reads = (Read(name="a", dataset=DatasetName("a")), Read(name="b", dataset=DatasetName("b")))
    run = replace(a_run(size), reads=reads)
    first = replace(run, pins={"a": pins_of(1000)})
    both = replace(first, pins={**first.pins, "b": ()})
    nodes = run_record.encode_new(run)
    for changes in (encoded(first, run), encoded(both, first)):
        nodes |= changes

    assert sorted(run_record.changes(first, run)) == ["", "pins-a"]
    assert sorted(run_record.changes(both, first)) == ["", "pins-b"]
    assert {"pins-a", "pins-b"} <= set(run_record.head_of(nodes[""], "/runs/r").children)
    assert run_record.decode(nodes, "/runs/r") == both
    assert run_record.decode(run_record.encode_new(both), "/runs/r") == both
    assert len(nodes["pins-a"]) < 96 * 1024
    assert len(nodes[""]) < run_record.LARGEST_INLINE * 2


def test_pins_of_values_that_are_nested_deeply_are_read_back() -> None:
    value: list[Any] = []
    for _ in range(MAX_VALUE_BYTES // 2 - 10):
        value = [value]
    (pin,) = pins_of(1)
    pins = (
        replace(pin, outside=OutsideData(uri="s3://in/1", value=value)),
        replace(pin, value={"deep": value}),
    )
    run = replace(a_run(3), reads=(Read(name="a", dataset=DatasetName("a")),), pins={"a": pins})

    assert run_record.decode(run_record.encode_new(run), "/runs/r").pins == run.pins


def test_one_task_that_moves_writes_one_page() -> None:
    run = a_run(1000)
    run = lifecycle.started(run, NOW)
    opened = lifecycle.open_attempt(run, TaskName("t100"), worker=WorkerId("w"), epoch=1, now=NOW)

    assert list(run_record.changes(opened, run)) == ["tasks-1"]


def test_a_stop_writes_what_it_means_for_tasks_that_wait_in_the_header_alone() -> None:
    run = a_run(10_000)
    stopped = lifecycle.stop(run, verdict=RunState.STOPPED, reason="by hand", now=NOW)

    assert list(run_record.changes(stopped, run)) == [""]


def test_a_failure_writes_what_it_means_for_tasks_that_wait_in_the_header_alone() -> None:
    run = lifecycle.started(a_run(10_000, strategy=FailureStrategy.END), NOW)
    attempt = AttemptId(run.id, TaskName("t1"), 1)
    run = lifecycle.open_attempt(run, attempt.task, worker=WorkerId("w"), epoch=1, now=NOW)
    end = End(attempt=str(attempt), outcome=Outcome.STOPPED, written_by="runner", ended_at=NOW)
    failed = lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=3, now=NOW)

    assert failed.is_cleaning_up
    assert sorted(run_record.changes(failed, run)) == ["", "tasks-0"]


def test_a_small_run_is_one_node() -> None:
    assert list(run_record.encode_new(a_run(10))) == [""]


def test_no_node_grows_beyond_its_bound_whatever_its_attempts_say() -> None:
    run = a_run(2 * PAGE)
    unlike = [f"{number:x}" * 400 for number in range(2**40, 2**40 + len(run.tasks))]
    for name, reason in zip(run.tasks, unlike, strict=True):
        for number in range(1, 4):
            if not lifecycle.is_ready(run, run.tasks[name]):
                continue
            run = lifecycle.open_attempt(run, name, worker=WorkerId("w" * 127), epoch=10**9, now=NOW)
            end = End(
                attempt=f"r.{name}.{number}",
                outcome=Outcome.FAILED,
                written_by="runner",
                ended_at=NOW,
                reason=reason,
                application=f"{number}" * LONGEST,
            )
            run = lifecycle.close_attempt(
                run, AttemptId(run.id, name, number), end, max_infrastructure_failures=3, now=NOW
            )
    raw = [sum(len(str(attempt)) for task in page for attempt in task.attempts) for page in run.tasks.pages]

    assert max(map(len, run_record.encode_new(run).values())) < LARGEST_NODE
    assert max(raw) < LARGEST_NODE, "not even if nothing of it can be compressed"


def test_ten_thousand_tasks_fit_into_one_transaction() -> None:
    nodes = run_record.encode_new(a_run(10_000))

    assert sum(map(len, nodes.values())) < 512 * 1024
    assert max(map(len, nodes.values())) < LARGEST_NODE


def test_a_plan_that_does_not_fit_is_refused_with_its_size() -> None:
    huge = a_run(2)
    noise = "".join(chr(0x4E00 + (number * 7919) % 20000) for number in range(400_000))
    tasks = [replace(task, spec=replace(task.spec, args=(noise,))) for task in huge.tasks.values()]

    with pytest.raises(RecordTooLargeError, match="the plan of run r"):
        run_record.encode_new(replace(huge, tasks=Tasks(tasks)))


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"tasks-1": None}, "tasks-1.* is missing"),
        ({"tasks-1": b"nonsense"}, "header check"),
        ({"tasks-1": zlib.compress(b"5")}, "not iterable"),
        ({"tasks-1": zlib.compress(b"[" + b"5," * 35 + b"5]")}, "not a mapping"),
        ({"tasks-1": zlib.compress(b"[{}]")}, "shorter"),
        ({"tasks-1": zlib.compress(b'[{"state":"x"}' + b",{}" * 35 + b"]")}, "state: .*'waiting'"),
        ({"plan-0": b""}, "cut off"),
        ({"": b'{"schema":3}'}, "upgrade"),
        ({"": b"nonsense"}, "no JSON"),
    ],
)
def test_a_broken_part_is_named_with_its_place(broken: dict[str, bytes | None], why: str) -> None:
    whole: dict[str, bytes | None] = {**run_record.encode_new(a_run(100))}
    nodes = {name: data for name, data in (whole | broken).items() if data is not None}

    with pytest.raises(UnreadableRecordError, match=f"(?s)/runs/r.*{why}"):
        run_record.decode(nodes, "/runs/r")


def test_runs_of_one_plan_share_the_tasks_that_have_not_begun() -> None:
    nodes = run_record.encode_new(a_run(100))

    one, other = (run_record.decode(nodes, "/runs/r") for _ in range(2))

    assert all(
        mine is theirs for mine, theirs in zip(one.tasks.in_order(), other.tasks.in_order(), strict=True)
    )
    assert one.tasks.plan is other.tasks.plan


def test_class_of_failure_that_a_later_release_added_is_read_as_another_error() -> None:
    text = json.dumps(
        {
            "schema": 1,
            "attempt": "r.t0.1",
            "outcome": "failed",
            "failure": "out_of_quota",
            "written_by": "runner",
            "ended_at": NOW.isoformat(),
        }
    )

    assert END.decode(text.encode(), "/attempts/r.t0.1/end").failure is FailureClass.ERROR
