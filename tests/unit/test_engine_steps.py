"""The engine's loop without its thread: for how long it waits for news, and what it does meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry

from leader import FencingToken, Leadership, Participant
from nimbus.adapters.memory_store import MemoryCluster, MemoryLeaderStore
from nimbus.domain.commands import QueuedCommand, StartRun
from nimbus.domain.ids import CommandId, RunId
from nimbus.engine.loop import Engine, Steps
from nimbus.engine.news import CommandsChanged
from nimbus.engine.policy import Policy
from nimbus.engine.reign import WORKERS_EVERY_S
from nimbus.telemetry.engine import EngineMetrics
from tests.definitions import built
from tests.engine_bench import NAME, NOW, RECORD, WORKER

COMMAND = QueuedCommand(
    id=CommandId("cmd-1"), command=StartRun(pipeline=NAME, run_id=RunId("p-1")), submitted_at=NOW
)
ONE_SLOT = replace(WORKER, slots=1)


@dataclass
class HeldClock:
    passed_s: float = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed_s)

    def elapsed_s(self) -> float:
        return self.passed_s


def leading(cluster: MemoryCluster, clock: HeldClock) -> tuple[Engine, Steps[None]]:
    """An engine that leads and has nothing more to do now."""
    engine = Engine(
        store_for=lambda leadership: MemoryLeaderStore(cluster, leadership.epoch),
        still_leads=lambda: True,
        start_effect=lambda effect: engine.tell(built(effect)),  # type: ignore[arg-type]  # it only builds
        policy=Policy(),
        clock=clock,
        metrics=EngineMetrics(CollectorRegistry()),
        on_status=lambda: None,
    )
    steps = engine.steps()
    next(steps)
    token = FencingToken(path="/epoch", version=1, epoch=1)
    engine.elected(Leadership(1, token, Participant(id="s", host="h", port=0, boot_id="b")))
    assert rested(engine, steps), "it leads"
    return engine, steps


def rested(engine: Engine, steps: Steps[None]) -> float | None:
    """Let the engine work until it wants to wait; for how long."""
    while (wait_s := steps.send(engine.collect(0.0))) == 0.0 or not engine._inbox.empty():
        pass
    return wait_s


def test_engine_goes_on_at_once_when_its_look_at_the_workers_finds_a_slot_for_a_ready_task() -> None:
    cluster, clock = MemoryCluster(), HeldClock()
    cluster.change(epoch=1, pipelines={NAME: RECORD}, commands={COMMAND.id: COMMAND})
    cluster.change(workers={ONE_SLOT.id: replace(ONE_SLOT, draining=True)})
    _, steps = leading(cluster, clock)

    # Draining is said in a worker's data, of which no watch tells.
    cluster.world = replace(cluster.world, workers={ONE_SLOT.id: ONE_SLOT})
    clock.passed_s += WORKERS_EVERY_S

    assert steps.send(()) == 0.0
    steps.send(())
    assert len(cluster.world.orders) == 1


def test_engine_rests_when_the_attempt_that_it_opened_is_as_it_was_made() -> None:
    cluster, clock = MemoryCluster(), HeldClock()
    cluster.change(epoch=1, pipelines={NAME: RECORD}, workers={WORKER.id: WORKER})
    engine, steps = leading(cluster, clock)
    cluster.world = replace(cluster.world, commands={COMMAND.id: COMMAND})

    engine.tell(CommandsChanged())
    wait_s = rested(engine, steps)

    assert len(cluster.world.orders) == 1
    assert wait_s, "there is nothing to decide about empty slots"
