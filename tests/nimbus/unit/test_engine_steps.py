"""The engine's loop without its thread: how long it waits for events, and its work in between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry

from leader import FencingToken, Leadership, Participant
from nimbus.domain.cluster.terms import EndCause
from nimbus.domain.commands import Abdicate, QueuedCommand, StartRun
from nimbus.domain.ids import CommandId, RunId
from nimbus.engine import loop
from nimbus.engine.decision import BuildRun
from nimbus.engine.events import CommandsChanged
from nimbus.engine.leader_term import WORKERS_EVERY_S, LeaderTerm
from nimbus.engine.loop import Engine, Steps
from nimbus.engine.policy import Policy
from nimbus.telemetry.engine import EngineMetrics
from tests.nimbus.definitions import built
from tests.nimbus.dict_cluster import DictCluster, DictLeaderStore
from tests.nimbus.engine_bench import NAME, NOW, RECORD, WORKER
from tests.nimbus.unit.test_engine_terms import a_scheduler

COMMAND = QueuedCommand(
    id=CommandId("cmd-1"), command=StartRun(pipeline=NAME, run_id=RunId("p-1")), submitted_at=NOW
)
LEADERSHIP = Leadership(
    1, FencingToken(path="/epoch", version=1, epoch=1), Participant(id="s", host="h", port=0, boot_id="b")
)
ONE_SLOT = replace(WORKER, slots=1)
LEADERSHIP = Leadership(
    1, FencingToken(path="/epoch", version=1, epoch=1), Participant(id="s", host="h", port=0, boot_id="b")
)


@dataclass
class HeldClock:
    passed_s: float = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed_s)

    def elapsed_s(self) -> float:
        return self.passed_s


def leading(
    cluster: DictCluster, clock: HeldClock, registry: CollectorRegistry | None = None
) -> tuple[Engine, Steps[None]]:
    """An engine that leads and has nothing to do."""
    engine = Engine(
        store_for=lambda leadership: DictLeaderStore(cluster, leadership.epoch),
        still_leads=lambda: True,
        start_effect=lambda effect: engine.enqueue(built(effect)) if isinstance(effect, BuildRun) else None,
        policy=Policy(),
        clock=clock,
        metrics=EngineMetrics(registry or CollectorRegistry()),
        on_status=lambda: None,
    )
    steps = engine.steps()
    next(steps)
    engine.elected(LEADERSHIP)
    assert rested(engine, steps), "it leads"
    return engine, steps


def rested(engine: Engine, steps: Steps[None]) -> float | None:
    """Let the engine work until it wants to wait. Returns how long."""
    while (wait_s := steps.send(engine.collect(0.0))) == 0.0 or not engine._inbox.empty():
        pass
    return wait_s


def test_engine_goes_on_at_once_when_its_look_at_the_workers_finds_a_slot_for_a_ready_task() -> None:
    cluster, clock = DictCluster(), HeldClock()
    cluster.change(epoch=1, pipelines={NAME: RECORD}, commands={COMMAND.id: COMMAND})
    cluster.change(workers={ONE_SLOT.id: replace(ONE_SLOT, draining=True)})
    _, steps = leading(cluster, clock)

    # Draining is in a worker's data, which has no watch.
    cluster.change(workers={ONE_SLOT.id: ONE_SLOT})
    clock.passed_s += WORKERS_EVERY_S

    assert steps.send(()) == 0.0
    steps.send(())
    assert len(cluster.world.orders) == 1


def test_engine_rests_when_the_attempt_that_it_opened_is_as_it_was_made() -> None:
    cluster, clock = DictCluster(), HeldClock()
    cluster.change(epoch=1, pipelines={NAME: RECORD}, workers={WORKER.id: WORKER})
    engine, steps = leading(cluster, clock)

    cluster.change(commands={COMMAND.id: COMMAND})
    wait_s = rested(engine, steps)

    assert len(cluster.world.orders) == 1
    assert wait_s, "there is nothing to decide about empty slots"


def test_gauges_of_the_cluster_come_with_each_takeover_and_go_with_the_leadership() -> None:
    cluster, registry = DictCluster(), CollectorRegistry()
    cluster.change(epoch=1, pipelines={NAME: RECORD}, workers={WORKER.id: WORKER})
    engine, steps = leading(cluster, HeldClock(), registry)
    assert registry.get_sample_value("nimbus_slots") == WORKER.slots
    assert registry.get_sample_value("nimbus_takeover_seconds_count") == 1

    engine.revoked(LEADERSHIP, "the session is over")
    rested(engine, steps)

    assert registry.get_sample_value("nimbus_slots") is None
    assert registry.get_sample_value("nimbus_leader") == 0
    engine.elected(LEADERSHIP)
    rested(engine, steps)
    assert registry.get_sample_value("nimbus_slots") == WORKER.slots


def test_report_says_what_is_wanted_only_after_this_leader_has_counted() -> None:
    cluster, clock = DictCluster(), HeldClock()
    cluster.change(epoch=1, pipelines={NAME: RECORD}, commands={COMMAND.id: COMMAND})
    engine, steps = leading(cluster, clock)
    reports = [engine.status.report.wanted]
    for passed_s in (loop.COUNT_EVERY_S, loop.REPORT_EVERY_S):
        clock.passed_s += passed_s
        rested(engine, steps)
    reports.append(engine.status.report.wanted)
    engine.revoked(LEADERSHIP, "the session is over")
    engine.elected(LEADERSHIP)
    rested(engine, steps)

    assert reports[0] is None
    assert [one.slots for one in reports[1] or ()] == [1]
    assert engine.status.report.wanted is None


@pytest.mark.parametrize(
    ("stops", "told", "cause", "reason"),
    [
        (True, "closed", EndCause.STOPPED, ""),
        (False, "switchover to s2: rack 4", EndCause.HANDED_OVER, "rack 4"),
        (False, "abdication: rack 4", EndCause.RESIGNED, "rack 4"),
        (False, "the connection broke", None, ""),
    ],
)
def test_engine_records_the_end_of_a_term_that_was_asked_for_and_no_other(
    stops: bool, told: str, cause: EndCause | None, reason: str
) -> None:
    cluster, clock = DictCluster(), HeldClock()
    cluster.change(epoch=1)
    engine, steps = leading(cluster, clock)
    if stops:
        engine.stop_soon()
    clock.passed_s += 60

    engine.revoked(LEADERSHIP, told)
    steps.send(engine.collect(0.0))

    end = cluster.world.terms[1].end
    assert (None if end is None else end.cause) == cause
    assert end is None or (end.reason, end.at) == (reason, NOW + timedelta(seconds=60))


@pytest.mark.parametrize(
    ("led_on_s", "told", "cause"),
    [
        (1, "switchover to s2: rack 4", EndCause.HANDED_OVER),
        (60, "abdication: disk", EndCause.RESIGNED),
        (60, "closed", EndCause.STOPPED),
    ],
)
def test_engine_that_leads_on_after_a_void_wish_records_why_its_term_ends_later(
    led_on_s: float, told: str, cause: EndCause
) -> None:
    cluster, clock = DictCluster(), HeldClock()
    cluster.change(epoch=1, schedulers=(a_scheduler("s2", "b2"),))
    engine, steps = leading(cluster, clock)
    wish = QueuedCommand(id=CommandId("cmd-2"), command=Abdicate(reason="rack 4", to="s2"), submitted_at=NOW)
    cluster.change(commands={wish.id: wish})
    engine.enqueue(CommandsChanged())
    rested(engine, steps)
    assert cluster.world.abdication is not None
    clock.passed_s += led_on_s

    if cause is EndCause.STOPPED:
        engine.stop_soon()
    engine.revoked(LEADERSHIP, told)
    steps.send(engine.collect(0.0))

    end = cluster.world.terms[1].end
    assert end is not None
    assert end.cause == cause


def test_engine_that_fails_records_why_its_term_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, clock = DictCluster(), HeldClock()
    cluster.change(epoch=1)
    engine, steps = leading(cluster, clock)

    def broken(*_: object) -> None:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(LeaderTerm, "decide", broken)
    engine.enqueue(CommandsChanged())
    steps.send(engine.collect(0.0))

    end = cluster.world.terms[1].end
    assert end is not None
    assert (end.cause, end.reason) == (EndCause.FAILED, "RuntimeError('a defect of ours')")


def test_revoked_returns_once_the_engine_has_heard_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "END_NOTED_WITHIN_S", 60.0)
    cluster, clock = DictCluster(), HeldClock()
    cluster.change(epoch=1)
    engine, _ = leading(cluster, clock)
    engine.start()
    engine.elected(LEADERSHIP)
    engine.stop_soon()

    engine.revoked(LEADERSHIP, "closed")
    end = cluster.world.terms[1].end
    engine.revoked(LEADERSHIP, "closed")  # from a term that is over

    assert engine.stop(timedelta(seconds=30))
    assert end is not None
    assert end.cause is EndCause.STOPPED
