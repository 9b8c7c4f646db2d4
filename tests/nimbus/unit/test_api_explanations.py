"""Every reason for waiting, caused by the leader's own rules: its explanation, and what ends the wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from nimbus.api.explain import run as explain_run
from nimbus.api.explain.run import ExplanationModel, ReasonModel
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.routes.cluster import cluster_status
from nimbus.api.routes.explanations import explained_pipeline, explained_run
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.domain.attempts.slots import ClusterDriver, End, Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schedulers import MissingFile, SchedulerInfo
from nimbus.domain.commands import (
    Command,
    CordonWorker,
    CreateBackfill,
    PausePipeline,
    PauseRun,
    SetOwner,
    SetPool,
    SetShare,
    StartRun,
    StopRun,
)
from nimbus.domain.ids import AttemptId, BackfillId, PipelineName, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.backfill import BackfillRequest
from nimbus.domain.pipelines.catalog import PipelineState
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    Concurrency,
    PipelineSpec,
    Retries,
    Schedule,
    SparkPlace,
    TaskKind,
    TaskSpec,
    WhenFull,
)
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.selection import Selection
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.starts.waits import DataProbe, DataSource, DataWait, PipelineWait, ProbeResult
from nimbus.engine.decision import PrepareRelease
from nimbus.engine.events import DataSeen, QuarantineChanged, ReleasePrepared
from nimbus.engine.policy import Policy
from nimbus.engine.report import MAX_NAMED, report
from nimbus.engine.work_queue import Key
from nimbus.records import UnreadableRecordError
from tests.nimbus.children_stage import LOAD, parent, starting
from tests.nimbus.definitions import OnDisk, active
from tests.nimbus.engine_bench import NAME, NOW, WORKER, Bench
from tests.nimbus.store_reader import StoreReader, leading, services_over

A, B, R = TaskName("a"), TaskName("b"), RunId("r")
W1 = WORKER
DAILY = Schedule(cron="0 6 * * *", timezone="UTC", catchup=CatchUp.ALL)
HOUR = timedelta(hours=1)


def task(name: TaskName = A, **said: Any) -> TaskSpec:
    return TaskSpec(**{"name": name, "kind": TaskKind.PYTHON, "script": "a.py"} | said)


def spec(*tasks: TaskSpec, name: PipelineName = NAME, **said: Any) -> PipelineSpec:
    return PipelineSpec(name=name, tasks=tasks or (task(),), **said)


class Stage:
    """A leader with some pipelines and workers, and a scheduler's explanations."""

    def __init__(
        self, *specs: PipelineSpec, workers: tuple[WorkerInfo, ...] = (W1,), max_running: int | None = None
    ) -> None:
        self.bench, self.leads, self.max_running = Bench(), True, max_running
        self.put(*(active(one, schedule_position=NOW, updated_at=NOW) for one in specs or (spec(),)))
        self.bench.cluster.change(workers={one.id: one for one in workers})
        self.bench.elect(2, policy=Policy(max_running=max_running))

    def put(self, *records: Any) -> None:
        self.bench.cluster.change(pipelines={record.name: record for record in records})

    def ask(self, *commands: Command) -> None:
        for command in commands:
            self.bench.submit(command, by="ann")
        self.bench.decide()
        for effect in [one for one in self.bench.effects if isinstance(one, PrepareRelease)]:
            found = OnDisk().definition(effect.release)
            self.bench.term.apply((ReleasePrepared(effect.release, found),))
            self.bench.decide()

    def start(self, run: str = R, pipeline: PipelineName = NAME, **more: Any) -> None:
        self.ask(StartRun(pipeline=pipeline, run_id=RunId(run), **more))

    def workers(self, *workers: WorkerInfo) -> None:
        self.bench.cluster.change(workers={one.id: one for one in workers})
        self.bench.decide()

    def claim(self, name: TaskName = A, number: int = 1, **more: Any) -> None:
        self.bench.claim(AttemptId(R, name, number), **more)
        self.bench.decide()

    def end(self, outcome: Outcome, reason: str = "", *, run: str = R, decided: bool = True) -> None:
        key = next(k for k, s in self.bench.cluster.world.slots.items() if s.end is None and k.run == run)
        now = self.bench.clocks.now()
        end = End(attempt=str(key), outcome=outcome, written_by="w", ended_at=now, reason=reason)
        self.bench.cluster.set_slots(key, replace(self.bench.cluster.world.slots[key], end=end))
        if decided:
            self.bench.decide()

    def slots(self, slots: Slots) -> None:
        self.bench.cluster.set_slots(AttemptId(R, A, 1), slots)
        self.bench.decide()

    def leader(self) -> SchedulerInfo | None:
        return leading(self.bench.term.state, self.bench.clocks) if self.leads else None

    def services(self) -> Any:
        return services_over(self.bench.cluster, self.bench.clocks, self.leader, self.max_running)

    def run(self, name: str | None = None, run: str = R) -> ExplanationModel:
        return explained_run(self.services(), run, name)

    def pipeline(self, name: PipelineName = NAME) -> ExplanationModel:
        services = self.services()
        return explained_pipeline(services, known_pipeline(services, name))


