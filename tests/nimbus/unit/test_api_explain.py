"""Why a task waits: one row for each reason, as facts in and a sentence out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nimbus.api.explain import run as explain_run
from nimbus.api.explain.queue import QueueView
from nimbus.api.explain.task import ClusterFacts, why, why_run
from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Slots
from nimbus.domain.attempts.supervision import Timings
from nimbus.domain.attempts.workers import Refusals, WorkerInfo
from nimbus.domain.cluster import schema
from nimbus.domain.ids import AttemptId, HostId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    FailureClass,
    FailureStrategy,
    Priority,
    Retries,
    SparkDeploy,
    SparkPlace,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Paused, Places, Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, Reused, Settlement, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.admission import Capacity, by_rank, target_slots
from nimbus.domain.starts.waits import SELF, DataSource, DataWait, LastProbe, PipelineWait
from tests.nimbus.pool_holders import pool_holders

NOW = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
A, B, C = TaskName("a"), TaskName("b"), TaskName("c")
W1 = WorkerId("w1")
WORKER = WorkerInfo(
    id=W1,
    host=HostId("h1"),
    hostname="one",
    pid=1,
    slots=2,
    version="0",
    started_at=NOW,
    draining=False,
    reported_at=NOW,
)


def _around(
    leader: str | None = "s1",
    workers: tuple[WorkerInfo, ...] = (WORKER,),
    busy: Mapping[WorkerId, int] | None = None,
    refusals: Mapping[WorkerId, Refusals] | None = None,
    open_at: int = 0,
    pools: Mapping[str, int] | None = None,
    used: int = 0,
    takers: tuple[tuple[Run, TaskRun], ...] = (),
) -> ClusterFacts:
    refusals = refusals or {}
    capacity = Capacity(
        workers=workers,
        free=by_rank(workers, busy or {}, refusals),
        submitting=[worker for worker in workers if not worker.draining],
        refusals=refusals,
        target_slots=target_slots(workers),
        open_at=lambda _: open_at,
        pools=pools or {},
        used=lambda _: used,
    )
    capacity = replace(capacity, holder=pool_holders(takers, capacity))
    return ClusterFacts(now=NOW, leader=leader, capacity=lambda: capacity)


AROUND = _around()
CLAIM = Claim(attempt="r.a.1", worker=W1, host=HostId("h1"), pid=9, claimed_at=NOW)


def _run(**changes: Any) -> Run:
    """`a`, then `b`, then `c`."""
    specs = [
        TaskSpec(name=A, kind=TaskKind.PYTHON, script="a.py"),
        TaskSpec(name=B, kind=TaskKind.PYTHON, script="b.py", needs=(A,)),
        TaskSpec(name=C, kind=TaskKind.PYTHON, script="c.py", needs=(B,)),
    ]
    run = Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.CONTINUE,
        tasks=Tasks(TaskRun(spec=spec) for spec in specs),
    )
    return replace(run, **changes)


def _opened(run: Run) -> Run:
    return lifecycle.open_attempt(run, A, worker=W1, epoch=1, now=NOW)


def _ended(run: Run, outcome: Outcome, failure: FailureClass | None = None) -> Run:
    end = End(
        attempt="r.a.1",
        outcome=outcome,
        failure=failure,
        written_by="runner",
        ended_at=NOW,
        reason="exit 1",
    )
    return lifecycle.close_attempt(
        run, AttemptId(RunId("r"), A, 1), end, max_infrastructure_failures=10, now=NOW
    )


OTHER = replace(WORKER, id=WorkerId("w2"), slots=1)
NEWER = replace(WORKER, id=WorkerId("w3"), newest_schema=2)
REFUSED = {W1: Refusals(3, NOW)}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"leader": None}, "no scheduler leads"),
        ({"workers": ()}, "no worker is registered"),
        ({"workers": (replace(WORKER, draining=True),)}, "the only worker is draining or cordoned"),
        ({"busy": {W1: 2}}, "no free worker: all 2 slots are busy"),
        (
            {"refusals": REFUSED, "busy": {W1: 2}},
            "no free worker: all 2 slots are busy",
        ),
        ({"busy": {W1: 1}}, "ready: the leader gives it to a worker next"),
        ({"refusals": REFUSED}, "ready: the leader gives it to a worker next"),
        (
            {"refusals": REFUSED, "workers": (WORKER, OTHER), "busy": {OTHER.id: 1}},
            "the only slot is busy; worker w1 did not start its last 3 attempts: none before 06:00:40Z",
        ),
    ],
)
def test_a_ready_task_waits_for_leader_or_worker(changes: dict[str, Any], sentence: str) -> None:
    told = why(_run(), _run().tasks[A], None, _around(**changes))

    assert told is not None
    assert sentence in told


HAS_BIG = replace(WORKER, targets={"big": 8})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"workers": (NEWER,)}, "no worker has target big: add it to spark.targets of a worker"),
        ({"workers": (HAS_BIG,), "open_at": 8}, "all 8 slots of target big are taken"),
        ({"workers": (HAS_BIG, replace(NEWER, targets={"big": 2})), "open_at": 2}, "all 2 slots of target"),
        ({"workers": (HAS_BIG,), "open_at": 7}, "ready: the leader gives it to a worker next"),
        ({"workers": (HAS_BIG,), "busy": {W1: 2}}, "no free worker: all 2 slots are busy"),
        ({"workers": (HAS_BIG, NEWER), "busy": {W1: 2}}, "no free worker that can run it: all 2 slots"),
    ],
)
def test_a_task_with_a_target_says_which_wait_it_is(changes: dict[str, Any], sentence: str) -> None:
    task = _run().tasks[A]
    spec = replace(task.spec, kind=TaskKind.PYSPARK, spark_place=SparkPlace(target="big"))

    told = why(_run(), replace(task, spec=spec), None, _around(**changes))

    assert told is not None
    assert sentence in told


def test_a_task_whose_driver_is_to_run_in_a_cluster_says_that_no_worker_submits_there() -> None:
    place = SparkPlace(target="big", deploy=SparkDeploy.CLUSTER)
    task = _run().tasks[A]
    task = replace(task, spec=replace(task.spec, kind=TaskKind.PYSPARK, spark_place=place))

    assert why(_run(), task, None, _around(workers=(HAS_BIG,))) == (
        "no worker submits drivers to target big: see spark.targets of a worker's configuration; "
        "one of kind standalone or yarn needs `rest`"
    )
    submits = replace(HAS_BIG, submits=("big",))
    assert why(_run(), task, None, _around(workers=(submits,), busy={W1: 2})) == (
        "ready: the leader gives it to a worker next"
    )


@pytest.mark.parametrize("beating", [True, False])
def test_an_attempt_that_waits_in_a_full_cluster_says_so_in_the_clusters_words(beating: bool) -> None:
    run = _opened(_run())
    words = {"cluster": "SUBMITTED; 4 of 4 cores are in use"} if beating else {}
    driver = ClusterDriver(target="big", id="driver-1")
    slots = Slots(submitted=driver, has_heartbeat=beating, progress=words)

    told = why(run, run.tasks[A], slots, _around(workers=(replace(WORKER, submits=("big",)),)))

    if beating:
        assert told == (
            "submitted to target big as driver-1, where it waits for its start: "
            "SUBMITTED; 4 of 4 cores are in use"
        )
    else:
        assert told == "submitted to target big as driver-1; a worker is asked to look for it"


NO_JAVA = replace(WORKER, has_java=False)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"workers": (NO_JAVA, OTHER), "busy": {OTHER.id: 1}},
            "no free worker that can run it: the only slot is busy",
        ),
        ({"workers": (NO_JAVA,)}, "ready: the leader gives it to a worker next"),
    ],
)
def test_a_spark_task_waits_for_a_worker_with_java_if_there_is_one(
    changes: dict[str, Any], sentence: str
) -> None:
    task = replace(_run().tasks[A], spec=TaskSpec(name=A, kind=TaskKind.SQL, script="a.sql"))

    assert why(_run(), task, None, _around(**changes)) == sentence


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "the only worker is of a release that cannot run this task: upgrade one"),
        (
            {"workers": (WORKER, NEWER), "busy": {NEWER.id: 2}},
            "no free worker that can run it: all 2 slots are busy",
        ),
        ({"workers": (WORKER, replace(NEWER, draining=True))}, "the only worker is draining or cordoned"),
        ({"workers": (WORKER, NEWER)}, "ready: the leader gives it to a worker next"),
    ],
)
def test_a_task_waits_for_a_worker_that_can_read_its_order(
    changes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "NEEDED", {"kind": 2})
    task = replace(_run().tasks[A], spec=TaskSpec(name=A, kind=TaskKind.SHELL, script="ls"))

    told = why(_run(), task, None, _around(**changes))

    assert told is not None
    assert sentence in told


def test_a_task_waits_for_what_it_needs_and_says_how_that_stands() -> None:
    run = _opened(_run())

    assert why(run, run.tasks[B], None, AROUND) == "needs a (running)"
    assert why(run, run.tasks[C], None, AROUND) == "needs b (waiting)"


def test_a_lost_attempt_is_tried_again_at_a_time_that_is_told() -> None:
    run = _ended(_opened(_run()), Outcome.LOST)

    told = "tried again at 2026-03-01 06:00:01Z after attempt 1: lost: exit 1"
    assert why(run, run.tasks[A], None, AROUND) == told
    later = replace(AROUND, now=NOW + timedelta(seconds=1))
    assert why(run, run.tasks[A], None, later) == "ready: the leader gives it to a worker next"


IN_CLUSTER = ClusterDriver(target="hadoop", id="application_1_0001")


@pytest.mark.parametrize(
    ("slots", "facts", "sentence"),
    [
        (Slots(), AROUND, "worker w1 is preparing it"),
        (Slots(has_heartbeat=True), AROUND, "worker w1 is preparing it"),
        (
            Slots(submitted=IN_CLUSTER, has_heartbeat=True),
            AROUND,
            "submitted to target hadoop as application_1_0001, where it waits for its start",
        ),
        (
            Slots(
                submitted=IN_CLUSTER,
                has_heartbeat=True,
                progress={"cluster": "ACCEPTED: it waits in queue etl"},
            ),
            AROUND,
            (
                "submitted to target hadoop as application_1_0001, where it waits for its start: "
                "ACCEPTED: it waits in queue etl"
            ),
        ),
        (
            Slots(submitted=IN_CLUSTER),
            AROUND,
            (
                "submitted to target hadoop as application_1_0001; no worker that submits to target hadoop "
                "is registered to look for it"
            ),
        ),
        (
            Slots(claim=replace(CLAIM, driver=IN_CLUSTER)),
            _around(workers=(replace(WORKER, submits=("hadoop",)),)),
            "its driver in target hadoop is not followed; a worker is asked to look for it",
        ),
        (
            Slots(),
            replace(AROUND, timings=Timings(claim_timeout=timedelta(0))),
            "worker w1 did not start it within 0:00:00; the leader has not applied that yet",
        ),
        (Slots(), _around(workers=()), "is not registered"),
        (Slots(claim=CLAIM, has_heartbeat=True), AROUND, None),
        (Slots(claim=CLAIM, has_heartbeat=False), AROUND, "its runner is silent"),
        (
            Slots(
                claim=replace(CLAIM, driver=IN_CLUSTER), has_heartbeat=True, progress={"silent": "Running"}
            ),
            AROUND,
            "its driver in target hadoop does not report, but may be alive: the cluster says Running",
        ),
        (Slots(claim=CLAIM, has_heartbeat=True, stop_requested=True), AROUND, "asked to stop"),
        (
            Slots(
                claim=CLAIM,
                end=End(attempt="r.a.1", outcome=Outcome.SUCCEEDED, written_by="runner", ended_at=NOW),
            ),
            _around(leader=None),
            "the leader has not applied that yet; no scheduler leads at the moment",
        ),
        (None, AROUND, None),
    ],
)
def test_a_running_task_is_explained_until_its_driver_computes(
    slots: Slots | None, facts: ClusterFacts, sentence: str | None
) -> None:
    run = _opened(_run())

    told = why(run, run.tasks[A], slots, facts)

    if sentence is None:
        assert told is None
    else:
        assert told is not None
        assert sentence in told


def test_a_failed_task_says_how_and_those_after_it_say_what_failed() -> None:
    run = _ended(_opened(_run()), Outcome.FAILED)

    assert why(run, run.tasks[A], None, AROUND) == "failed after 1 attempt: failed: exit 1"
    assert why(run, run.tasks[B], None, AROUND) == "not run: a failed"
    assert why(run, run.tasks[C], None, AROUND) == "not run: a failed"


@pytest.mark.parametrize(
    ("retries", "failure", "told"),
    [
        (0, FailureClass.MISSING_INPUT, "failed after 1 attempt: failed (missing_input): exit 1"),
        (0, FailureClass.ANALYSIS, "failed after 1 attempt: failed (analysis): exit 1"),
        (
            2,
            FailureClass.ANALYSIS,
            "failed after 1 attempt, as its retries exclude analysis: failed (analysis): exit 1",
        ),
    ],
)
def test_failed_task_says_the_class_of_its_failure_and_why_its_retries_were_not_used(
    retries: int, failure: FailureClass, told: str
) -> None:
    run = _run()
    spec = replace(run.tasks[A].spec, retries=Retries(limit=retries))
    run = replace(run, tasks=run.tasks.replaced([replace(run.tasks[A], spec=spec)]))
    run = _ended(_opened(run), Outcome.FAILED, failure)

    assert why(run, run.tasks[A], None, AROUND) == told


def test_task_that_ran_out_of_time_says_so_once() -> None:
    run = _ended(_opened(_run()), Outcome.TIMED_OUT, FailureClass.TIMED_OUT)

    assert why(run, run.tasks[A], None, AROUND) == "failed after 1 attempt: timed_out: exit 1"


def test_tasks_of_a_stopped_run_say_why_it_was_stopped() -> None:
    run = lifecycle.stop(_run(), verdict=RunState.STOPPED, reason="stopped: late", now=NOW)

    assert why(run, run.tasks[A], None, AROUND) == "not run: stopped: late"


def test_a_task_that_succeeded_needs_no_explanation() -> None:
    run = _ended(_opened(_run()), Outcome.SUCCEEDED)

    assert why(run, run.tasks[A], None, AROUND) is None


def test_task_that_was_not_run_says_why_it_ended() -> None:
    run = _run(selected="from b")
    attempt = _ended(_opened(run), Outcome.SUCCEEDED).tasks[A].attempts[0]
    marked = Settlement(at=NOW, by="ann", reason="by hand")
    run = replace(
        run,
        tasks=run.tasks.replaced(
            [
                replace(
                    run.tasks[A], state=TaskState.SUCCEEDED, reused=Reused(run=RunId("q"), attempt=attempt)
                ),
                replace(run.tasks[B], state=TaskState.SKIPPED, left_out=True),
                replace(run.tasks[C], state=TaskState.SUCCEEDED, settled=marked),
            ]
        ),
    )

    assert why(run, run.tasks[A], None, AROUND) == "reused from run q, attempt 1"
    assert why(run, run.tasks[B], None, AROUND) == "skipped: not selected (from b)"
    assert why(run, run.tasks[C], None, AROUND) == "marked succeeded by ann: by hand"


def test_paused_run_and_its_tasks_say_who_paused_it_and_how_it_goes_on() -> None:
    run = _run(paused=Paused(by="ann", at=NOW), deadline=NOW + timedelta(hours=1))
    told = (
        "paused by ann at 2026-03-01 06:00:00Z; resume with `nimbus run resume r`; "
        "its deadline, 2026-03-01 07:00:00Z, counts"
    )

    assert why_run(run, AROUND) == told
    assert why(run, run.tasks[A], None, AROUND) == f"its run is {told}"
    assert why(run, run.tasks[B], None, AROUND) == "needs a (waiting)"
    assert why_run(replace(run, state=RunState.QUEUED), AROUND) == told


def _queue(*others: Run, limit: int | None = 1, max_running: int | None = None) -> QueueView:
    return QueueView(live=others, limit=limit, max_running=max_running)


FIRST = _run(id=RunId("first"))
QUEUED = _run(state=RunState.QUEUED, holds=Places.NONE, created_at=NOW + timedelta(minutes=2))
AHEAD = replace(QUEUED, id=RunId("ahead"), created_at=NOW + timedelta(minutes=1))
BEHIND = replace(QUEUED, id=RunId("behind"), created_at=NOW + timedelta(minutes=3))
ELSEWHERE = _run(id=RunId("elsewhere"), pipeline=PipelineName("q"))


@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (
            _queue(FIRST, QUEUED, AHEAD, BEHIND),
            "2nd of 3 in the queue, waits for run first to end, of pipeline p: concurrency.limit is 1",
        ),
        (
            _queue(FIRST, replace(FIRST, id=RunId("other"), state=RunState.STOPPING), QUEUED, limit=2),
            (
                "1st of 1 in the queue, waits for one of 2 runs (first, other) to end, of pipeline p: "
                "concurrency.limit is 2"
            ),
        ),
        (
            _queue(ELSEWHERE, QUEUED, limit=None, max_running=1),
            "1st of 1 in the queue, waits for run elsewhere to end, of the cluster: runs.max_running is 1",
        ),
        (_queue(QUEUED), "there is room: the leader starts it next"),
    ],
)
def test_queued_run_says_its_place_and_what_it_waits_for(view: QueueView, sentence: str) -> None:
    facts = replace(AROUND, queue=lambda _: view)

    assert why_run(QUEUED, facts) == sentence
    assert why(QUEUED, QUEUED.tasks[A], None, facts) == "its run is queued"


def test_task_says_that_its_run_has_as_many_open_tasks_as_it_may() -> None:
    run = replace(_opened(_run()), max_parallel_tasks=1)
    free = replace(
        run, tasks=run.tasks.replaced([replace(run.tasks[B], spec=replace(run.tasks[B].spec, needs=()))])
    )

    said = why(free, free.tasks[B], None, AROUND)

    assert said == "1 task of its run is open (a): max_parallel_tasks is reached"


def _taking(size: int, name: str = "r", priority: Priority = Priority.MEDIUM) -> Run:
    run = _run(id=RunId(name), priority=priority)
    spec = replace(run.tasks[A].spec, pools={"db": size})
    return replace(run, tasks=run.tasks.replaced([replace(run.tasks[A], spec=spec)]))


LABELLED = replace(NEWER, id=WorkerId("w5"), labels=("eu", "gpu"))
FULL = replace(LABELLED, id=WorkerId("w4"), lacks="9 MiB of disk free")


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        ((NEWER,), "no worker has label eu, gpu: add it to worker.labels of a worker"),
        ((replace(NEWER, labels=("eu",)),), "no worker has label gpu: add it to worker.labels of a worker"),
        (
            (replace(NEWER, labels=("eu",)), replace(LABELLED, labels=("gpu",))),
            "no worker has all of the labels eu, gpu",
        ),
        ((NEWER, LABELLED), "ready: the leader gives it to a worker next"),
        (
            (NEWER, replace(LABELLED, draining=True)),
            "the only worker is draining or cordoned: tasks that run",
        ),
        (
            (NEWER, FULL),
            "no worker takes anything new: worker w4 has 9 MiB of disk free",
        ),
    ],
)
def test_task_says_which_label_or_room_it_waits_for(workers: tuple[WorkerInfo, ...], sentence: str) -> None:
    run = _run()
    spec = replace(run.tasks[A].spec, runs_on=("eu", "gpu"))

    said = why(run, replace(run.tasks[A], spec=spec), None, _around(workers=workers))

    assert said is not None
    assert said.startswith(sentence)


AHEAD_OF_ALL = _taking(3, "large", Priority.HIGH)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (_around(), "there is no pool db: `nimbus pool set db SIZE`"),
        (_around(pools={"db": 1}), "it takes 2 of pool db, which has 1: `nimbus pool set db 2`"),
        (_around(pools={"db": 4}, used=3), "it takes 2 of pool db, of which 3 of 4 are taken"),
        (
            _around(pools={"db": 4}, used=2, takers=((AHEAD_OF_ALL, AHEAD_OF_ALL.tasks[A]),)),
            (
                "pool db is held for task a of run large, which is more urgent: "
                "it takes 3 of pool db, of which 2 of 4 are taken"
            ),
        ),
        (_around(workers=(NEWER,), pools={"db": 4}, used=2), "ready: the leader gives it to a worker next"),
    ],
)
def test_task_says_which_pool_it_waits_for(facts: ClusterFacts, sentence: str) -> None:
    run = _taking(2)

    assert why(run, run.tasks[A], None, facts) == sentence


def test_task_says_when_it_starts_at_the_earliest() -> None:
    run = _run(started_at=NOW - timedelta(minutes=4))
    task = replace(run.tasks[A], spec=replace(run.tasks[A].spec, start_after=timedelta(minutes=10)))

    assert why(run, task, None, AROUND) == "starts at 2026-03-01 06:06:00Z at the earliest: start_after"


def test_run_that_is_not_queued_has_nothing_to_explain() -> None:
    assert why_run(FIRST, AROUND) is None


def _approval(**changes: Any) -> tuple[Run, TaskRun]:
    spec = TaskSpec(
        name=A, kind=TaskKind.APPROVAL, script="", args=("Release it?",), timeout=timedelta(hours=1)
    )
    task = replace(TaskRun(spec=spec), **changes)
    return _run(tasks=Tasks([task])), task


def test_approval_says_what_it_asks_what_ends_it_and_when_it_fails() -> None:
    assert why(*_approval(), None, AROUND) == (
        "waits for an approval: Release it?; end it with `nimbus run approve r a --reason ...` "
        "(--reject: it fails); it fails at 2026-03-01 07:00:00Z without it"
    )


@pytest.mark.parametrize(
    ("state", "by", "sentence"),
    [
        (TaskState.SUCCEEDED, "ada", "approved by ada: checked"),
        (TaskState.FAILED, "ada", "rejected by ada: checked"),
        (TaskState.FAILED, "", "checked"),
    ],
)
def test_decided_approval_says_who_decided_and_why(state: TaskState, by: str, sentence: str) -> None:
    run, task = _approval(state=state, settled=Settlement(at=NOW, by=by, reason="checked"))

    assert why(run, task, None, AROUND) == sentence


def test_wait_for_data_says_when_it_was_looked_at_and_when_it_is_again() -> None:
    spec = TaskSpec(
        name=A,
        kind=TaskKind.WAIT,
        script="",
        args=("http://host/ready", "/shared/there"),
        waits_for=(DataWait(source=DataSource.HTTP), DataWait(source=DataSource.FILE)),
    )
    report = LastProbe(at=NOW - timedelta(seconds=12), said="404", next_at=NOW + timedelta(seconds=20))
    facts = replace(AROUND, probes=lambda: {"http://host/ready": report})

    assert why(_run(tasks=Tasks([TaskRun(spec=spec)])), TaskRun(spec=spec), None, facts) == (
        "waits for http://host/ready (last probed 12 s ago: 404; next probe in 20 s), "
        "and for file /shared/there on the leader's host"
    )


def test_wait_for_a_pipeline_names_the_missing_intervals() -> None:
    spec = TaskSpec(
        name=A,
        kind=TaskKind.WAIT,
        script="",
        waits_for=(PipelineWait(pipeline=PipelineName("ods")), PipelineWait(pipeline=SELF)),
        timeout=timedelta(hours=6),
    )
    run = _run(
        tasks=Tasks([TaskRun(spec=spec)]),
        data_interval=DataInterval(start=NOW - timedelta(days=1), end=NOW),
        timezone="Europe/Berlin",
    )

    assert why(run, run.tasks[A], None, AROUND) == (
        "waits for pipeline ods: 2026-02-28T07:00+0100 to 2026-03-01T07:00+0100 "
        "(no run of it has ended yet); it fails at 2026-03-01 12:00:00Z without it"
    )


def test_task_that_waits_for_room_says_when_its_queue_timeout_fails_it() -> None:
    run = _run()
    task = replace(run.tasks[A], spec=replace(run.tasks[A].spec, queue_timeout=timedelta(minutes=10)))

    words = why(run, task, None, _around(workers=()))

    assert words is not None
    assert words.startswith("no worker is registered")
    assert words.endswith("; it fails at 2026-03-01 06:10:00Z if it has not started: queue_timeout")


@pytest.mark.parametrize(("state", "shown"), [(RunState.RUNNING, True), (RunState.SUCCEEDED, False)])
def test_deadline_is_a_next_change_only_of_a_live_run(state: RunState, shown: bool) -> None:
    deadline = NOW + timedelta(hours=1)
    run = _run(state=state, paused=Paused(by="ann", at=NOW), deadline=deadline, reason="done")
    expected = deadline if shown else None

    assert explain_run.next_change(run, run.tasks[A], AROUND) == expected
    assert explain_run.run_reasons(run, {}, AROUND)[0]().until == expected
