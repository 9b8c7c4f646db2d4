"""`queue_timeout`: a task that waits too long for a slot fails, with the reason of its wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from nimbus.domain.commands import PauseRun, ResumeRun, StartRun
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec, Retries
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import ATTEMPT, NAME, NOW, RUN, SPEC, START, WORKER, Bench

(TASK,) = SPEC.tasks
PATIENT = timedelta(minutes=5)
ABLE = WORKER


def bench_with(**changes: object) -> Bench:
    task = replace(TASK, queue_timeout=PATIENT, **changes)  # type: ignore[arg-type]
    return bench_of(replace(SPEC, tasks=(task,)))


def bench_of(spec: PipelineSpec) -> Bench:
    bench = Bench()
    record = active(spec, schedule_position=NOW, updated_at=NOW)
    bench.cluster.change(pipelines={NAME: record}, workers={ABLE.id: ABLE})
    bench.elect(2)
    return bench


def task_of(bench: Bench, run: RunId = RUN) -> TaskRun:
    return bench.run(run).tasks[TaskName("a")]


def reason_of(bench: Bench, run: RunId = RUN) -> str:
    settled = task_of(bench, run).settled
    assert settled is not None
    return settled.reason


def test_task_fails_with_what_held_it_when_it_has_waited_too_long() -> None:
    bench = bench_with()
    bench.cluster.change(workers={})
    bench.submit(START)
    bench.decide()
    bench.clocks.pass_s(299)
    bench.decide()
    assert task_of(bench).state is TaskState.WAITING

    bench.clocks.pass_s(1)
    bench.decide()

    assert task_of(bench).state is TaskState.FAILED
    assert reason_of(bench) == "waited longer than its queue_timeout (0:05:00): no worker was registered"
    assert bench.run().state is RunState.FAILED


def test_task_that_has_started_in_time_does_not_fail_later() -> None:
    bench = bench_with()
    bench.submit(START)
    bench.decide()
    bench.claim()
    bench.clocks.pass_s(600)
    bench.decide()

    assert task_of(bench).state is TaskState.RUNNING


def test_wait_begins_anew_after_the_pause_of_a_retry() -> None:
    bench = bench_with(retries=Retries(limit=1, delay=timedelta(minutes=10)))
    bench.submit(START)
    bench.decide()
    bench.claim()
    bench.end(ATTEMPT, Outcome.FAILED)
    bench.decide()
    bench.cluster.change(workers={})
    bench.clocks.pass_s(15 * 60 - 1)
    bench.decide()
    assert task_of(bench).state is TaskState.WAITING

    bench.clocks.pass_s(2)
    bench.decide()
    assert task_of(bench).state is TaskState.FAILED


def test_successor_starts_what_can_start_before_it_calls_anything_overdue() -> None:
    bench = bench_with()
    bench.cluster.change(workers={})
    bench.submit(START)
    bench.decide()
    bench.clocks.pass_s(3600)
    bench.cluster.change(workers={ABLE.id: ABLE})
    bench.elect(3)
    bench.decide()

    assert task_of(bench).state is TaskState.RUNNING


def test_successor_finds_what_is_overdue_in_the_records() -> None:
    bench = bench_with()
    bench.cluster.change(workers={})
    bench.submit(START)
    bench.decide()
    bench.clocks.pass_s(3600)
    bench.elect(3)
    bench.decide()

    assert task_of(bench).state is TaskState.FAILED


def test_paused_run_fails_no_task_and_starts_what_it_can_when_it_is_resumed() -> None:
    bench = bench_with()
    bench.cluster.change(workers={})
    bench.submit(START)
    bench.decide()
    bench.submit(PauseRun(run_id=RUN))
    bench.decide()
    bench.clocks.pass_s(3600)
    bench.decide()
    assert task_of(bench).state is TaskState.WAITING

    bench.cluster.change(workers={ABLE.id: ABLE})
    bench.submit(ResumeRun(run_id=RUN))
    bench.decide()
    assert task_of(bench).state is TaskState.RUNNING


def test_full_pool_is_named() -> None:
    bench = bench_with(pools={"db": 1})
    settings = replace(bench.cluster.world.settings, pools={"db": 1})
    bench.cluster.change(settings=settings)
    bench.elect(3)
    for run in ("p-1", "p-2"):
        bench.submit(StartRun(pipeline=NAME, run_id=RunId(run)))
    bench.decide()
    bench.claim(AttemptId(RunId("p-1"), TaskName("a"), 1))
    bench.clocks.pass_s(300)
    bench.decide()

    assert reason_of(bench, RunId("p-2")).endswith(": pool db had too little left")
