"""The attempts that a kept JVM fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nimbus.worker.host import free_room
from nimbus.worker.jvm.plan import JvmPlan, may_change

PLAN = JvmPlan(
    release="etl/1", environment={"JAVA_HOME": "/jre"}, master="local[2]", worker_conf={"spark.a": "1"}
)
GIB = 1 << 30
SALT = b"salt"


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, release="etl/2"),
        replace(PLAN, environment={"JAVA_HOME": "/other"}),
        replace(PLAN, environment={"JAVA_HOME": "/jre", "SECRET": "x"}),
        replace(PLAN, worker_conf={"spark.a": "2"}),
        replace(PLAN, task_conf={"spark.driver.memory": "4g"}),
        replace(PLAN, task_conf={"spark.jars": "x.jar"}),
        replace(PLAN, task_conf={"spark.hadoop.fs.s3a.endpoint": "x"}),
        replace(PLAN, task_conf={"spark.sql.codegen.cache.maxEntries": "7"}),
        replace(PLAN, task_conf={"spark.sql.catalogImplementation": "hive"}),
        replace(PLAN, task_conf={"spark.sql.broadcastExchange.maxThreadThreshold": "7"}),
    ],
)
def test_jvm_does_not_fit_what_it_cannot_follow(other: JvmPlan) -> None:
    assert other.key(SALT) != PLAN.key(SALT)


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAN, master="local[4]"),
        replace(PLAN, task_conf={"spark.a": "1", "spark.sql.shuffle.partitions": "3"}),
        replace(PLAN, worker_conf={"spark.a": "2"}, task_conf={"spark.a": "1"}),
        replace(PLAN, task_conf={"spark.ui.enabled": "true", "spark.eventLog.enabled": "true"}),
    ],
)
def test_jvm_fits_what_is_read_when_a_context_is_made(other: JvmPlan) -> None:
    assert other.key(SALT) == PLAN.key(SALT)


def test_property_without_meaning_to_spark_may_change() -> None:
    assert may_change("my.own")
    assert not may_change("spark.driver.memory")


def test_key_tells_nothing_about_a_secret_to_whoever_lacks_the_salt() -> None:
    assert PLAN.key(SALT) != PLAN.key(b"other")


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ({}, ""),
        ({"spark.master": "spark://h:7077"}, "its master is not local"),
        ({"spark.sql.catalogImplementation": "hive"}, "it uses Hive"),
        ({"spark.executorEnv.PYTHONPATH": "/x"}, "it sets spark.executorEnv.PYTHONPATH"),
    ],
)
def test_jvm_is_kept_unless_something_speaks_against_it(conf: dict[str, str], why: str) -> None:
    assert replace(PLAN, task_conf=conf).why_not() == why


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
def test_jvm_takes_its_heap_and_an_overhead(heap: str, takes: int) -> None:
    assert replace(PLAN, task_conf={"spark.driver.memory": heap}).memory_bytes == takes


def test_plan_comes_back_as_it_was_sent() -> None:
    assert JvmPlan.decode(PLAN.encode()) == PLAN


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
