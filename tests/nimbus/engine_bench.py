"""One term on a store in memory, with clocks that a test moves separately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry

from nimbus.domain.attempts.slots import Claim, End, Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.terms import Leader
from nimbus.domain.commands import Command, QueuedCommand, StartRun
from nimbus.domain.ids import (
    AttemptId,
    CommandId,
    HostId,
    PipelineName,
    RunId,
    TaskName,
    WorkerId,
)
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Outcome
from nimbus.engine.decision import BuildRun, Effect
from nimbus.engine.events import AttemptChanged, CommandsChanged, WorkersChanged
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.policy import Policy
from nimbus.engine.state_reader import Follow
from nimbus.telemetry.engine import EngineMetrics
from tests.nimbus.definitions import active, built, digest_of
from tests.nimbus.dict_cluster import DictCluster, DictLeaderStore
from tests.nimbus.loading import recover

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAME = PipelineName("p")
SPEC = PipelineSpec(name=NAME, tasks=(TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py"),))
DIGEST = digest_of(SPEC)
RECORD = active(SPEC, schedule_position=NOW, updated_at=NOW)
WORKER = WorkerInfo(
    id=WorkerId("w1"),
    host=HostId("h"),
    hostname="h",
    pid=1,
    slots=2,
    version="1",
    started_at=NOW,
    reported_at=NOW,
)

RUN = RunId("p-1")
ATTEMPT = AttemptId(RUN, TaskName("a"), 1)
START = StartRun(pipeline=NAME, run_id=RUN)


@dataclass
class Clocks:
    """Wall clock and elapsed time, which move separately."""

    wall: datetime = NOW
    steady_s: float = 1000.0

    def now(self) -> datetime:
        return self.wall

    def elapsed_s(self) -> float:
        return self.steady_s

    def pass_s(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.steady_s += seconds


@dataclass
class Bench:
    """One leader and its surroundings."""

    cluster: DictCluster = field(default_factory=DictCluster)
    clocks: Clocks = field(default_factory=Clocks)
    effects: list[Effect] = field(default_factory=list)
    follow: Follow | None = None

    def __post_init__(self) -> None:
        self.cluster.change(pipelines={NAME: RECORD}, workers={WORKER.id: WORKER})
        self.term = self.elect(1)

    def elect(
        self,
        epoch: int,
        store: type[DictLeaderStore] = DictLeaderStore,
        policy: Policy | None = None,
    ) -> LeaderTerm:
        self.cluster.change(epoch=epoch)
        self.registry = CollectorRegistry()
        self.term = LeaderTerm(
            epoch=epoch,
            schema=self.cluster.world.schema,
            leader=Leader(id=f"s{epoch}", host="h", boot_id=f"b{epoch}", version="1"),
            store=store(self.cluster, epoch),
            inbox=lambda _news: None,
            start_effect=self._start,
            policy=policy or Policy(),
            clock=self.clocks,
            metrics=EngineMetrics(self.registry),
            follow=self.follow,
        )
        recover(self.term)
        return self.term

    def _start(self, effect: Effect) -> None:
        """Build runs at once; keep the other effects for the test."""
        if isinstance(effect, BuildRun):
            self.term.apply((built(effect, self.cluster.world.runs),))
        else:
            self.effects.append(effect)

    def submit(self, command: Command, by: str = "", if_match: tuple[str, ...] = ()) -> CommandId:
        world = self.cluster.world
        key = CommandId(f"cmd-{len(world.commands) + len(world.outcomes):010d}")
        queued = QueuedCommand(id=key, command=command, submitted_at=NOW, submitted_by=by, if_match=if_match)
        self.cluster.change(commands={**world.commands, key: queued})
        return key

    def decide(self) -> None:
        """Notify the term that everything may have changed, and let it decide."""
        attempts = tuple(AttemptChanged(attempt) for attempt in self.term.state.attempts.slots)
        event = (CommandsChanged(), WorkersChanged(), *attempts)
        self.term.apply(event)
        self.term.read_changes(event)
        self.term.decide()
        while self.term.has_more() or not self.term.state.is_loaded:
            self.term.read_on()
            self.term.read_changes(())
            self.term.decide()

    def decide_once(self) -> None:
        """One turn with new commands."""
        self.term.read_changes((CommandsChanged(),))
        self.term.decide()

    def run(self, run: RunId = RUN) -> Run:
        return self.cluster.world.runs[run]

    def slots_of(self, attempts: Iterable[AttemptId]) -> Mapping[AttemptId, Slots]:
        return {attempt: self.cluster.world.slots[attempt] for attempt in attempts}

    def claim(self, attempt: AttemptId = ATTEMPT, *, has_heartbeat: bool = True) -> None:
        claim = Claim(attempt=str(attempt), worker=WORKER.id, host=WORKER.host, pid=7, claimed_at=NOW)
        slots = self.cluster.world.slots[attempt]
        self.cluster.set_slots(attempt, replace(slots, claim=claim, has_heartbeat=has_heartbeat))

    def end(
        self,
        attempt: AttemptId,
        outcome: Outcome,
        started_at: datetime | None = None,
        *,
        pipeline_at_fault: bool = False,
    ) -> None:
        """Fill END now, like a runner or a worker."""
        now = self.clocks.now()
        end = End(
            attempt=str(attempt),
            outcome=outcome,
            written_by="test",
            started_at=started_at or now,
            ended_at=now,
            pipeline_at_fault=pipeline_at_fault,
        )
        self.cluster.set_slots(attempt, replace(self.cluster.world.slots[attempt], end=end))

    def outcome(self) -> Outcome | None:
        return self.run().tasks[TaskName("a")].attempts[0].outcome
