"""Admission with any workers: it takes the best one, and rule and explanation give the same answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nimbus.api.explain.task import ClusterFacts, why
from nimbus.domain.attempts.slots import End
from nimbus.domain.attempts.workers import Refusals, WorkerInfo, jvm_release
from nimbus.domain.cluster import schema
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    FailureStrategy,
    Priority,
    SparkDeploy,
    SparkPlace,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.admission import Capacity, Grant, Wait, WaitReason, admit, by_rank, target_slots
from nimbus.engine.decision import Decision
from nimbus.engine.rules import assign
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant
from tests.nimbus.engine_bench import WORKER
from tests.nimbus.simulation.engine_laws import busy_on

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
A = TaskName("a")
NAMES = [WorkerId(f"w{number}") for number in range(3)]
JVM = jvm_release(PipelineName("p"), ReleaseDigest("0" * 64))

workers = st.lists(
    st.builds(
        lambda name, slots, draining, load, newest, java, targets, labels, lacks, jvms: replace(
            WORKER,
            id=name,
            slots=slots,
            draining=draining,
            load_average=load,
            newest_schema=newest,
            has_java=java,
            targets=targets,
            labels=labels,
            lacks=lacks,
            jvm_releases=jvms,
        ),
        st.sampled_from(NAMES),
        st.integers(1, 2),
        st.sampled_from([False, False, True]),
        st.sampled_from([0.0, 1.0, 2.5]),
        st.sampled_from([1, 2]),
        st.booleans(),
        st.sampled_from([{}, {"big": 1}, {"big": 2}]),
        st.sampled_from([(), ("gpu",), ("eu", "gpu")]),
        st.sampled_from(["", "", "1 MiB of memory free"]),
        st.sampled_from([(), (), (JVM,), ("other/1", JVM)]),
    ),
    max_size=len(NAMES),
    unique_by=lambda worker: worker.id,
)
BIG = SparkPlace(target="big")
History = list[tuple[WorkerId, Outcome | None, int, SparkPlace | None]]
"""Attempts: worker, outcome if ended, age in seconds, and the place of their Spark."""
places = st.sampled_from([None, BIG])
histories: st.SearchStrategy[History] = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from([None, *Outcome]), st.sampled_from([0, 5, 90]), places),
    max_size=8,
)


kinds = st.sampled_from([TaskKind.PYTHON, TaskKind.PYSPARK, TaskKind.SHELL, TaskKind.SPARK_SUBMIT])


@pytest.fixture(autouse=True, scope="module")
def _places_came_with_schema_2() -> Iterator[None]:
    with patch.object(schema, "NEEDED", {"spark_place": 2}):
        yield


def _run(
    name: str,
    kind: TaskKind = TaskKind.PYTHON,
    place: SparkPlace | None = None,
    labels: tuple[str, ...] = (),
) -> Run:
    spec = TaskSpec(name=A, kind=kind, script="a.py", spark_place=place, runs_on=labels)
    return Run(
        id=RunId(name),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.CONTINUE,
        tasks=Tasks([TaskRun(spec=spec)]),
    )


def _steps(
    name: str, worker: WorkerId, outcome: Outcome | None, ago_s: int, place: SparkPlace | None
) -> list[Run]:
    """A run before and after its attempt has ended."""
    at = NOW - timedelta(seconds=ago_s)
    opened = lifecycle.open_attempt(_run(name, place=place), A, worker=worker, epoch=1, now=at)
    if outcome is None:
        return [opened]
    end = End(attempt=f"{name}.a.1", outcome=outcome, written_by="runner", ended_at=at)
    closed = lifecycle.close_attempt(
        opened, AttemptId(opened.id, A, 1), end, max_infrastructure_failures=9, now=at
    )
    return [opened, closed]


occupied = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2))
refusing = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(
        lambda count, ago: Refusals(count, NOW - timedelta(seconds=ago)),
        st.integers(1, 4),
        st.sampled_from([0, 90]),
    ),
)


def _capacity(
    workers: list[WorkerInfo],
    busy: Mapping[WorkerId, int],
    refused: Mapping[WorkerId, Refusals],
    at_big: int = 0,
) -> Capacity:
    return Capacity(
        workers=workers,
        free=by_rank(workers, busy, refused),
        submitting=[worker for worker in workers if not (worker.draining or worker.lacks)],
        refusals=refused,
        target_slots=target_slots(workers),
        open_at=lambda _: at_big,
        pools={},
        used=lambda _: 0,
        busy=lambda worker: busy.get(worker, 0),
        jvm_releases={name for worker in workers for name in worker.jvm_releases},
    )


def _lost_on(unlucky: set[WorkerId], kind: TaskKind, place: SparkPlace | None) -> TaskRun:
    """A task that these workers have lost."""
    task = _run("r", kind, place).tasks[A]
    for number, worker in enumerate(sorted(unlucky), start=1):
        run = lifecycle.open_attempt(_run("r", kind, place), A, worker=worker, epoch=1, now=NOW)
        attempt = replace(run.tasks[A].attempts[0], number=number, outcome=Outcome.LOST, ended_at=NOW)
        task = replace(task, attempts=(*task.attempts, attempt))
    return task


@given(
    workers=workers,
    later=workers,
    history=histories,
    then=histories,
    anew=st.booleans(),
    kind=kinds,
    place=places,
    labels=st.sampled_from([(), (), ("eu",), ("eu", "gpu")]),
)
def test_the_rule_and_the_explanation_agree_for_any_cluster(
    workers: list[WorkerInfo],
    later: list[WorkerInfo],
    history: History,
    then: History,
    anew: bool,
    kind: TaskKind,
    place: SparkPlace | None,
    labels: tuple[str, ...],
) -> None:
    now, ready = Instant(NOW, 0.0), _run("ready", kind, place, labels)
    state = State(epoch=1, schema=1)
    state.put_workers(workers, now)
    for number, attempt in enumerate(history):
        for run in _steps(f"a{number}", *attempt):
            state.runs.put(run, now)
    state.put_workers(later, now)
    for number, attempt in enumerate(then):
        for run in _steps(f"b{number}", *attempt):
            state.runs.put(run, now)
    if anew:
        known, state = state.runs.live, State(epoch=2, schema=1)
        state.put_workers(later, now)
        for run in known.values():
            state.runs.put(run, now)
        state.finish_loading()
    state.runs.put(ready, now)

    decision = assign.open_attempt(state, ready.id, A, NOW)
    busy, refusals = busy_on(state), state.attempts.workers.refusals
    at_big = [
        run for run in state.runs.live.values() if run.open_attempts() and run.tasks[A].spec.spark_place
    ]
    capacity = _capacity(later, busy, refusals, len(at_big))
    told = why(ready, ready.tasks[A], None, ClusterFacts(now=NOW, leader="s", capacity=lambda: capacity))

    assert list(state.attempts.workers.free) == capacity.free
    assert isinstance(decision, Decision) == (told == "ready: the leader gives it to a worker next")
    answer = admit(ready, ready.tasks[A], capacity, NOW)
    assert isinstance(decision, Decision) == isinstance(answer, Grant)
    if isinstance(decision, Decision) and isinstance(answer, Grant):
        assert decision.about["worker"] == answer.worker.id


@given(
    workers=workers,
    busy=occupied,
    refused=refusing,
    unlucky=st.sets(st.sampled_from(NAMES)),
    kind=kinds,
    place=places,
    at_big=st.integers(0, 2),
)
def test_the_best_worker_is_granted_and_a_wait_is_no_longer_than_needed(
    workers: list[WorkerInfo],
    busy: dict[WorkerId, int],
    refused: dict[WorkerId, Refusals],
    unlucky: set[WorkerId],
    kind: TaskKind,
    place: SparkPlace | None,
    at_big: int,
) -> None:
    task = _lost_on(unlucky, kind, place)
    needed = 2 if place else 1
    suited = [worker for worker in workers if worker.newest_schema >= needed]
    suited = [worker for worker in suited if place is None or "big" in worker.targets]
    reuses = kind is TaskKind.PYSPARK and place is None
    full = place is not None and at_big >= target_slots(workers).get("big", 0)
    if kind in (TaskKind.PYSPARK, TaskKind.SPARK_SUBMIT):
        suited = [worker for worker in suited if worker.has_java] or suited
    accepting = [worker for worker in suited if not (worker.draining or worker.lacks)]
    rested = [w for w in accepting if w.id not in refused or refused[w.id].until <= NOW]
    able = [w for w in rested or accepting if busy.get(w.id, 0) < w.slots]

    def cost(worker: WorkerInfo) -> tuple[object, ...]:
        count = refused[worker.id].count if worker.id in refused else 0
        free = worker.slots - busy.get(worker.id, 0)
        return worker.id in unlucky, count, -free, worker.load_average, worker.id

    capacity = _capacity(workers, busy, refused, at_big)
    answer = admit(_run("p"), task, capacity, NOW)

    if isinstance(answer, Grant):
        assert not full
        equal = [worker for worker in able if cost(worker)[:3] == min(map(cost, able))[:3]]
        with_jvm = [w for w in equal if JVM in w.jvm_releases and w.id not in unlucky and reuses]
        assert answer.worker == min(with_jvm or equal, key=cost)
        return
    assert isinstance(answer, Wait)
    assert full or not able
    assert (answer.reason is WaitReason.TARGET_FULL) <= full
    if answer.until is not None:
        assert isinstance(admit(_run("p"), task, capacity, answer.until), Grant)


alike = st.tuples(
    *(
        st.builds(
            lambda name, slots, load, jvms: replace(
                WORKER, id=name, slots=slots, load_average=load, jvm_releases=jvms
            ),
            st.just(name),
            st.integers(1, 2),
            st.sampled_from([0.0, 1.0]),
            st.sampled_from([(), (JVM,)]),
        )
        for name in NAMES
    )
).map(list)


@example(
    workers=[
        replace(WORKER, id=NAMES[0]),
        replace(WORKER, id=NAMES[1], load_average=9.0, jvm_releases=(JVM,)),
    ],
    busy={},
    refused={},
    unlucky={NAMES[1]},
)
@given(workers=alike, busy=occupied, refused=refusing, unlucky=st.sets(st.sampled_from(NAMES), max_size=2))
def test_preference_for_a_kept_jvm_makes_no_task_wait_and_takes_no_fuller_worker(
    workers: list[WorkerInfo],
    busy: dict[WorkerId, int],
    refused: dict[WorkerId, Refusals],
    unlucky: set[WorkerId],
) -> None:
    task = _lost_on(unlucky, TaskKind.PYSPARK, None)
    without = [replace(worker, jvm_releases=()) for worker in workers]

    answer = admit(_run("p"), task, _capacity(workers, busy, refused), NOW)

    plain = admit(_run("p"), task, _capacity(without, busy, refused), NOW)
    if isinstance(answer, Wait) or isinstance(plain, Wait):
        assert answer == plain
        return

    def standing(worker: WorkerInfo) -> tuple[object, ...]:
        count = refused[worker.id].count if worker.id in refused else 0
        return worker.id in unlucky, worker.has_java, count, worker.slots - busy.get(worker.id, 0)

    assert standing(answer.worker) == standing(plain.worker)


def test_driver_in_a_cluster_takes_no_slot_of_its_worker() -> None:
    place = SparkPlace(target="big", deploy=SparkDeploy.CLUSTER)
    state, now = State(epoch=1, schema=1), Instant(NOW, 0.0)
    only_runs = replace(WORKER, id=NAMES[0], newest_schema=2, targets={"big": 9})
    worker = replace(only_runs, id=NAMES[1], slots=1, submits=("big",))
    state.put_workers([only_runs, worker], now)
    for number in range(3):
        run = _run(f"r{number}", TaskKind.PYSPARK, place)
        answer = admit(run, run.tasks[A], state.capacity(), NOW)
        assert isinstance(answer, Grant)
        assert answer.worker == worker
        state.runs.put(lifecycle.open_attempt(run, A, worker=worker.id, epoch=1, now=NOW), now)

    state.put_workers([worker], now)
    assert isinstance(admit(_run("p"), _run("p").tasks[A], state.capacity(), NOW), Grant)
