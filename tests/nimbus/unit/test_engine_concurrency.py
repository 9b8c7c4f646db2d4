"""Limits of live runs: of a pipeline, and in the cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.commands import Command, QueuedCommand, StartRun, StopRun
from nimbus.domain.ids import CommandId, HostId, PipelineName, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    Concurrency,
    PipelineSpec,
    Priority,
    Schedule,
    TaskKind,
    TaskSpec,
    WhenFull,
)
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import BuildRun, Decision
from nimbus.engine.policy import Policy
from nimbus.engine.rules import ask, next_key
from nimbus.engine.rules.run_starts import replaced
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant
from tests.nimbus.definitions import active, built

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAME = PipelineName("p")
TASK = TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py")
SPEC = PipelineSpec(name=NAME, tasks=(TASK,), concurrency=Concurrency(limit=1))
numbers = count()


def at(now: datetime) -> Instant:
    return Instant(now, (now - NOW).total_seconds())


def known(
    spec: PipelineSpec = SPEC, *, slots: int = 0, schema: int = 2, max_running: int | None = None
) -> State:
    """A leader's state with one active pipeline. `slots`: slots of its worker; 0: no worker."""
    state = State(epoch=3, schema=schema, policy=Policy(max_running=max_running))
    worker = WorkerInfo(
        id=WorkerId("w"),
        host=HostId("h"),
        hostname="h",
        pid=1,
        slots=slots,
        version="1",
        started_at=NOW,
        reported_at=NOW,
    )
    state.put_workers([worker] if slots else [], at(NOW))
    state.put_pipeline(active(spec, schedule_position=NOW, updated_at=NOW))
    state.finish_loading()
    return state


def submit(state: State, *commands: Command) -> None:
    for command in commands:
        number = next(numbers)
        state.commands.put(QueuedCommand(id=CommandId(f"cmd-{number}"), command=command, submitted_at=NOW))


def start(name: str, priority: Priority | None = None, pipeline: PipelineName = NAME) -> StartRun:
    return StartRun(pipeline=pipeline, run_id=RunId(name), priority=priority)


def decide_all(state: State, now: datetime = NOW) -> list[Decision]:
    """Decide until nothing is left to decide; runs are built at once."""
    done = []
    state.wake(at(now))
    while (key := next_key(state)) is not None:
        answer = ask(state, key, at(now))
        if not isinstance(answer, Decision):
            state.postpone(key, answer)
            continue
        state.apply(answer, at(now))
        done.append(answer)
        for effect in answer.effects:
            if isinstance(effect, BuildRun):
                state.run_built(effect.key, built(effect).built)
    return done


def a_claim(attempt: str) -> Claim:
    return Claim(
        attempt=attempt, worker=WorkerId("w"), host=HostId("h"), pid=1, start_ticks=1, claimed_at=NOW
    )


def states(state: State) -> dict[str, str]:
    return {str(key): run.state.value for key, run in sorted(state.runs.live.items())}


def end_all_attempts(state: State, now: datetime = NOW) -> None:
    for attempt in tuple(state.attempts.slots):
        end = End(attempt=str(attempt), outcome=Outcome.SUCCEEDED, reason="", written_by="r", ended_at=now)
        state.attempts.put_slots(attempt, Slots(end=end), at(now))


def test_run_is_queued_when_its_pipeline_is_full() -> None:
    state = known()
    submit(state, start("r1"), start("r2"), start("r3"))

    decide_all(state)

    assert states(state) == {"r1": "running", "r2": "queued", "r3": "queued"}
    assert state.runs.live[RunId("r2")].started_at is None


def test_queued_runs_start_first_in_first_out_inside_one_priority() -> None:
    state = known(slots=4)
    submit(state, start("r1"), start("r2"), start("r3"), start("r4", Priority.HIGH))
    order = []
    for _ in range(4):
        decide_all(state)
        order += [key for key, run in state.runs.live.items() if run.state is RunState.RUNNING]
        end_all_attempts(state)

    assert order == ["r1", "r4", "r2", "r3"]


