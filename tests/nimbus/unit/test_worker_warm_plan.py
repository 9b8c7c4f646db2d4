"""The attempts that a warm driver fits, and when a driver is warmed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nimbus.worker import free_room
from nimbus.worker.warm.demand import COLD_START_S, EXPECTED_S, Demand, why_not_now
from nimbus.worker.warm.plan import WarmPlan, may_change

PLAN = WarmPlan(environment={"JAVA_HOME": "/jre"}, master="local[2]", worker_conf={"spark.a": "1"})
GIB = 1 << 30


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, environment={"JAVA_HOME": "/other"}),
        replace(PLAN, worker_conf={"spark.a": "2"}),
        replace(PLAN, task_conf={"spark.driver.memory": "4g"}),
        replace(PLAN, task_conf={"spark.jars": "x.jar"}),
        replace(PLAN, task_conf={"spark.hadoop.fs.s3a.endpoint": "x"}),
        replace(PLAN, task_conf={"spark.sql.codegen.cache.maxEntries": "7"}),
        replace(PLAN, task_conf={"spark.sql.broadcastExchange.maxThreadThreshold": "7"}),
    ],
)
def test_driver_does_not_fit_what_its_jvm_cannot_follow(other: WarmPlan) -> None:
    assert other.key != PLAN.key


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, master="local[4]"),
        replace(PLAN, class_archive="/made/since.jsa"),
        replace(PLAN, task_conf={"spark.a": "1", "spark.sql.shuffle.partitions": "3"}),
        replace(PLAN, worker_conf={"spark.a": "2"}, task_conf={"spark.a": "1"}),
        replace(PLAN, task_conf={"spark.ui.enabled": "true", "spark.eventLog.enabled": "true"}),
    ],
)
def test_driver_fits_what_is_read_when_a_context_is_made(other: WarmPlan) -> None:
    assert other.key == PLAN.key


def test_property_without_meaning_to_spark_may_change() -> None:
    assert may_change("my.own")
    assert not may_change("spark.executorEnv.A")


@pytest.mark.parametrize(
    ("heap", "takes"),
    [
        ("1g", GIB + (384 << 20)),
        ("8g", 8 * GIB + 8 * GIB // 10),
        ("512m", (512 + 384) << 20),
        ("2048", 2 * GIB + (384 << 20)),
        ("much", GIB + (384 << 20)),
    ],
)
def test_driver_takes_its_heap_and_an_overhead(heap: str, takes: int) -> None:
    assert replace(PLAN, task_conf={"spark.driver.memory": heap}).memory_bytes == takes


def test_plan_comes_back_as_it_was_sent() -> None:
    assert WarmPlan.decode(PLAN.encode()) == PLAN


# When.


def test_task_is_expected_for_a_while_after_the_last_of_its_kind_was_ordered_or_ran() -> None:
    demand = Demand()
    demand.ordered("r.a.1", PLAN, 0.0)

    assert demand.expected(["r.a.1"], 5_000.0) == [PLAN]
    assert demand.expected([], 5_000.0 + EXPECTED_S) == [PLAN]
    assert demand.expected([], 5_001.0 + EXPECTED_S) == []


def test_newest_task_is_expected_first() -> None:
    demand, other = Demand(), replace(PLAN, worker_conf={})
    demand.ordered("r.a.1", PLAN, 0.0)
    demand.ordered("r.b.1", other, 1.0)

    assert demand.expected([], 2.0) == [other, PLAN]


def test_cold_start_is_left_alone_until_it_is_over_or_its_attempt_has_ended() -> None:
    demand = Demand()
    demand.started_cold("r.a.1", 0.0)

    assert demand.is_starting_cold(["r.a.1"], COLD_START_S - 1)
    assert not demand.is_starting_cold(["r.a.1"], COLD_START_S)
    demand.started_cold("r.a.1", 0.0)
    assert not demand.is_starting_cold([], 1.0)


@pytest.mark.parametrize(
    ("busy", "slots", "free_gib", "may"),
    [
        (0, 2, 4.0, True),
        (1, 2, 4.0, True),
        (2, 2, 4.0, False),
        (1, 1, 4.0, True),
        (2, 1, 4.0, False),
        (0, 2, 3.3, False),
        (0, 2, 2.0, False),
    ],
)
def test_driver_is_warmed_with_a_free_slot_and_enough_memory(
    busy: int, slots: int, free_gib: float, may: bool
) -> None:
    why = why_not_now(PLAN, busy=busy, slots=slots, available_bytes=int(free_gib * GIB))

    assert (why is None) == may


# Memory.


@pytest.mark.parametrize(
    ("limit", "used", "available_gib"),
    [("max", "0", 8), (str(4 * GIB), str(3 * GIB), 1), (str(64 * GIB), "0", 8), (None, None, 8)],
)
def test_available_memory_heeds_the_limit_of_the_control_group(
    limit: str | None, used: str | None, available_gib: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_room.psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * GIB))
    (tmp_path / "cgroup").write_text("0::/of/worker\n")
    group = tmp_path / "of" / "worker"
    group.mkdir(parents=True)
    if limit is not None and used is not None:
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text(f"{used}\n")

    assert free_room.available_memory(tmp_path, tmp_path / "cgroup") == available_gib * GIB
