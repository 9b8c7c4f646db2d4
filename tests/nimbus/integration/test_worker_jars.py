"""Jars of a release in a task's own Spark, and files of the release in its properties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.pipelines.pipeline import SparkMode, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.application.late_conf import JARS
from nimbus.worker.connect.plan import ConnectPlan
from nimbus.worker.driver.files import driver_plan
from nimbus.worker.jvm.plan import jvm_plan
from nimbus.worker.launcher import launch
from nimbus.worker.libraries import find_jars
from tests.nimbus.java_source import needs_javac, numbers_jar
from tests.nimbus.worker_bench import Bench

NUMBERS = "CREATE TEMPORARY VIEW numbers USING example.Numbers; SELECT id, told FROM numbers"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    (made.release / "jars" / "deep").mkdir(parents=True)
    yield made
    made.close()


def test_jars_come_before_those_of_properties_and_belong_to_the_key_of_a_jvm(bench: Bench) -> None:
    plan = bench.startup(jars=("a.jar", "b.jar"), spark_conf={JARS: "/of/worker.jar"}).plan
    order = bench.order("t.py", task_kind=TaskKind.PYSPARK, known=False)
    conf = {JARS: "{{ release_root }}/c.jar"}
    asked = bench.order("t.py", task_kind=TaskKind.PYSPARK, spark_conf=conf, known=False)
    root = bench.release

    assert driver_plan(plan, order).placed().task_conf[JARS] == f"{root}/a.jar,{root}/b.jar,/of/worker.jar"
    assert driver_plan(plan, asked).placed().task_conf[JARS] == f"{root}/a.jar,{root}/b.jar,{root}/c.jar"
    kept, other = jvm_plan(plan, order), jvm_plan(bench.startup().plan, order)
    assert kept is not None
    assert other is not None
    assert kept.task_conf[JARS] == f"{root}/a.jar,{root}/b.jar,/of/worker.jar"
    assert kept.key(b"") != other.key(b"")


def test_session_on_a_server_gets_only_jars_of_the_release(bench: Bench) -> None:
    connect = ConnectPlan(url="sc://localhost:1")
    plan = bench.startup(jars=("a.jar",), spark_conf={JARS: "/of/worker.jar"}, connect=connect).plan
    order = bench.order("t.py", task_kind=TaskKind.PYSPARK, spark_mode=SparkMode.CONNECT)

    assert driver_plan(plan, order).placed().task_conf == {JARS: f"{bench.release}/a.jar"}


@needs_javac
@pytest.mark.spark
@pytest.mark.usefixtures("java_home")
@pytest.mark.timeout(600)
def test_task_uses_the_data_source_of_its_jars_and_its_own_jars_come_first(bench: Bench) -> None:
    pq: Any = pytest.importorskip("pyarrow.parquet")
    numbers_jar(bench.release / "jars" / "old.jar", "old")
    numbers_jar(bench.release / "jars" / "deep" / "new.jar", "new")
    order = bench.order(bench.script("n.sql", NUMBERS), task_kind=TaskKind.SQL)
    folder = bench.folder()
    folder.create(order)
    jars = find_jars(bench.release, ["jars/deep/*.jar", "jars/*.jar"])
    launch(folder, bench.startup(jars=jars))

    assert bench.await_end(deadline_s=300).outcome is Outcome.SUCCEEDED, folder.log.read_text()
    rows = pq.read_table(bench.data / order.output / "data").to_pylist()
    assert rows == [{"id": 0, "told": "new"}, {"id": 1, "told": "new"}]