def test_queued_run_opens_its_tasks_only_after_it_has_started() -> None:
    state = known(slots=4)
    submit(state, start("r1"), start("r2"))
    decide_all(state)
    assert {attempt.run for attempt in state.attempts.slots} == {"r1"}

    end_all_attempts(state)
    decided = [decision.name for decision in decide_all(state)]

    assert {attempt.run for attempt in state.attempts.slots} == {"r2"}
    assert decided.index("queued_run_started") < decided.index("attempt_opened")


def test_deadline_counts_from_the_start_when_a_run_was_queued() -> None:
    state = known(replace(SPEC, timeout=timedelta(minutes=10)))
    submit(state, start("r1"), start("r2"))
    decide_all(state)
    assert state.runs.live[RunId("r1")].deadline == NOW + timedelta(minutes=10)
    assert state.runs.live[RunId("r2")].deadline is None

    submit(state, StopRun(run_id=RunId("r1"), reason="test"))
    later = NOW + timedelta(minutes=7)
    decide_all(state, later)

    second = state.runs.live[RunId("r2")]
    assert (second.started_at, second.deadline) == (later, later + timedelta(minutes=10))


def test_queued_run_ends_at_once_when_it_is_stopped() -> None:
    state = known()
    submit(state, start("r1"), start("r2"), StopRun(run_id=RunId("r2"), reason="test"))

    stopped = [
        write.run
        for decision in decide_all(state)
        for write in decision.writes
        if isinstance(write, w.PutRun) and write.run.id == "r2"
    ]

    assert [run.state for run in stopped] == [RunState.STOPPED]
    assert states(state) == {"r1": "running"}


def test_queued_runs_start_when_a_release_with_a_higher_limit_becomes_active() -> None:
    state = known()
    submit(state, start("r1"), start("r2"), start("r3"))
    decide_all(state)

    wider = replace(SPEC, concurrency=Concurrency(limit=2))
    state.put_pipeline(active(wider, schedule_position=NOW, updated_at=NOW))
    decide_all(state)

    assert states(state) == {"r1": "running", "r2": "running", "r3": "queued"}


def test_runs_of_all_pipelines_count_when_the_cluster_has_a_limit() -> None:
    other = PipelineSpec(name=PipelineName("q"), tasks=(TASK,))
    state = known(replace(SPEC, concurrency=None), max_running=2)
    state.put_pipeline(active(other, schedule_position=NOW, updated_at=NOW))
    submit(
        state, start("r1"), start("r2", pipeline=other.name), start("r3"), start("r4", pipeline=other.name)
    )
    decide_all(state)
    assert states(state) == {"r1": "running", "r2": "running", "r3": "queued", "r4": "queued"}

    submit(state, StopRun(run_id=RunId("r1"), reason="test"))
    decide_all(state)

    assert states(state) == {"r2": "running", "r3": "running", "r4": "queued"}


def test_full_pipeline_does_not_hold_up_queued_runs_of_others() -> None:
    other = PipelineSpec(name=PipelineName("q"), tasks=(TASK,))
    state = known(max_running=2)
    state.put_pipeline(active(other, schedule_position=NOW, updated_at=NOW))
    submit(state, start("r1"), start("r2"), start("s1", pipeline=other.name))

    decide_all(state)

    assert states(state) == {"r1": "running", "r2": "queued", "s1": "running"}


SCHEDULED = replace(SPEC, schedule=Schedule(cron="*/5 * * * *", timezone="UTC", catchup=CatchUp.ALL))


def fired(when_full: WhenFull, *, minutes: int, limit: int = 1) -> State:
    spec = replace(SCHEDULED, concurrency=Concurrency(limit=limit, when_full=when_full))
    state = known(spec)
    for minute in range(0, minutes + 1, 5):
        decide_all(state, NOW + timedelta(minutes=minute))
    return state


def test_scheduled_runs_are_queued_when_the_pipeline_says_nothing_else() -> None:
    assert list(states(fired(WhenFull.QUEUE, minutes=15)).values()) == ["running", "queued", "queued"]