def needs() -> ExplanationModel:
    stage = Stage(spec(task(), task(B, needs=(A,))))
    stage.start()
    return stage.run(B)


def retry_pause() -> ExplanationModel:
    stage = Stage(spec(task(retries=Retries(limit=1))))
    stage.start()
    stage.claim()
    stage.end(Outcome.FAILED, "exit 1")
    return stage.run(A)


def lost() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.end(Outcome.LOST, "host h is lost")
    return stage.run()


def secrets_refused() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.end(Outcome.REFUSED, "secret warehouse: no such file")
    return stage.run(A)


def start_after() -> ExplanationModel:
    stage = Stage(spec(task(start_after=HOUR)))
    stage.start()
    return stage.run(A)


def run_full() -> ExplanationModel:
    stage = Stage(spec(task(), task(B), max_parallel_tasks=1))
    stage.start()
    return stage.run(B)


def _pool(size: int | None, *, wanted: int = 1, others: int = 0) -> Stage:
    stage = Stage(spec(task(pools={"db": wanted})), workers=(replace(W1, slots=9),))
    if size is not None:
        stage.ask(SetPool(pool="db", size=size))
    for number in range(others):
        stage.start(f"other{number}")
    stage.start()
    return stage


def pool_held() -> ExplanationModel:
    one, two = spec(task(pools={"db": 2}), name=PipelineName("big")), spec(task(pools={"db": 1}))
    stage = Stage(one, two, workers=(replace(W1, slots=9),))
    stage.ask(SetPool(pool="db", size=2))
    stage.start("first")
    stage.start("wide", PipelineName("big"))
    stage.bench.clocks.pass_s(1)
    stage.start()
    return stage.run(A)


def with_workers(*workers: WorkerInfo, **said: Any) -> ExplanationModel:
    stage = Stage(spec(task(**said)), workers=workers)
    stage.start()
    return stage.run(A)


def cordoned() -> ExplanationModel:
    stage = Stage()
    stage.ask(CordonWorker(worker=W1.id, reason="disk"))
    stage.start()
    return stage.run(A)


def busy() -> ExplanationModel:
    stage = Stage()
    for name in ("x", "y", R):
        stage.start(name)
    return stage.run(A)


def queue_timeout() -> ExplanationModel:
    stage = Stage(spec(task(queue_timeout=HOUR)), workers=())
    stage.start()
    return stage.run(A)


def backs_off() -> ExplanationModel:
    other = replace(W1, id=WorkerId("w2"), slots=1)
    stage = Stage(workers=(replace(W1, slots=1), other))
    stage.start("x")
    stage.end(Outcome.REFUSED, "no disk", run="x")
    for name in ("y", R):
        stage.start(name)
    return stage.run(A)


