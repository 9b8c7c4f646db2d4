"""The leader's counts for its gauges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from nimbus.domain.cluster.alerts import Alert, AlertEvent, AlertState, accepted
from nimbus.domain.cluster.schedulers import WantedSlots
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import BackfillId, CommandId, RunId, TaskName
from nimbus.domain.pipelines.pipeline import Concurrency, Schedule, SparkDeploy, SparkPlace
from nimbus.domain.runs.run import RunState
from nimbus.domain.starts.admission import WaitReason
from nimbus.engine import report as reports
from nimbus.engine.report import standing
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant, Key
from nimbus.telemetry.engine import ClusterCounts, EngineMetrics
from tests.nimbus.definitions import active
from tests.nimbus.unit.test_engine_concurrency import NOW, SPEC, TASK, decide_all, known, start, submit

WIDE = replace(
    SPEC,
    concurrency=Concurrency(limit=2),
    tasks=(*(replace(TASK, name=TaskName(f"t{n}")) for n in range(3)), replace(TASK, runs_on=("gpu",))),
)

MINUTE = timedelta(minutes=1)
Name = TypeVar("Name")


def some(counts: Mapping[Name, float]) -> dict[Name, float]:
    return {key: count for key, count in counts.items() if count}


def test_ready_tasks_are_counted_by_what_they_wait_for() -> None:
    state = known(WIDE, slots=1)
    submit(state, start("one"), start("two"), start("three"))
    decide_all(state)

    found = standing(state, NOW)

    assert found.runs == {"queued": 1, "running": 2, "stopping": 0}
    assert some(found.tasks) == {"running": 1, "waiting": 11}
    assert some(found.ready_tasks) == {"all_busy": 5, "no_labels": 2}
    assert (found.slots, found.open_attempts, found.commands) == (1, 1, 0)


def test_nothing_is_counted_where_there_is_nothing() -> None:
    found = standing(known(), NOW)

    assert (some(found.runs), some(found.tasks), some(found.ready_tasks), found.slots) == ({}, {}, {}, 0)
    assert set(found.ready_tasks) == set(found.longest_waits_s) == {*WaitReason, "assignable", "not_asked"}


def test_oldest_ready_task_of_each_reason_says_how_long_it_waits() -> None:
    state = known(WIDE, slots=1)
    submit(state, start("one"))
    decide_all(state)
    state.commands.put(QueuedCommand(id=CommandId("cmd-9"), command=start("two"), submitted_at=NOW))
    decide_all(state, NOW + MINUTE)

    found = standing(state, NOW + 3 * MINUTE)

    assert some(found.longest_waits_s) == {"all_busy": 180.0, "no_labels": 180.0}


IN_CLUSTER = SparkPlace(target="big", deploy=SparkDeploy.CLUSTER)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {((), ""): 5, (("gpu",), ""): 2}),
        ({"runs_on": ("gpu", "a100")}, {(("a100", "gpu"), ""): 6, (("gpu",), ""): 2}),
        ({"pools": {"db": 2}}, {((), ""): 2, (("gpu",), ""): 2}),
        ({"pools": {"none": 1}}, {(("gpu",), ""): 2}),
        ({"spark_place": SparkPlace(target="big")}, {((), "big"): 6, (("gpu",), ""): 2}),
        ({"spark_place": IN_CLUSTER}, {((), "big"): 1, (("gpu",), ""): 2}),
    ],
    ids=["plain", "labels in order", "a pool's room", "no pool", "target", "no slot in a cluster"],
)
def test_slots_are_wanted_for_ready_tasks_that_another_worker_could_start(
    changes: dict[str, Any], expected: dict[tuple[tuple[str, ...], str], int]
) -> None:
    *plain, gpu = WIDE.tasks
    tasks = (*(replace(task, **changes) for task in plain), replace(gpu, name=TaskName("gpu")))
    state = known(replace(WIDE, tasks=tasks), slots=1)
    state.settings = replace(state.settings, pools={"db": 6})
    submit(state, start("one"), start("two"))
    decide_all(state)

    found = standing(state, NOW).wanted

    assert {(one.labels, one.target): one.slots for one in found} == expected
    assert {one.since for one in found} == {NOW}


def test_no_more_slots_are_wanted_than_a_run_may_fill_at_once() -> None:
    state = known(replace(WIDE, max_parallel_tasks=2, tasks=WIDE.tasks[:3]), slots=1)
    submit(state, start("one"))
    decide_all(state)

    assert [one.slots for one in standing(state, NOW).wanted] == [1]


def test_wanted_slots_are_gauges_and_none_is_told_from_no_answer() -> None:
    registry = CollectorRegistry()
    metrics = EngineMetrics(registry)
    gpu = WantedSlots(labels=("a100", "gpu"), target="big", slots=2, since=NOW)
    metrics.stands(ClusterCounts(wanted={gpu: 60.0}))

    said = generate_latest(registry).decode()

    assert 'nimbus_slots_wanted{labels="",target=""} 0.0' in said
    assert 'nimbus_slots_wanted{labels="a100,gpu",target="big"} 2.0' in said
    assert 'nimbus_slots_wanted_seconds{labels="a100,gpu",target="big"} 60.0' in said


def test_lines_beyond_the_first_ones_are_counted_without_being_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reports, "MAX_LINES", 1)
    state = known(WIDE, slots=1)
    submit(state, start("one"))
    decide_all(state)

    assert some(standing(state, NOW).ready_tasks) == {"all_busy": 2, "not_asked": 1}


def test_schedule_that_is_due_is_late_until_its_fire_time_is_dealt_with() -> None:
    state = State(epoch=1, schema=1)
    spec = replace(SPEC, schedule=Schedule(cron="0 6 * * *", timezone="UTC"))
    fire = NOW.replace(hour=6, minute=0)
    record = active(spec, updated_at=NOW, schedule_position=fire - timedelta(days=1))
    state.put_pipeline(record)

    assert standing(state, fire - MINUTE).schedule_lag_s == 0
    assert standing(state, fire + 5 * MINUTE).schedule_lag_s == 300
    key = Key("pipeline", spec.name)
    state.work.done(key)
    state.builds.under_way.add(key)
    assert standing(state, fire + 6 * MINUTE).schedule_lag_s == 360

    state.builds.under_way.discard(key)
    state.put_pipeline(replace(record, schedule_position=fire))

    assert standing(state, fire + 7 * MINUTE).schedule_lag_s == 0


def test_schedule_that_cannot_be_read_is_not_late() -> None:
    state = State(epoch=1, schema=1)
    broken = replace(SPEC, schedule=Schedule(cron="0 6 * * *", timezone="No/Where"))
    state.put_pipeline(active(broken, updated_at=NOW, schedule_position=NOW - 2 * timedelta(days=1)))

    assert standing(state, NOW).schedule_lag_s == 0


def test_last_success_is_that_of_the_newest_run_that_succeeded_and_goes_with_its_pipeline() -> None:
    state = known(SPEC)
    submit(state, start("one"))
    decide_all(state)
    run = next(iter(state.runs.live.values()))
    ended = replace(run, state=RunState.SUCCEEDED, finished_at=NOW + MINUTE)

    for one in (
        ended,
        replace(ended, id=RunId("older"), finished_at=NOW),
        replace(ended, id=RunId("failed"), state=RunState.FAILED, finished_at=NOW + 2 * MINUTE),
        replace(ended, id=RunId("past"), backfill=BackfillId("b"), finished_at=NOW + 2 * MINUTE),
    ):
        state.runs.put(one, Instant(NOW, 0.0))

    assert standing(state, NOW).last_success == {SPEC.name: NOW + MINUTE}
    state.forget_pipeline(SPEC.name)
    assert standing(state, NOW).last_success == {}


def test_outbox_is_counted_by_state_and_its_age_is_that_of_what_must_still_be_sent() -> None:
    state = known()
    waits = Alert(
        id="failed.r.oncall",
        event=AlertEvent.FAILED,
        target="oncall",
        pipeline=SPEC.name,
        raised_at=NOW - 2 * MINUTE,
    )
    given_up = replace(waits, id="old", state=AlertState.NOT_DELIVERED, raised_at=NOW - 9 * MINUTE)
    for alert in (waits, given_up, replace(waits, id="sent", state=AlertState.SENT)):
        state.alerts.put(alert)

    found = standing(state, NOW)

    assert some(found.outbox) == {("alert", "waiting"): 1, ("alert", "not_delivered"): 1}
    assert found.outbox_oldest_s == 120

    state.alerts.put(accepted(waits, NOW))
    state.alerts.forget("old")

    found = standing(state, NOW)
    assert (some(found.outbox), found.outbox_oldest_s) == ({}, 0)


def test_gauges_of_the_cluster_are_gone_when_leadership_is() -> None:
    registry, leads = CollectorRegistry(), [True]
    metrics = EngineMetrics(registry, lambda: leads[0])

    def said() -> bytes:
        return generate_latest(registry)

    assert b"nimbus_slots" not in said()
    metrics.leading(True)
    metrics.stands(ClusterCounts(ready_tasks={"all_busy": 5}, slots=4))
    assert b'nimbus_ready_tasks{reason="all_busy"} 5.0' in said()
    assert b"nimbus_slots 4.0" in said()

    leads[0] = False  # the engine does not know it yet
    assert b"nimbus_slots" not in said()
    leads[0] = True
    metrics.leading(False)

    assert b"all_busy" not in said()
    assert b"nimbus_slots" not in said()