def test_fire_is_skipped_and_the_position_moves_when_a_scheduled_run_is_under_way() -> None:
    state = fired(WhenFull.SKIP, minutes=5)
    (decision,) = decide_all(state, NOW + timedelta(minutes=10))

    assert decision.name == "fire_skipped_full"
    assert state.catalog.pipelines[NAME].schedule_position == NOW + timedelta(minutes=10)
    assert list(states(state).values()) == ["running"]


def test_older_scheduled_run_is_stopped_and_the_newest_waits_for_its_end_when_it_is_replaced() -> None:
    spec = replace(SCHEDULED, concurrency=Concurrency(limit=1, when_full=WhenFull.REPLACE))
    state = known(spec, slots=1)
    first, second, third = (RunId(f"p-20260301t12{minute:02}00z") for minute in (5, 10, 15))
    for minute in (5, 10, 15):
        decide_all(state, NOW + timedelta(minutes=minute))
        for attempt in tuple(state.attempts.slots):  # a driver runs, so that a stop is slow
            state.attempts.put_slots(attempt, Slots(claim=a_claim(str(attempt)), has_heartbeat=True), at(NOW))
    assert states(state) == {first: "stopping", third: "queued"}
    assert second in state.runs.finished

    end_all_attempts(state)
    decide_all(state, NOW + timedelta(minutes=16))

    assert states(state) == {third: "running"}


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (RunState.QUEUED, {}, 1),
        (RunState.SUCCEEDED, {}, 0),  # all its tasks are skipped
        (RunState.QUEUED, {"verdict": RunState.FAILED}, 0),  # it cleans up, and frees its place by itself
    ],
)
def test_run_is_replaced_only_for_one_that_waits_for_its_room(
    new: RunState, old: dict[str, RunState], expected: int
) -> None:
    state = fired(WhenFull.REPLACE, minutes=5)
    (run,) = state.runs.live.values()
    state.runs.put(replace(run, **old), at(NOW))  # type: ignore[arg-type]  # keys are fixed above

    stops = replaced(state, state.catalog.pipelines[NAME], replace(run, id=RunId("new"), state=new), NOW)

    assert len(stops) == expected


@pytest.mark.parametrize("when_full", [WhenFull.SKIP, WhenFull.REPLACE])
def test_scheduled_run_queues_when_manual_runs_fill_the_pipeline(when_full: WhenFull) -> None:
    state = known(replace(SCHEDULED, concurrency=Concurrency(limit=1, when_full=when_full)))
    submit(state, start("manual"))
    decide_all(state)

    decide_all(state, NOW + timedelta(minutes=5))

    assert states(state) == {"manual": "running", "p-20260301t120500z": "queued"}


def test_scheduled_run_goes_before_manual_ones_of_its_priority() -> None:
    state = known(SCHEDULED)
    submit(state, start("r1"), start("r2"))
    decide_all(state)
    decide_all(state, NOW + timedelta(minutes=5))
    submit(state, StopRun(run_id=RunId("r1"), reason="test"))

    decide_all(state, NOW + timedelta(minutes=6))

    assert states(state) == {"p-20260301t120500z": "running", "r2": "queued"}


def test_successor_counts_the_runs_that_it_reads() -> None:
    state = known()
    submit(state, start("r1"), start("r2"), start("r3"))
    decide_all(state)

    heir = State(epoch=4, schema=1)
    for run in state.runs.live.values():
        heir.runs.put(run, at(NOW))
    for record in state.catalog.pipelines.values():
        heir.put_pipeline(record)
    heir.finish_loading()

    assert decide_all(heir) == []
    submit(heir, StopRun(run_id=RunId("r1"), reason="test"))
    decide_all(heir)
    assert states(heir) == {"r2": "running", "r3": "queued"}


@pytest.mark.parametrize("when_full", [WhenFull.SKIP, WhenFull.REPLACE])
def test_scheduled_run_queues_when_the_cluster_is_full_and_its_pipeline_is_not(when_full: WhenFull) -> None:
    spec = replace(SCHEDULED, concurrency=Concurrency(limit=2, when_full=when_full))
    state = known(spec, max_running=1)
    decide_all(state, NOW + timedelta(minutes=5))

    decide_all(state, NOW + timedelta(minutes=10))

    assert list(states(state).values()) == ["running", "queued"]