def target_full() -> ExplanationModel:
    worker = replace(W1, slots=9, targets={"big": 1})
    stage = Stage(spec(task(kind=TaskKind.PYSPARK, spark_place=SparkPlace(target="big"))), workers=(worker,))
    stage.start("x")
    stage.start()
    return stage.run(A)


def no_leader() -> ExplanationModel:
    stage = Stage(workers=())
    stage.start()
    stage.leads = False
    return stage.run(A)


def preparing() -> ExplanationModel:
    stage = Stage()
    stage.start()
    return stage.run(A)


def worker_gone() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.workers()
    return stage.run(A)


def silent() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.claim(has_heartbeat=False)
    return stage.run(A)


def host_gone() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.claim(has_heartbeat=False)
    stage.workers()
    return stage.run(A)


def in_cluster_queue() -> ExplanationModel:
    stage = Stage()
    stage.start()
    driver = ClusterDriver(target="big", id="driver-1")
    stage.slots(Slots(submitted=driver, has_heartbeat=True, progress={"cluster": "4 of 4 cores are in use"}))
    return stage.run(A)


def stopping() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.claim()
    stage.ask(StopRun(run_id=R, reason="late"))
    return stage.run()


def end_not_taken_in() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.end(Outcome.SUCCEEDED, decided=False)
    stage.leads = False
    return stage.run(A)


def computes() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.claim()
    return stage.run()


def paused() -> ExplanationModel:
    stage = Stage(spec(task(), task(B, needs=(A,)), timeout=HOUR), workers=())
    stage.start()
    stage.ask(PauseRun(run_id=R))
    return stage.run()


def approval() -> ExplanationModel:
    stage = Stage(spec(task(kind=TaskKind.APPROVAL, script="", args=("Release?",), timeout=HOUR)))
    stage.start()
    return stage.run(A)


def data() -> ExplanationModel:
    waits = (DataWait(source=DataSource.FILE),)
    stage = Stage(spec(task(kind=TaskKind.WAIT, script="", args=("/in/x",), waits_for=waits)))
    stage.start()
    stage.bench.term.apply((DataSeen(DataProbe(DataSource.FILE, "/in/x"), ProbeResult(False, "not there")),))
    return stage.run(A)


def other_pipeline() -> ExplanationModel:
    waits = (PipelineWait(pipeline=PipelineName("ods")),)
    stage = Stage(spec(task(kind=TaskKind.WAIT, script="", waits_for=waits)))
    stage.start(data_interval=DataInterval(start=NOW - HOUR, end=NOW))
    return stage.run(A)


def child_queued() -> ExplanationModel:
    load = replace(LOAD, concurrency=Concurrency(limit=1))
    stage = Stage(load, parent(starting(), NAME))
    stage.start("other", LOAD.name)
    stage.start()
    return stage.run("fan")


def rendering() -> ExplanationModel:
    stage = Stage(spec(task(), task(B, needs=(A,), args=("{{ tasks.a.result.n }}",), reads=(A,))))
    stage.start()
    stage.end(Outcome.SUCCEEDED)
    return stage.run(B)


def queued() -> ExplanationModel:
    stage = Stage(spec(concurrency=Concurrency(limit=1)))
    stage.start("x")
    stage.start()
    return stage.run()


def max_running() -> ExplanationModel:
    stage = Stage(spec(), spec(name=PipelineName("q")), max_running=1)
    stage.start("x", PipelineName("q"))
    stage.start()
    return stage.run()


def rerun_waits() -> ExplanationModel:
    stage = Stage()
    stage.start()
    stage.start("again", selection=Selection(reuse=R, is_rerun=True))
    return stage.run(run="again")


def not_decided() -> ExplanationModel:
    stage = Stage()
    for name in ("x", R):
        stage.bench.submit(StartRun(pipeline=NAME, run_id=RunId(name)))
    stage.leads = False
    return stage.run()


