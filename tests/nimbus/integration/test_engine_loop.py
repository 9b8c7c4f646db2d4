"""The engine's thread on a store in memory: its notifications, their order, and failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from blobsync.testing.memory import MemoryObjectStore
from leader import FencingToken, Leadership, Participant
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.store.runs import prepare
from nimbus.bootstrap.resources import SystemClock
from nimbus.domain.attempts.slots import End, Slots
from nimbus.domain.cluster.terms import Leader
from nimbus.domain.commands import (
    ActivatePipeline,
    Command,
    CommandOutcome,
    PausePipeline,
    QueuedCommand,
    StartRun,
)
from nimbus.domain.ids import CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import CatchUp, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import RunCause, RunState
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.waits import ProbeResult
from nimbus.engine import leader_term, loop
from nimbus.engine.decision import ArchiveOutcomes, BuildRun, Effect, PrepareRelease, ResignLeadership
from nimbus.engine.effects import Effects
from nimbus.engine.events import (
    BuildingFailed,
    CommandsChanged,
    OutcomesArchived,
    QuarantineChanged,
    ReleasePrepared,
    RunArchived,
    RunBuilt,
)
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.loop import Engine
from nimbus.engine.policy import Policy
from nimbus.engine.sending import AlertSender
from nimbus.engine.state import Built
from nimbus.engine.work_queue import Key
from nimbus.ports import Clock, LoadedPart, StoreUnavailableError
from nimbus.telemetry.engine import EngineMetrics
from nimbus.templates.client import Templates
from tests.nimbus.definitions import OnDisk, active, built, digest_of
from tests.nimbus.dict_cluster import DictCluster, DictLeaderStore
from tests.nimbus.engine_bench import WORKER
from tests.nimbus.loading import recover

Eventually = Callable[..., None]

NAME = PipelineName("p")
SPEC = PipelineSpec(name=NAME, tasks=(TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py"),))
DIGEST = digest_of(SPEC)
RECORD = active(
    SPEC,
    schedule_position=datetime(2026, 3, 1, tzinfo=UTC),
    updated_at=datetime(2026, 3, 1, tzinfo=UTC),
)


class Store(DictLeaderStore):
    """A store whose answers a test delays or counts."""

    def __init__(self, cluster: DictCluster, epoch: int, bench: Bench) -> None:
        super().__init__(cluster, epoch)
        self._bench = bench

    def load(self) -> Iterator[LoadedPart]:
        self._bench.loads += 1
        if not self._bench.gate.wait(60):
            raise AssertionError("the gate was not opened in time")
        try:
            yield from super().load()
        except StoreUnavailableError:
            self._bench.refused += 1
            raise


class Bench:
    """One engine, and the parts around it."""

    def __init__(self) -> None:
        self.cluster = DictCluster()
        self.cluster.change(pipelines={NAME: RECORD})
        self.gate = threading.Event()
        self.gate.set()
        self.loads = self.refused = 0
        self.effects: list[Effect] = []
        self.start_effect: Callable[[Effect], None] = self._play
        self.leads = True
        self.registry = CollectorRegistry()
        self.no_store = False
        self.engine = Engine(
            store_for=self._store,
            still_leads=lambda: self.leads,
            start_effect=self._start,
            policy=Policy(),
            clock=SystemClock(),
            metrics=EngineMetrics(self.registry),
            on_status=self._note_status,
        )
        self.told = 0
        """Number of changes of the status."""
        self.engine.start()

    def _note_status(self) -> None:
        self.told += 1

    def _store(self, leadership: Leadership) -> Store:
        if self.no_store:
            raise RuntimeError("no store")
        return Store(self.cluster, leadership.epoch, self)

    def _start(self, effect: Effect) -> None:
        self.start_effect(effect)

    def _play(self, effect: Effect) -> None:
        """Build runs and archive outcomes at once; keep the other effects for the test."""
        if isinstance(effect, BuildRun):
            self.engine.enqueue(built(effect))
        elif isinstance(effect, ArchiveOutcomes):
            self.engine.enqueue(OutcomesArchived(tuple(one.command for one in effect.outcomes)))
        else:
            self.effects.append(effect)

    def elect(self, epoch: int) -> None:
        self.cluster.change(epoch=epoch)
        self.engine.elected(leadership(epoch))

    def submit(self, command: Command) -> CommandId:
        world = self.cluster.world
        key = CommandId(f"cmd-{len(world.commands) + len(world.outcomes):010d}")
        queued = QueuedCommand(id=key, command=command, submitted_at=datetime.now(UTC))
        self.cluster.change(commands={**world.commands, key: queued})
        return key

    def outcome(self, command: CommandId) -> CommandOutcome | None:
        return self.cluster.world.outcomes.get(command)

    def fenced_writes(self) -> float:
        return self.registry.get_sample_value("nimbus_fenced_writes_total") or 0.0


def leadership(epoch: int) -> Leadership:
    token = FencingToken(path="/epoch", version=epoch, epoch=epoch)
    return Leadership(epoch, token, Participant(id="s1", host="h", port=0, boot_id="b"))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(loop, "PATIENCE_S", 0.02)
    bench = Bench()
    yield bench
    bench.gate.set()
    assert bench.engine.stop(timedelta(seconds=60)), "the engine's thread hangs"


def start(run_id: str = "p-1") -> StartRun:
    return StartRun(pipeline=NAME, run_id=RunId(run_id))


DRAFT = Draft(
    id=RunId("p-0"),
    pipeline=NAME,
    release=DIGEST,
    parameters={},
    logical_date=RECORD.updated_at,
    cause=RunCause.MANUAL,
    asked_at=RECORD.updated_at,
)


def test_a_leadership_won_again_while_the_engine_was_busy_is_not_missed(
    bench: Bench, eventually: Eventually
) -> None:
    bench.gate.clear()
    bench.elect(1)
    eventually(lambda: bench.loads == 1, what="the first term asks for the state")
    bench.engine.revoked(leadership(1), "test")
    bench.engine.enqueue(QuarantineChanged({NAME: "a.py is nowhere"}))
    bench.elect(2)
    bench.gate.set()

    eventually(lambda: bench.engine.status.recovered_at and bench.engine.status.epoch == 2)
    asked = bench.submit(start())
    eventually(lambda: bench.outcome(asked))
    found = bench.outcome(asked)
    assert found is not None
    assert (found.code, found.epoch) == ("quarantined", 2)


def test_results_that_arrive_during_an_outage_are_taken_in_afterwards(
    bench: Bench, eventually: Eventually
) -> None:
    bench.elect(1)
    asked = bench.submit(ActivatePipeline(pipeline=NAME))
    release = ReleaseOf(NAME, DIGEST)
    eventually(lambda: PrepareRelease(release) in bench.effects)

    bench.cluster.available = False
    bench.cluster.store.fire_all()  # and it reads
    eventually(lambda: bench.refused > 0, what="the engine notices the outage")
    bench.engine.enqueue(QuarantineChanged({NAME: "a.py is nowhere"}))
    bench.engine.enqueue(ReleasePrepared(release, SPEC))
    seen = bench.refused
    eventually(lambda: bench.refused > seen + 2)
    bench.cluster.available = True

    eventually(lambda: bench.outcome(asked), what="the activation is answered")
    refused = bench.submit(start())
    eventually(lambda: bench.outcome(refused))
    assert bench.cluster.world.outcomes[refused].code == "quarantined"


def test_a_result_beside_a_look_that_fails_is_not_lost(bench: Bench, eventually: Eventually) -> None:
    bench.elect(1)
    asked = bench.submit(ActivatePipeline(pipeline=NAME))
    release = ReleaseOf(NAME, DIGEST)
    eventually(lambda: PrepareRelease(release) in bench.effects)
    bench.leads = False  # the inbox grows while nothing is decided
    bench.cluster.available = False
    bench.cluster.store.fire_all()
    bench.engine.enqueue(ReleasePrepared(release, SPEC))
    bench.leads = True
    eventually(lambda: bench.refused > 0)
    bench.cluster.available = True

    eventually(lambda: bench.outcome(asked), what="the activation is answered")


def test_an_engine_that_cannot_take_the_lead_resigns_and_takes_the_next(
    bench: Bench, eventually: Eventually
) -> None:
    bench.no_store = True
    bench.elect(1)
    eventually(lambda: any(isinstance(effect, ResignLeadership) for effect in bench.effects))
    bench.no_store = False
    bench.elect(2)

    eventually(lambda: bench.engine.status.epoch == 2 and bench.engine.status.recovered_at)


def test_nothing_is_decided_while_leadership_is_in_doubt(bench: Bench, eventually: Eventually) -> None:
    bench.elect(1)
    eventually(lambda: bench.engine.status.recovered_at)
    bench.leads = False
    loads = bench.loads
    asked = bench.submit(start())
    bench.engine.revoked(leadership(1), "test")
    eventually(lambda: bench.engine.status.epoch is None)

    assert bench.outcome(asked) is None
    assert bench.loads == loads


def test_an_exception_in_a_rule_resigns_and_the_thread_serves_the_next_epoch(
    bench: Bench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object) -> None:
        raise ZeroDivisionError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(leader_term, "next_key", broken)
        bench.elect(1)
        eventually(lambda: bench.effects)
        assert bench.effects == [ResignLeadership("the engine failed; the log has the trace")]
        eventually(lambda: bench.engine.status.epoch is None)
    bench.elect(2)
    asked = bench.submit(start())

    eventually(lambda: bench.outcome(asked))
    assert RunId("p-1") in bench.cluster.world.runs


def test_a_write_that_is_refused_is_counted_and_ends_the_term(bench: Bench, eventually: Eventually) -> None:
    bench.elect(1)
    eventually(lambda: bench.engine.status.recovered_at)
    bench.cluster.change(epoch=2)  # another leader
    bench.submit(start())

    eventually(lambda: bench.fenced_writes() == 1)
    eventually(lambda: bench.engine.status.epoch is None)
    assert bench.cluster.world.runs == {}


def test_a_rule_that_fails_over_one_pipeline_or_run_leaves_the_others_alone(
    bench: Bench, eventually: Eventually
) -> None:
    strange = replace(SPEC, name=PipelineName("q"), schedule=Schedule(cron="* * * * *", timezone="No/Where"))
    run = new_run(SPEC, DRAFT)
    (task,) = run.tasks.values()
    broken = replace(task, spec=replace(task.spec, needs=(TaskName("nowhere"),)))
    bench.cluster.change(
        pipelines={NAME: RECORD, strange.name: active(strange, schedule_position=RECORD.updated_at)},
        runs={run.id: replace(run, tasks=Tasks([broken]))},
    )
    bench.elect(1)
    asked = bench.submit(start())

    eventually(lambda: bench.outcome(asked))
    assert RunId("p-1") in bench.cluster.world.runs
    # By then it has also cleaned up, which retries parked keys, and waits.
    again = bench.submit(start("p-2"))
    eventually(lambda: bench.outcome(again))
    assert bench.effects == [], "no effect, such as a resignation, follows"
    assert bench.engine.status.epoch == 1


def test_a_flood_of_fire_times_does_not_keep_a_command_waiting(bench: Bench, eventually: Eventually) -> None:
    flood = replace(SPEC, schedule=Schedule(cron="* * * * *", timezone="UTC", catchup=CatchUp.ALL))
    record = active(flood, schedule_position=datetime.now(UTC) - timedelta(days=4))
    bench.cluster.change(pipelines={NAME: record})
    bench.elect(1)
    eventually(lambda: bench.cluster.world.runs)
    asked = bench.submit(start())

    eventually(lambda: bench.outcome(asked))
    assert len(bench.cluster.world.runs) < 4 * 24 * 60, "it came before the flood was over"


def test_old_outcomes_are_forgotten_by_the_leader_at_most_once_a_minute(
    bench: Bench, eventually: Eventually
) -> None:
    def old(name: str) -> CommandOutcome:
        return CommandOutcome(
            command=CommandId(name),
            accepted=True,
            code="ok",
            message="",
            decided_at=RECORD.updated_at,
            epoch=1,
            kind="start_run",
        )

    bench.cluster.change(outcomes={CommandId("cmd-old"): old("cmd-old")})
    bench.elect(1)
    eventually(lambda: not bench.cluster.world.outcomes)
    bench.cluster.change(outcomes={CommandId("cmd-older"): old("cmd-older")})
    asked = bench.submit(start())
    eventually(lambda: bench.outcome(asked))
    again = bench.submit(start())
    eventually(lambda: bench.outcome(again))

    assert CommandId("cmd-older") in bench.cluster.world.outcomes


@dataclass
class HeldClock:
    time: datetime = RECORD.updated_at

    def now(self) -> datetime:
        return self.time

    def elapsed_s(self) -> float:
        return (self.time - RECORD.updated_at).total_seconds()


def term_of(bench: Bench, clock: Clock, effects: list[Effect]) -> LeaderTerm:
    bench.cluster.change(epoch=1)
    ours = LeaderTerm(
        epoch=1,
        schema=1,
        leader=Leader(id="s1", host="h", boot_id="b", version="1"),
        store=DictLeaderStore(bench.cluster, 1),
        inbox=lambda _news: None,
        start_effect=effects.append,
        policy=Policy(),
        clock=clock,
        metrics=EngineMetrics(CollectorRegistry()),
    )
    recover(ours)
    return ours


def test_a_result_that_an_earlier_term_asked_for_is_not_taken_for_ours(bench: Bench) -> None:
    ours = term_of(bench, SystemClock(), [])
    key = Key("command", "cmd-0")
    run = replace(new_run(SPEC, DRAFT), state=RunState.SUCCEEDED, finished_at=RECORD.updated_at)
    bench.cluster.change(runs={run.id: run})
    recover(ours)
    ours.apply((RunArchived(run.id), RunBuilt(key, Built(DRAFT, new_run(SPEC, DRAFT)))))
    ours.apply((BuildingFailed(key, DRAFT, StoreUnavailableError("it is away")),))

    assert not ours.state.runs.finished[run.id].archived, "a later run of this id would never go to history"
    assert (ours.state.builds.results, ours.state.work.parked) == ({}, {})


def test_a_template_that_breaks_the_limits_is_refused_and_the_leader_leads_on(
    bench: Bench, eventually: Eventually
) -> None:
    endless = "{{ ([[1] * 1000] * 3000) | sum(start=[]) | length }}"
    (plain,) = SPEC.tasks
    names = {PipelineName("q"): endless, PipelineName("r"): "{{ ds }}"}
    bench.cluster.change(
        pipelines={
            name: active(replace(SPEC, name=name, tasks=(replace(plain, args=(text,)),)))
            for name, text in names.items()
        }
    )
    effects = Effects(
        read_run=lambda _run: None,
        read_slots=lambda _attempts: {},
        history=S3History(MemoryObjectStore()),
        preparer=NoPreparer(),
        definitions=OnDisk(),
        renderer=Templates(),
        prepare_run=prepare,
        open_file=lambda _reference, _path: None,
        probe=lambda _probe: ProbeResult(False, "no"),
        sender=AlertSender(
            {}, cluster="c", public_url="", leads_in=lambda _: True, enqueue=bench.engine.enqueue
        ),
        resign=lambda _reason, _to: None,
        enqueue=bench.engine.enqueue,
    )
    bench.start_effect = effects.start
    try:
        bench.elect(1)
        bad, good = (
            bench.submit(StartRun(pipeline=name, run_id=RunId(f"{name}-1"), logical_date=RECORD.updated_at))
            for name in names
        )
        eventually(lambda: bench.outcome(bad) and bench.outcome(good))
    finally:
        effects.close()

    refused = bench.cluster.world.outcomes[bad]
    assert (refused.code, "repeated 3000 times is too long" in refused.message) == ("template", True)
    (run,) = bench.cluster.world.runs.values()
    assert [task.spec.args for task in run.tasks.values()] == [("2026-03-01",)]
    assert bench.engine.status.epoch == 1


class NoPreparer:
    def prepare(self, release: ReleaseOf) -> PipelineSpec:
        raise AssertionError(release)


def test_a_run_that_cannot_be_built_now_is_parked_and_tried_again(bench: Bench) -> None:
    (plain,) = SPEC.tasks
    with_template = replace(SPEC, tasks=(replace(plain, args=("{{ ds }}",)),))
    other = PipelineName("q")
    bench.cluster.change(pipelines={NAME: active(with_template), other: replace(RECORD, name=other)})
    waiting = bench.submit(start())
    effects: list[Effect] = []
    clock = HeldClock()
    ours = term_of(bench, clock, effects)
    ours.decide()
    (asked,) = effects
    assert isinstance(asked, BuildRun)

    ours.apply((BuildingFailed(asked.key, asked.draft, StoreUnavailableError("it is away")),))
    paused = bench.submit(PausePipeline(pipeline=other))
    ours.read_changes((CommandsChanged(),))
    ours.decide()

    assert effects == [asked], "not at once, for ever"
    assert (bench.outcome(waiting), ours.state.work.parked.keys()) == (None, {asked.key})
    assert bench.outcome(paused), "and the others go on"

    clock.time += timedelta(seconds=leader_term.TIDY_EVERY_S)
    ours.tend()
    ours.decide()
    assert len(effects) == 2
    ours.apply((built(asked),))
    ours.decide()
    found = bench.outcome(waiting)
    assert found is not None
    assert found.accepted


def test_the_status_names_a_worker_that_refused_as_soon_as_the_leader_counts_it(
    bench: Bench, eventually: Eventually
) -> None:
    bench.cluster.change(workers={WORKER.id: WORKER})
    bench.elect(1)
    bench.submit(start())
    eventually(lambda: bench.cluster.world.slots, what="the attempt is open")
    told = bench.told
    (attempt,) = bench.cluster.world.slots
    end = End(attempt=str(attempt), outcome=Outcome.REFUSED, written_by="worker", ended_at=datetime.now(UTC))
    bench.cluster.set_slots(attempt, Slots(end=end))

    eventually(
        lambda: bench.engine.status.refusals.keys() == {WORKER.id}, what="the refusal is in the status"
    )
    eventually(lambda: bench.told > told, what="the registrar is woken")
    assert bench.engine.status.recovered_at is not None
    bench.engine.revoked(leadership(1), "over")
    eventually(lambda: not bench.engine.status.refusals, what="only the leader says so")
