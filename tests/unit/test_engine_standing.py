"""What the leader counts for its gauges."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from nimbus.domain.concurrency import Concurrency
from nimbus.domain.ids import TaskName
from nimbus.engine.standing import standing
from nimbus.telemetry.engine import EngineMetrics
from tests.unit.test_engine_concurrency import NOW, SPEC, TASK, decide_all, known, start, submit

WIDE = replace(
    SPEC,
    concurrency=Concurrency(limit=2),
    tasks=(*(replace(TASK, name=TaskName(f"t{n}")) for n in range(3)), replace(TASK, runs_on=("gpu",))),
)


def test_ready_tasks_are_counted_by_what_they_wait_for() -> None:
    state = known(WIDE, slots=1)
    submit(state, start("one"), start("two"), start("three"))
    decide_all(state)

    found = standing(state, NOW)

    assert found.runs == {"running": 2, "queued": 1}
    assert found.ready_tasks == {"all_busy": 5, "no_labels": 2}
    assert (found.slots, found.open_attempts, found.commands) == (1, 1, 0)


def test_nothing_is_counted_where_there_is_nothing() -> None:
    found = standing(known(), NOW)

    assert (found.runs, found.ready_tasks, found.slots) == ({}, {}, 0)


def test_gauges_of_the_cluster_are_gone_when_leadership_is() -> None:
    registry = CollectorRegistry()
    metrics = EngineMetrics(registry)
    metrics.leading(3)
    metrics.stands(runs={"running": 2}, ready_tasks={"all_busy": 5}, of_the_cluster={"slots": 4})
    assert b'nimbus_ready_tasks{reason="all_busy"} 5.0' in generate_latest(registry)

    metrics.leading(None)

    said = generate_latest(registry)
    assert b"all_busy" not in said
    assert b"nimbus_slots 0.0" in said