def _with_parked(key: Key) -> Stage:
    stage = Stage(spec(), workers=())
    stage.start()
    stage.bench.term.state.park(key, "LookupError: no task nowhere")
    return stage


def run_parked() -> ExplanationModel:
    return _with_parked(Key("run", R)).run()


def start_parked() -> ExplanationModel:
    stage = Stage()
    queued = stage.bench.submit(StartRun(pipeline=NAME, run_id=R))
    stage.bench.term.state.park(Key("command", queued), "RuntimeError: no helper")
    return stage.run()


def children_parked() -> ExplanationModel:
    stage = Stage(LOAD, parent(starting(), NAME))
    stage.start()
    stage.bench.term.state.park(Key("children", R, TaskName("fan")), "RuntimeError: no helper")
    return stage.run("fan")


def many_tasks() -> ExplanationModel:
    stage = Stage(spec(task(), *(task(TaskName(f"b{n}"), needs=(A,)) for n in range(300))), workers=())
    stage.start()
    return stage.run()


WAITS: list[tuple[Callable[[], ExplanationModel], tuple[str, ...], datetime | None]] = [
    (needs, ("task b: needs a (running)",), None),
    (retry_pause, ("tried again at 2026-03-01 12:00:10Z after attempt 1: failed: exit 1",), NOW + HOUR / 360),
    (lost, ("task a: tried again at 2026-03-01 12:00:01Z after attempt 1: lost: host h",), NOW + HOUR / 3600),
    (secrets_refused, ("after attempt 1: refused: secret warehouse: no such file",), NOW + HOUR / 3600),
    (start_after, ("starts at 2026-03-01 13:00:00Z at the earliest: start_after",), NOW + HOUR),
    (run_full, ("1 task of its run is open (a): max_parallel_tasks is reached",), None),
    (lambda: _pool(1, others=1).run(A), ("it takes 1 of pool db, of which 1 of 1 are taken",), None),
    (lambda: _pool(None).run(A), ("there is no pool db: `nimbus pool set db SIZE`",), None),
    (lambda: _pool(1, wanted=2).run(A), ("takes 2 of pool db, which has 1: `nimbus pool set db 2`",), None),
    (pool_held, ("pool db is held for task a of run wide, which is more urgent", "1 of 2 are taken"), None),
    (with_workers, ("no worker is registered: start one with",), None),
    (
        lambda: with_workers(W1, runs_on=("gpu",)),
        ("no worker has label gpu: add it to worker.labels",),
        None,
    ),
    (
        lambda: with_workers(W1, environment="spark35"),
        ("no worker has environment spark35: add it to worker.environments",),
        None,
    ),
    (
        lambda: with_workers(replace(W1, environments={"spark35": "its Java is 25"}), environment="spark35"),
        ("environment spark35 of worker w1 cannot be used: its Java is 25; mend it, the worker looks again",),
        None,
    ),
    (cordoned, ("the only worker is draining or cordoned", "(w1)", "`nimbus worker uncordon ID`"), None),
    (lambda: with_workers(replace(W1, lacks="1 GiB of memory")), ("worker w1 has 1 GiB of memory",), None),
    (
        lambda: with_workers(W1, kind=TaskKind.PYSPARK, spark_place=SparkPlace(target="big")),
        ("no worker has target big: add it to spark.targets",),
        None,
    ),
    (target_full, ("the only slot of target big is taken",), None),
    (busy, ("no free worker: all 2 slots are busy",), None),
    (backs_off, ("worker w1 did not start its last 1 attempt: none before 12:00:10Z",), NOW + HOUR / 360),
    (queue_timeout, ("no worker", "it fails at 2026-03-01 13:00:00Z if it has not started"), NOW + HOUR),
    (no_leader, ("no scheduler leads at the moment; it starts when one does",), None),
    (preparing, ("worker w1 is preparing it since 2026-03-01 12:00:00Z",), None),
    (worker_gone, ("worker w1, which has it, is not registered: it is given to another one soon",), None),
    (silent, ("its runner is silent; its driver is looked for",), None),
    (host_gone, ("no worker on host h is registered", "supervision.host_lost_after"), None),
    (in_cluster_queue, ("submitted to target big as driver-1", "4 of 4 cores are in use"), None),
    (
        stopping,
        ("run: it is being stopped, and ends with its 1 open attempts", "late", "asked to stop"),
        None,
    ),
    (
        end_not_taken_in,
        ("it has ended; the leader has not applied that yet; no scheduler leads",),
        None,
    ),
    (computes, ("it computes: attempt 1 on worker w1, since 2026-03-01 12:00:00Z",), None),
    (paused, ("paused by ann at 2026-03-01 12:00:00Z", "resume with `nimbus run resume r`"), NOW + HOUR),
    (approval, ("waits for an approval: Release?", "`nimbus run approve r a"), NOW + HOUR),
    (data, ("file /in/x on the leader's host (last probed 0 s ago: not there; next probe in",), ...),
    (
        other_pipeline,
        ("pipeline ods: 2026-03-01T11:00+0000 to 2026-03-01T12:00+0000 (there is no such",),
        None,
    ),
    (child_queued, ("waits for child run", "1st of 1 in the queue, waits for run other to end"), None),
    (rendering, ("the leader renders its templates, which take results of a",), None),
    (queued, ("1st of 1 in the queue, waits for run x to end, of pipeline p: concurrency.limit is 1",), None),
    (max_running, ("waits for run x to end, of the cluster: runs.max_running is 1",), None),
    (rerun_waits, ("again: pending", "waits for the end of run r"), None),
    (not_decided, ("behind 1 older commands of pipeline p: no scheduler leads",), None),
    (
        run_parked,
        (
            "run: the leader has parked the run, because it could not decide about it (LookupError: no task",
            "task a: the leader has parked the run",
            "it tries again within a minute",
        ),
        None,
    ),
    (start_parked, ("r: pending", "the leader has parked it", "no helper"), None),
    (children_parked, ("task fan: the leader has parked the task", "no helper"), None),
    (many_tasks, ("task a: no worker is registered", "tasks: 300 more wait for tasks that they need"), None),
]


