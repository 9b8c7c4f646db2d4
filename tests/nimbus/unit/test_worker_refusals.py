"""A worker that does not start its attempts gets none for some time, if there are other workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nimbus.domain.commands import StopRun
from nimbus.domain.ids import AttemptId, HostId, RunId, TaskName, WorkerId
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import Outcome
from tests.nimbus.engine_bench import START, WORKER, Bench

BROKEN, GOOD = replace(WORKER, slots=9), replace(WORKER, id=WorkerId("w2"), host=HostId("h2"), slots=1)


def first_of(run: str) -> AttemptId:
    return AttemptId(RunId(run), TaskName("a"), 1)


def started(bench: Bench, run: str) -> str | None:
    """Start a run. Returns the worker that got it."""
    bench.submit(replace(START, run_id=RunId(run)))
    bench.decide()
    return worker_of(bench, run)


def worker_of(bench: Bench, run: str) -> str | None:
    attempts = bench.run(RunId(run)).tasks[TaskName("a")].attempts
    return attempts[-1].worker if attempts else None


def refused(times: int = 1) -> Bench:
    """The worker with most free slots has refused an attempt, or more."""
    bench = Bench()
    bench.cluster.change(workers={BROKEN.id: BROKEN})
    for number in range(times):
        assert started(bench, f"refused-{number}") == BROKEN.id
    bench.cluster.change(workers={BROKEN.id: BROKEN, GOOD.id: GOOD})
    for number in range(times):
        bench.end(first_of(f"refused-{number}"), Outcome.REFUSED)
        bench.submit(StopRun(run_id=RunId(f"refused-{number}"), reason="done with it"))
    bench.decide()
    return bench


def test_the_next_task_goes_to_another_worker_when_one_has_refused() -> None:
    bench = refused()

    assert started(bench, "next") == GOOD.id


def test_a_refusal_by_a_pipelines_own_fault_says_nothing_of_its_worker() -> None:
    bench = Bench()
    bench.cluster.change(workers={BROKEN.id: BROKEN, GOOD.id: GOOD})
    assert started(bench, "unfit") == BROKEN.id
    bench.end(first_of("unfit"), Outcome.REFUSED, pipeline_at_fault=True)
    bench.submit(StopRun(run_id=RunId("unfit"), reason="done with it"))
    bench.decide()

    assert started(bench, "next") == BROKEN.id
    bench.elect(2)
    assert started(bench, "after") == BROKEN.id


def test_a_refusal_by_a_pipelines_own_fault_ends_no_back_off() -> None:
    bench = refused()
    bench.clocks.pass_s(10)
    bench.cluster.change(workers={BROKEN.id: BROKEN})
    assert started(bench, "unfit") == BROKEN.id
    bench.end(first_of("unfit"), Outcome.REFUSED, pipeline_at_fault=True)
    bench.submit(StopRun(run_id=RunId("unfit"), reason="done with it"))
    bench.decide()

    assert bench.term.state.attempts.workers.refusals[BROKEN.id].count == 1


def test_a_new_leader_finds_the_refusals_in_the_records() -> None:
    bench = refused()
    bench.elect(2)

    assert started(bench, "next") == GOOD.id


def test_a_task_waits_for_the_end_of_a_back_off_when_all_others_are_full() -> None:
    bench = refused()
    assert started(bench, "next") == GOOD.id

    assert started(bench, "waits") is None
    assert bench.term.idle_s() == 10
    bench.clocks.pass_s(10)
    bench.decide()

    assert worker_of(bench, "waits") == BROKEN.id


@pytest.mark.parametrize(("times", "seconds"), [(2, 20), (5, 160), (9, 300)])
def test_a_back_off_grows_with_each_refusal_in_a_row_up_to_a_limit(times: int, seconds: int) -> None:
    bench = refused(times)
    assert started(bench, "next") == GOOD.id
    assert started(bench, "waits") is None

    assert bench.term.idle_s() == seconds


def test_the_worker_with_fewest_refusals_is_used_when_all_back_off() -> None:
    bench = refused(2)
    assert started(bench, "bad") == GOOD.id
    bench.end(first_of("bad"), Outcome.REFUSED)
    bench.decide()

    assert started(bench, "next") == GOOD.id


def test_the_only_worker_is_used_whatever_it_has_refused() -> None:
    bench = refused(3)
    bench.cluster.change(workers={BROKEN.id: BROKEN})

    assert started(bench, "next") == BROKEN.id


def test_a_worker_that_starts_an_attempt_is_as_good_as_before() -> None:
    bench = refused()
    bench.clocks.pass_s(10)
    bench.cluster.change(workers={BROKEN.id: BROKEN})
    assert started(bench, "works") == BROKEN.id
    bench.end(first_of("works"), Outcome.FAILED)
    bench.decide()
    bench.cluster.change(workers={BROKEN.id: BROKEN, GOOD.id: GOOD})

    assert started(bench, "next") == BROKEN.id


def test_an_attempt_that_began_before_the_refusal_proves_nothing() -> None:
    bench = Bench()
    bench.cluster.change(workers={BROKEN.id: BROKEN})
    assert started(bench, "early") == BROKEN.id
    early = bench.clocks.now()
    assert started(bench, "refused") == BROKEN.id
    bench.clocks.pass_s(1)
    bench.end(first_of("refused"), Outcome.REFUSED)
    bench.decide()
    bench.end(first_of("early"), Outcome.SUCCEEDED, started_at=early)
    bench.cluster.change(workers={BROKEN.id: BROKEN, GOOD.id: GOOD})
    bench.decide()

    assert bench.run(RunId("early")).state is RunState.SUCCEEDED
    assert started(bench, "next") == GOOD.id


def test_an_attempt_that_was_fenced_because_its_run_stopped_is_no_refusal() -> None:
    bench = Bench()
    bench.cluster.change(workers={BROKEN.id: BROKEN, GOOD.id: GOOD})
    assert started(bench, "stopped") == BROKEN.id
    bench.submit(StopRun(run_id=RunId("stopped"), reason="no need"))
    bench.decide()
    assert bench.run(RunId("stopped")).tasks[TaskName("a")].attempts[0].outcome is Outcome.FENCED

    assert started(bench, "next") == BROKEN.id
    bench.elect(2)
    assert started(bench, "after") == BROKEN.id


def test_an_attempt_that_was_not_claimed_in_time_counts_as_refused() -> None:
    bench = Bench()
    bench.cluster.change(workers={BROKEN.id: BROKEN, GOOD.id: GOOD})
    assert started(bench, "stuck") == BROKEN.id
    bench.clocks.pass_s(600)
    bench.decide()
    bench.submit(StopRun(run_id=RunId("stuck"), reason="done with it"))

    assert started(bench, "next") == GOOD.id
