"""`late` and `waiting_for_approval`: raised before and after the end, once each, by any leader."""

from __future__ import annotations

from dataclasses import replace
from datetime import time, timedelta

from nimbus.definition import parse_definition
from nimbus.domain.cluster.alerts import Lateness
from nimbus.domain.commands import DecideApproval, StartRun
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.pipelines.catalog import profile_of
from nimbus.domain.pipelines.pipeline import Concurrency, PipelineSpec, Retries, TaskKind
from nimbus.domain.runs.growth import largest
from nimbus.domain.runs.task_run import Outcome
from nimbus.records import RUN
from nimbus.run_record import decode, encode_new
from tests.nimbus.engine_bench import NAME, SPEC, WORKER
from tests.nimbus.unit.test_engine_alerts import TOLD, AlertBench

(TASK,) = SPEC.tasks
FIVE = timedelta(minutes=5)
R = RunId("p-1")
A1 = AttemptId(R, TaskName("a"), 1)


def with_task(**changes: object) -> PipelineSpec:
    return replace(TOLD, tasks=(replace(TASK, **changes),))  # type: ignore[arg-type]


def bench_of(spec: PipelineSpec) -> AlertBench:
    bench = AlertBench(spec)
    bench.cluster.change(workers={WORKER.id: WORKER})
    bench.elect(2)
    return bench


def started(spec: PipelineSpec) -> AlertBench:
    bench = bench_of(spec)
    bench.submit(StartRun(pipeline=NAME, run_id=R))
    bench.decide()
    return bench


def told(bench: AlertBench) -> list[str]:
    return sorted(alert for alert in bench.alerts() if not alert.startswith("succeeded"))


def later(bench: AlertBench, seconds: float, epoch: int | None = None) -> list[str]:
    bench.clocks.pass_s(seconds)
    if epoch is not None:
        bench.elect(epoch)
    bench.decide()
    return told(bench)


def test_run_is_told_as_late_once_when_it_is_under_way_for_warn_after() -> None:
    bench = started(replace(TOLD, warn_after=FIVE))
    bench.claim(A1)
    assert later(bench, 299) == []

    assert later(bench, 1) == ["late.p-1.warn_after.oncall"]
    assert bench.alerts()["late.p-1.warn_after.oncall"].about == (
        "run p-1 is late: it has been under way for more than 5m (warn_after)"
    )
    bench.answer()
    assert later(bench, 7200, epoch=3) == []  # the alert was dropped, an hour after it was sent


def test_run_that_ends_in_time_is_not_late() -> None:
    bench = started(replace(TOLD, warn_after=FIVE, expect=FIVE))
    bench.claim(A1)
    bench.clocks.pass_s(299)
    bench.end(A1, Outcome.SUCCEEDED)
    bench.decide()

    assert later(bench, 3600) == []


def test_run_that_ended_late_while_nobody_led_is_told_as_late_by_the_next_leader() -> None:
    bench = started(replace(TOLD, warn_after=FIVE, tasks=(replace(TASK, warn_after=FIVE),)))
    bench.claim(A1)
    bench.clocks.pass_s(301)
    bench.end(A1, Outcome.SUCCEEDED)
    bench.elect(3)
    bench.decide()

    assert told(bench) == ["late.p-1.a.1.oncall", "late.p-1.warn_after.oncall"]


def test_each_attempt_of_a_task_is_told_as_late_once() -> None:
    bench = started(with_task(warn_after=FIVE, retries=Retries(limit=1, delay=timedelta(seconds=1))))
    bench.claim(A1)
    assert later(bench, 300) == ["late.p-1.a.1.oncall"]
    assert later(bench, 300, epoch=3) == ["late.p-1.a.1.oncall"]
    bench.end(A1, Outcome.FAILED)
    bench.decide()
    later(bench, 2)
    bench.claim(AttemptId(R, TaskName("a"), 2))

    assert later(bench, 299) == ["late.p-1.a.1.oncall"]
    assert later(bench, 1) == ["late.p-1.a.1.oncall", "late.p-1.a.2.oncall"]


def test_approval_is_asked_for_once_and_told_as_late_when_nobody_decides() -> None:
    bench = started(with_task(kind=TaskKind.APPROVAL, script="", args=("go?",), warn_after=FIVE))
    assert told(bench) == ["waiting_for_approval.p-1.a.oncall"]
    assert bench.alerts()["waiting_for_approval.p-1.a.oncall"].about == (
        "task a of run p-1 waits for an approval: go?"
    )
    bench.answer()

    assert later(bench, 7200, epoch=3) == ["late.p-1.a.1.oncall"]
    bench.submit(DecideApproval(run_id=R, task=TaskName("a"), approved=True, reason="fine"))
    bench.decide()
    assert told(bench) == ["late.p-1.a.1.oncall"]


def test_run_that_cannot_end_in_time_is_foretold_from_the_runs_before() -> None:
    bench = bench_of(replace(TOLD, expect=timedelta(minutes=10), concurrency=Concurrency(limit=1)))
    for number in range(10, 15):
        bench.submit(StartRun(pipeline=NAME, run_id=RunId(f"p-{number}")))
        bench.decide()
        attempt = AttemptId(RunId(f"p-{number}"), TaskName("a"), 1)
        bench.claim(attempt)
        bench.clocks.pass_s(240)
        bench.end(attempt, Outcome.SUCCEEDED)
        bench.decide()
    bench.answer()
    later(bench, 3600)
    assert bench.cluster.world.health[NAME].durations == (240.0,) * 5
    assert told(bench) == []

    for run in ("p-20", "p-1"):  # the second one is queued
        bench.submit(StartRun(pipeline=NAME, run_id=RunId(run)))
    bench.decide()
    bench.claim(AttemptId(RunId("p-20"), TaskName("a"), 1))

    assert later(bench, 359) == []
    assert later(bench, 1, epoch=3) == ["late.p-1.expect_soon.oncall"]
    assert later(bench, 239) == ["late.p-1.expect_soon.oncall"]
    both = ["late.p-1.expect.oncall", "late.p-1.expect_soon.oncall", "late.p-20.expect.oncall"]
    assert later(bench, 1) == both


def test_definition_says_what_is_late() -> None:
    text = """schema: 1
name: p
schedule: {cron: "@daily"}
warn_after: 40m
expect: 1h
deadline: "07:30"
tasks:
  a: {type: python, script: a.py, warn_after: 90s}
"""
    spec = parse_definition(text.encode(), "pipeline.yaml", is_published=True)

    assert (spec.warn_after, spec.expect) == (timedelta(minutes=40), timedelta(hours=1))
    assert spec.deadline == profile_of(spec).deadline == time(7, 30)
    assert spec.tasks[0].warn_after == timedelta(seconds=90)


def test_marks_are_kept_in_the_record() -> None:
    bench = started(replace(with_task(warn_after=FIVE), warn_after=FIVE))
    later(bench, 300)
    run = bench.run(R)
    assert (run.late, run.tasks[TaskName("a")].warned) == ((Lateness.WARN_AFTER,), 1)

    assert decode(encode_new(run), "run") == run
    assert RUN.decode(RUN.encode(run), "run") == run
    assert largest(run).late == tuple(Lateness)