def told(answer: ExplanationModel) -> str:
    return "\n".join([f"{answer.id}: {answer.state}", *(f"{one.about}: {one.why}" for one in answer.reasons)])


@pytest.mark.parametrize(
    ("make", "words", "until"), WAITS, ids=[make.__name__ + str(n) for n, (make, *_) in enumerate(WAITS)]
)
def test_run_and_task_name_what_they_wait_for_when_the_rules_let_them_wait(
    make: Callable[[], ExplanationModel], words: tuple[str, ...], until: Any
) -> None:
    answer = make()

    assert [word for word in words if word not in told(answer)] == [], told(answer)
    if until is ...:
        assert answer.next_change is not None
    else:
        assert answer.next_change == until


def scheduled(**said: Any) -> Stage:
    return Stage(spec(schedule=DAILY, **said))


def clock_was_ahead() -> Stage:
    stage = scheduled()
    (record,) = stage.bench.cluster.world.pipelines.values()
    stage.put(replace(record, schedule_position=NOW + timedelta(days=3)))
    return stage


def inactive() -> Stage:
    stage = Stage()
    stage.put(active(spec(), state=PipelineState.INACTIVE, release=None))
    return stage


def pipeline_paused() -> Stage:
    stage = scheduled()
    stage.ask(PausePipeline(pipeline=NAME))
    return stage


def quarantined() -> Stage:
    stage = scheduled()
    stage.bench.term.apply((QuarantineChanged({NAME: "a.py is nowhere"}),))
    return stage


def leaderless_and_late() -> Stage:
    stage = scheduled()
    stage.bench.clocks.pass_s(2 * 24 * 3600)
    stage.leads = False
    return stage


