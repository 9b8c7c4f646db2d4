"""What one turn of the engine does with much work, and that the rest follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.runs import creation, prepare
from nimbus.domain import writes as w
from nimbus.domain.commands import PauseRun, ResumeRun, StopRun
from nimbus.domain.ids import AttemptId, ReleaseDigest, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec, Priority
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.engine.events import AttemptChanged
from nimbus.engine.state.runs import TASKS_AT_ONCE
from nimbus.engine.state_reader import MAX_TOGETHER
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictLeaderStore
from tests.nimbus.engine_bench import NAME, NOW, RUN, SPEC, START, WORKER, Bench

WIDE = TASKS_AT_ONCE + 2 * MAX_TOGETHER
PATHS = Paths("/nimbus")


def wide(size: int = WIDE) -> PipelineSpec:
    """Tasks without needs, and a last one that needs all others."""
    (task,) = SPEC.tasks
    tasks = [replace(task, name=TaskName(f"t{number:04}")) for number in range(size)]
    return replace(
        SPEC, tasks=(*tasks, replace(task, name=TaskName("z"), needs=tuple(t.name for t in tasks)))
    )


@pytest.fixture
def bench() -> Bench:
    """A pipeline with many tasks, and a worker with room for all of them."""
    made = Bench()
    made.cluster.change(
        pipelines={NAME: active(wide(), schedule_position=NOW, updated_at=NOW)},
        workers={WORKER.id: replace(WORKER, slots=WIDE)},
    )
    made.elect(2)
    return made


def opened(bench: Bench) -> list[Sequence[TaskName]]:
    """The tasks that each transaction has opened, without those that opened none."""
    batches = (
        [one.attempt.task for one in writes if isinstance(one, w.CreateAttempt)]
        for writes in bench.cluster.commits
    )
    return [tasks for tasks in batches if tasks]


def test_all_tasks_of_a_large_run_are_opened_once_and_in_order_a_few_at_a_time(bench: Bench) -> None:
    bench.submit(START)

    bench.decide()

    batches = opened(bench)
    assert [task for tasks in batches for task in tasks] == [f"t{number:04}" for number in range(WIDE)]
    assert max(map(len, batches)) == MAX_TOGETHER


def test_large_run_that_is_stopped_between_two_turns_opens_no_more_tasks(bench: Bench) -> None:
    bench.submit(START)
    bench.decide_once()
    before = sum(map(len, opened(bench)))
    assert bench.term.state.runs.left

    bench.submit(StopRun(run_id=RUN, reason="test"))
    bench.decide()

    assert sum(map(len, opened(bench))) == before < WIDE
    assert bench.run().state is RunState.STOPPED
    assert bench.run().tasks.count(TaskState.NOT_RUN) == WIDE + 1


def test_tasks_of_a_large_run_that_is_resumed_are_queued_over_several_turns(bench: Bench) -> None:
    bench.submit(START)
    bench.decide_once()
    bench.submit(PauseRun(run_id=RUN))
    bench.decide()
    assert bench.run().paused is not None
    assert not len(bench.term.state.ready)
    before = sum(map(len, opened(bench)))

    bench.submit(ResumeRun(run_id=RUN))
    bench.decide_once()

    assert bench.term.state.runs.left
    bench.decide()
    assert sum(map(len, opened(bench))) == WIDE > before + TASKS_AT_ONCE


def test_stop_of_a_large_run_examines_each_of_its_attempts_a_few_times(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.submit(START)
    bench.decide()
    for attempt in bench.run().open_attempts():
        bench.claim(attempt)
    bench.decide()
    examined = Counter[TaskName]()
    original = lifecycle.must_stop

    def must_stop(run: Run, name: TaskName) -> bool:
        examined[name] += 1
        return original(run, name)

    monkeypatch.setattr(lifecycle, "must_stop", must_stop)
    bench.submit(StopRun(run_id=RUN, reason="test"))
    bench.decide()

    open_tasks = [task for task in bench.run().tasks.in_order() if task.open_attempt is not None]
    assert len(open_tasks) == WIDE
    assert all(task.open_attempt is not None and task.open_attempt.stop_requested for task in open_tasks)
    assert max(examined.values()) <= 5


def test_successor_opens_the_tasks_that_its_predecessor_had_not_reached(bench: Bench) -> None:
    bench.submit(START)
    bench.decide_once()

    bench.elect(3)
    bench.decide()

    assert [task for tasks in opened(bench) for task in tasks] == [f"t{number:04}" for number in range(WIDE)]


def test_changed_attempts_are_read_a_few_at_a_time_and_each_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.submit(START)
    bench.decide()
    attempts = bench.run().open_attempts()
    for attempt in attempts:
        bench.claim(attempt)
        bench.end(attempt, Outcome.SUCCEEDED)
    read: list[Sequence[AttemptId]] = []
    original = DictLeaderStore.read_ends
    monkeypatch.setattr(
        DictLeaderStore, "read_ends", lambda store, some: read.append(some) or original(store, some)
    )

    bench.term.read_changes([AttemptChanged(attempt) for attempt in (*attempts, *attempts)])
    assert [len(some) for some in read] == [MAX_TOGETHER]
    while bench.term.has_more():
        bench.term.decide()
        bench.term.read_changes(())

    assert sorted(attempt for some in read for attempt in some) == sorted(attempts)
    assert bench.run().tasks.count(TaskState.SUCCEEDED) == WIDE


def a_run(size: int) -> Run:
    draft = Draft(
        id=RUN, pipeline=NAME, release=ReleaseDigest("0" * 64), parameters={}, logical_date=NOW,
        cause=RunCause.MANUAL, priority=Priority.MEDIUM, asked_at=NOW,
    )  # fmt: skip
    return new_run(wide(size), draft)


@pytest.mark.parametrize("size", [3, 100])
def test_run_that_is_encoded_ahead_is_written_as_any_other(size: int) -> None:
    run = a_run(size)
    plain = list(creation(PATHS, run))

    prepare(run)

    head, *parts = creation(PATHS, replace(run, number=7))
    assert parts == plain[1:]
    assert head != plain[0]
    prepare(run)
    name = TaskName("t0000")
    changed = run.with_tasks(run.tasks.replaced([replace(run.tasks[name], warned=1)]))
    assert list(creation(PATHS, changed)) != plain, "what has changed since is written"
