"""The engine's loop without its thread: for how long it waits for news, and what it does meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry

from leader import FencingToken, Leadership, Participant
from nimbus.adapters.memory_store import MemoryCluster, MemoryLeaderStore
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.commands import QueuedCommand, StartRun
from nimbus.domain.ids import CommandId, HostId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.workers import WorkerInfo
from nimbus.engine.loop import Engine
from nimbus.engine.policy import Policy
from nimbus.engine.reign import WORKERS_EVERY_S
from nimbus.telemetry.engine import EngineMetrics

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAME = PipelineName("p")
DIGEST = ReleaseDigest("a" * 64)
SPEC = PipelineSpec(name=NAME, tasks=(TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py"),))
RECORD = PipelineRecord(
    name=NAME,
    state=PipelineState.ACTIVE,
    published=DIGEST,
    published_spec=SPEC,
    release=DIGEST,
    spec=SPEC,
    schedule_position=NOW,
    updated_at=NOW,
)
COMMAND = QueuedCommand(
    id=CommandId("cmd-1"), command=StartRun(pipeline=NAME, run_id=RunId("p-1")), submitted_at=NOW
)
WORKER = WorkerInfo(
    id=WorkerId("w"), host=HostId("h"), hostname="h", pid=1, slots=1, version="1", started_at=NOW
)


@dataclass
class HeldClock:
    passed_s: float = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed_s)

    def elapsed_s(self) -> float:
        return self.passed_s


def test_engine_goes_on_at_once_when_its_look_at_the_workers_finds_a_slot_for_a_ready_task() -> None:
    cluster, clock = MemoryCluster(), HeldClock()
    cluster.change(epoch=1, pipelines={NAME: RECORD}, commands={COMMAND.id: COMMAND})
    cluster.change(workers={WORKER.id: replace(WORKER, draining=True)})
    engine = Engine(
        store_for=lambda leadership: MemoryLeaderStore(cluster, leadership.epoch),
        still_leads=lambda: True,
        start_effect=lambda _effect: None,
        policy=Policy(),
        clock=clock,
        metrics=EngineMetrics(CollectorRegistry()),
        on_status=lambda: None,
    )
    steps = engine.steps()
    next(steps)
    token = FencingToken(path="/epoch", version=1, epoch=1)
    engine.elected(Leadership(1, token, Participant(id="s", host="h", port=0, boot_id="b")))
    steps.send(engine.collect(0.0))
    assert steps.send(()) > 0.0, "the run waits for a worker"

    # Draining is said in a worker's data, of which no watch tells.
    cluster.world = replace(cluster.world, workers={WORKER.id: WORKER})
    clock.passed_s += WORKERS_EVERY_S

    assert steps.send(()) == 0.0
    steps.send(())
    assert len(cluster.world.orders) == 1