def skipped() -> Stage:
    stage = Stage(spec(schedule=replace(DAILY, catchup=CatchUp.NONE)))
    stage.bench.clocks.pass_s(3 * 24 * 3600)
    stage.bench.term.tend()
    stage.bench.decide()
    return stage


def full() -> Stage:
    stage = scheduled(concurrency=Concurrency(limit=1, when_full=WhenFull.SKIP))
    stage.start("x")
    stage.start()
    return stage


def cluster_full() -> Stage:
    stage = Stage(spec(), spec(name=PipelineName("q")), max_running=1)
    stage.start("x", PipelineName("q"))
    return stage


def files_lack() -> Stage:
    stage = Stage()
    state, clock = stage.bench.term.state, stage.bench.clocks
    file = MissingFile(pipeline=NAME, path="a.py", role="code", size_bytes=9, sha256="cd" * 32)
    stage.bench.cluster.change(schedulers=(leading(state, clock, id="s2", epoch=None, missing=(file,)),))
    return stage


def as_child() -> Stage:
    return Stage(spec(), parent(starting(NAME), PipelineName("daily")))


def backfilled() -> Stage:
    stage = scheduled()
    request = BackfillRequest(first=NOW - 240 * HOUR, last=NOW, total=10)
    stage.ask(CreateBackfill(pipeline=NAME, backfill=BackfillId("b1"), request=request))
    return stage


def backfilled_as_one_run() -> Stage:
    stage = scheduled()
    request = BackfillRequest(first=NOW - 240 * HOUR, last=NOW, total=10, max_parallel=2, as_one_run=True)
    stage.ask(CreateBackfill(pipeline=NAME, backfill=BackfillId("b1"), request=request))
    return stage


def _parked(key: Key) -> Stage:
    stage = backfilled()
    stage.bench.term.state.park(key, "RuntimeError: boom")
    return stage


def command_parked() -> Stage:
    stage = Stage()
    queued = stage.bench.submit(StartRun(pipeline=NAME, run_id=R), by="ann")
    stage.bench.term.state.park(Key("command", queued), "RuntimeError: boom")
    return stage


def rerun_asked_for() -> Stage:
    stage = Stage()
    stage.start()
    stage.start("again", selection=Selection(reuse=R, is_rerun=True))
    return stage


def asked_for() -> Stage:
    stage = Stage()
    stage.bench.submit(StartRun(pipeline=NAME, run_id=R), by="ann")
    return stage


PIPELINES: list[tuple[Callable[[], Stage], tuple[str, ...], Any]] = [
    (inactive, ("it was published and never activated: `nimbus pipeline activate p`",), None),
    (pipeline_paused, ("it is paused", "`nimbus pipeline activate p` resumes it"), None),
    (quarantined, ("it is quarantined: a.py is nowhere",), NOW + 18 * HOUR),
    (Stage, ("schedule: it has none: start runs with `nimbus run start p` or a backfill",), None),
    (as_child, ("or tasks of pipeline daily",), None),
    (scheduled, ("0 6 * * * (UTC): the next fire is at 2026-03-02 06:00:00Z",), NOW + 18 * HOUR),
    (
        clock_was_ahead,
        (
            "the next fire is at 2026-03-05 06:00:00Z; fire times until 2026-03-04 12:00:00Z are done,",
            "the clock of a leader was ahead: `nimbus pipeline rewind p` sets this back to now",
        ),
        NOW + 90 * HOUR,
    ),
    (
        leaderless_and_late,
        (
            "no scheduler leads",
            "2 fire times have passed since 2026-03-01 12:00:00Z, the first at 2026-03-02 06:00:00Z",
            "(catchup: all): the next leader deals with them",
        ),
        NOW + 66 * HOUR,
    ),
    (skipped, ("3 fire times started no run; the last 3 from 2026-03-02 06:00:00Z", "missed, and"), ...),
    (
        full,
        (
            "concurrency.limit is 1, reached by run x: a fire starts no run",
            "run x: running: task a: worker w1 is preparing it",
            "run r: queued: 1st of 1 in the queue, waits for run x",
        ),
        NOW + 18 * HOUR,
    ),
    (cluster_full, ("runs.max_running of the cluster is 1, reached by run x",), None),
    (files_lack, ("scheduler s2 lacks a.py of it, and fetches them",), None),
    (backfilled, ("backfill b1: max_parallel (1) is reached", "run b1-"), NOW + 18 * HOUR),
    (
        backfilled_as_one_run,
        ("backfill b1: all dates are dealt with: it ends with the last of its runs",),
        ...,
    ),
    (
        lambda: _parked(Key("pipeline", NAME)),
        ("pipeline: the leader has parked it, because it could not", "RuntimeError: boom"),
        ...,
    ),
    (
        lambda: _parked(Key("backfill", BackfillId("b1"))),
        ("backfill b1: the leader has parked it", "RuntimeError: boom"),
        ...,
    ),
    (command_parked, ("asked at 2026-03-01 12:00:00Z by ann: the leader has parked it",), None),
    (
        rerun_asked_for,
        ("start run, asked at 2026-03-01 12:00:00Z by ann: it waits for the end of run r",),
        None,
    ),
    (asked_for, ("start run, asked at 2026-03-01 12:00:00Z by ann: it waits for the leader",), None),
]


@pytest.mark.parametrize(
    ("make", "words", "until"),
    PIPELINES,
    ids=[make.__name__ + str(n) for n, (make, *_) in enumerate(PIPELINES)],
)
def test_pipeline_names_what_holds_it_and_when_that_can_change(
    make: Callable[[], Stage], words: tuple[str, ...], until: Any
) -> None:
    answer = make().pipeline()

    assert [word for word in words if word not in told(answer)] == [], told(answer)
    if until is not ...:
        assert answer.next_change == until


def test_task_that_the_run_does_not_have_is_not_found() -> None:
    stage = Stage()
    stage.start()

    with pytest.raises(ObjectNotFoundError, match="run r has no task nope"):
        stage.run("nope")


def test_pipeline_with_many_live_runs_explains_the_oldest_and_counts_the_others() -> None:
    stage = Stage()
    for number in range(14):
        stage.start(f"r{number:02}")

    answer = stage.pipeline()

    assert answer.reasons[-1].why == "4 more are live"
    assert sum(one.about.startswith("run r") for one in answer.reasons) == 10


def test_pipeline_explains_one_task_of_a_wide_run_and_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(spec(*(task(TaskName(f"t{number}")) for number in range(30))), workers=())
    stage.start()
    explained: list[TaskName] = []
    explain = explain_run.explain_task

    def counted(run: Run, of: TaskRun, *rest: Any) -> ReasonModel:
        explained.append(of.spec.name)
        return explain(run, of, *rest)

    monkeypatch.setattr(explain_run, "explain_task", counted)
    (said,) = [one.why for one in stage.pipeline().reasons if one.about == "run r"]
    assert "task t0: no worker is registered" in said
    assert said.endswith("`nimbus run explain r` has 29 more")
    assert explained == [TaskName("t0")]


def test_status_names_what_the_leader_has_parked() -> None:
    services = _parked(Key("pipeline", NAME)).services()
    status = cluster_status(services, services.reader.schedulers())

    (one,) = status.parked
    assert (one.kind, one.id, one.why) == ("pipeline", NAME, "RuntimeError: boom")
    assert status.parked_count == 1


def test_run_whose_record_is_broken_is_explained_by_what_is_wrong_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> None:
        raise UnreadableRecordError("/nimbus/runs/r", "its part 'tasks-0' is missing")

    monkeypatch.setattr(StoreReader, "run", broken)
    answer = Stage().run()

    assert "r: unreadable" in told(answer)
    assert "leaves it out, since its record is broken: /nimbus/runs/r cannot be read" in told(answer)


def test_no_explanation_reads_a_run_beside_those_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = _pool(1, others=1)
    stage.start("behind")
    stage.ask(SetPool(pool="db", size=0))
    read: list[str] = []
    read_run = StoreReader.run

    def run(reader: StoreReader, wanted: RunId) -> Any:
        read.append(wanted)
        return read_run(reader, wanted)

    def none(*_: Any) -> None:
        raise AssertionError("an explanation reads many runs")

    monkeypatch.setattr(StoreReader, "run", run)
    monkeypatch.setattr(StoreReader, "runs", none)
    stage.run(A)

    assert sorted(set(read)) == ["behind", R], "itself, and who holds the pool"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each read of the cluster is called."""
    called: Counter[str] = Counter()

    def counted(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        def call(reader: StoreReader, *asked: Any) -> Any:
            called[name] += 1
            return read(reader, *asked)

        return call

    for name in ("pipeline", "pipelines", "run_list", "runs", "schedulers", "settings", "slots", "workers"):
        monkeypatch.setattr(StoreReader, name, counted(name, getattr(StoreReader, name)))
    return called


def test_pipeline_with_ten_live_runs_is_explained_by_one_read_of_each_kind(reads: Counter[str]) -> None:
    stage = Stage(spec(task(), task(B)), workers=(replace(W1, slots=3),))
    for number in range(10):
        stage.start(f"r{number}")
    reads.clear()

    answer = stage.pipeline()

    assert "run r9" in told(answer)
    assert {name for name, count in reads.items() if count > 1} == {"settings"}, "for queue and capacity"


@pytest.mark.parametrize("count", [2, 30])
def test_tasks_that_wait_for_slots_are_explained_by_the_same_reads_however_many_they_are(
    reads: Counter[str], count: int
) -> None:
    other, tasks = PipelineName("other"), (task(TaskName(f"t{number}")) for number in range(count))
    stage = Stage(spec(*tasks), spec(name=other))
    stage.ask(SetOwner(pipeline=NAME, owner="finance"))
    stage.start("s", other)
    stage.start()
    reads.clear()

    answer = stage.run()

    assert told(answer).count("team finance has 1 of 2 slots") == count - 1
    assert max(reads.values()) == 2, "of settings and workers: for the tasks, and for the team"


def test_report_counts_what_it_does_not_name_when_very_much_is_parked() -> None:
    stage = Stage()
    for number in range(MAX_NAMED + 1):
        stage.bench.term.state.park(Key("run", RunId(f"r{number}")), "x" * 1000)

    found = report(stage.bench.term.state)

    assert (len(found.parked), found.parked_count) == (MAX_NAMED, MAX_NAMED + 1)
    assert len(found.parked[0].why) < 1000


def test_what_waits_beside_other_teams_says_what_its_team_has_and_its_share() -> None:
    pools, wide = {"db": 1}, (replace(W1, slots=8),)
    tasks = tuple(task(TaskName(f"t{n}"), pools=pools if n < 4 else {}) for n in range(12))
    stage = Stage(spec(*tasks), spec(*tasks, name=PipelineName("other")), workers=wide, max_running=2)
    stage.ask(SetPool(pool="db", size=4), SetShare(team="finance", weight=3))
    stage.start()
    assert "share" not in str([one.why for one in stage.run().reasons])
    stage.ask(SetOwner(pipeline=NAME, owner="finance"))
    stage.start("s", PipelineName("other"))
    stage.start("t")

    (queued,) = stage.run(run="t").reasons
    assert queued.why.endswith("; team finance has 1 of 2 runs, its share is 1.5")
    (slots,) = stage.run("t9").reasons
    assert slots.why == "no free worker: all 8 slots are busy; team finance has 8 of 8 slots, its share is 6"
    (pool,) = stage.run("t3", run="s").reasons
    assert pool.why.endswith("; pipelines without an owner have 0 of 4 of pool db, their share is 1")
