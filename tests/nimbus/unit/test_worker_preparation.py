"""Preparation before a runner is launched."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from blobsync.testing.memory import MemoryObjectStore
from nimbus.domain.data.publications import OutsideData, Version
from nimbus.domain.ids import PipelineName, ReleaseDigest, WorkerId
from nimbus.domain.pipelines.pipeline import SparkDeploy, SparkMode, SparkPlace, TaskKind
from nimbus.worker.connect.server import RemoteServer
from nimbus.worker.connect.session import MissingPackagesError
from nimbus.worker.data.folder_checks import MARK
from nimbus.worker.data.outside import OutsideRefusedError
from nimbus.worker.environments import Environments, FoundEnvironment, TaskEnvironment
from nimbus.worker.preparation import (
    CannotRunHereError,
    PipelineUnfitError,
    _fetch_inputs,
    inputs_are_here,
    prepare,
    prepare_if_here,
)
from nimbus.worker.settings import RunnerPlan, WorkerSettings
from nimbus.worker.targets import SparkTarget, TargetKind
from tests.nimbus.worker_bench import Bench


class CollectedAtOnce:
    """A release that is collected as soon as it is not pinned."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def pinned(self, _pipeline: PipelineName, _digest: ReleaseDigest, _timeout: timedelta) -> Iterator[Path]:
        try:
            yield self._folder
        finally:
            shutil.rmtree(self._folder)

    def is_here(self, _pipeline: PipelineName, _digest: ReleaseDigest) -> bool:
        return self._folder.exists()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def prepared(bench: Bench, script: str) -> RunnerPlan:
    order = bench.order(script)
    settings = WorkerSettings(id=WorkerId("w1"), work_dir=bench.root / "w1", data_dir=bench.data)
    return prepare(order, settings, CollectedAtOnce(bench.release), bench.board.cluster())


def test_preparation_pins_the_release_while_it_reads_it_and_no_longer(bench: Bench) -> None:
    plan = prepared(bench, bench.script("task.py", ""))

    assert plan.release_root == bench.release
    assert not bench.release.exists()


def test_preparation_unpins_the_release_when_the_task_cannot_run_here(bench: Bench) -> None:
    with pytest.raises(CannotRunHereError, match=r"has no file missing\.py"):
        prepared(bench, "missing.py")

    assert not bench.release.exists()


@pytest.mark.parametrize("in_cluster", [False, True])
def test_objects_from_outside_are_verified_first_also_for_a_driver_in_a_cluster(
    bench: Bench, in_cluster: bool
) -> None:
    (store := MemoryObjectStore()).write("a", b"1")
    settings = WorkerSettings(
        id=WorkerId("w1"),
        work_dir=bench.root / "w1",
        data_dir=bench.data,
        open_bucket={"in": store}.__getitem__,
    )
    place = SparkPlace(target="big", deploy=SparkDeploy.CLUSTER) if in_cluster else None
    order = bench.order(bench.script("task.py", ""), spark_place=place)
    of = OutsideData(uri="s3://in/a", sha256="0" * 64)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    order = replace(order, pins={"landing": (Version(partition="", number=1, at=at, outside=of),)})

    assert not inputs_are_here(order, settings)
    with pytest.raises(OutsideRefusedError, match="s3://in/a has another digest"):
        _fetch_inputs(order, settings, None)


class StartingServer(RemoteServer):
    """A Connect server that must be started first."""

    def is_up(self) -> bool:
        return False


def test_folder_of_outputs_that_is_gone_is_not_made_again(bench: Bench) -> None:
    shutil.rmtree(bench.data)

    with pytest.raises(CannotRunHereError, match=MARK):
        prepared(bench, bench.script("task.py", ""))

    assert not bench.data.exists()


def _no_java() -> Path:
    raise AssertionError("a client of Spark Connect needs no Java")


def test_task_in_mode_connect_is_given_a_session_and_no_java(bench: Bench) -> None:
    order = bench.order(bench.script("a.sql", ""), task_kind=TaskKind.SQL, spark_mode=SparkMode.CONNECT)
    settings = WorkerSettings(
        id=WorkerId("w1"),
        work_dir=bench.root / "w1",
        data_dir=bench.data,
        java_home=_no_java,
        connect=RemoteServer("sc://spark:1", "t0ken"),
        executors_see="data",
    )

    plan = prepare_if_here(order, settings, bench, bench.board.cluster())

    assert plan is not None
    assert plan.connect is not None
    assert plan.connect.token == "t0ken"
    assert "t0ken" not in repr(plan)


@pytest.mark.parametrize(
    ("master", "executors_see", "own", "sends"),
    [
        ("local[2]", None, {}, False),
        ("spark://here:7077", None, {}, True),
        ("spark://here:7077", "data", {}, True),
        ("spark://here:7077", "host", {}, False),
        ("spark://here:7077", None, {"spark.master": "local[1]"}, False),
        ("local[2]", None, {"spark.master": "yarn"}, True),
    ],
)
def test_executors_that_may_not_see_the_release_are_sent_it(
    bench: Bench, master: str, executors_see: str | None, own: dict[str, str], sends: bool
) -> None:
    order = bench.order(bench.script("task.py", ""), task_kind=TaskKind.PYSPARK, spark_conf=own)
    settings = WorkerSettings(
        id=WorkerId("w1"),
        work_dir=bench.root / "w1",
        data_dir=bench.data,
        master=master,
        executors_see=executors_see,
    )

    assert prepare(order, settings, bench, bench.board.cluster()).sends_files is sends


def test_task_gets_the_interpreter_spark_and_java_of_its_environment(bench: Bench) -> None:
    configured = TaskEnvironment(
        name="spark35", python=Path("/e/python"), java_home=Path("/e/java"), env={"TZ": "UTC"}
    )
    found = FoundEnvironment(configured=configured, python=(3, 9), spark="3.5.9", versions="all")
    environments = Environments()
    environments.update(spark35=found, broken="/f/python cannot be run: no such file")
    settings = WorkerSettings(
        id=WorkerId("w1"),
        work_dir=bench.root / "w1",
        data_dir=bench.data,
        env={"TZ": "Europe/Berlin", "SPARK_HOME": "/ours"},
        environments=environments,
    )
    script = bench.script("task.py", "")

    def prepare_in(environment: str, kind: TaskKind = TaskKind.PYSPARK) -> RunnerPlan:
        order = bench.order(script, known=False, task_kind=kind, environment=environment)
        return prepare(order, settings, bench, bench.board.cluster())

    plan = prepare_in("spark35")

    assert plan.interpreter == Path("/e/python")
    told = {name: plan.environment.get(name) for name in ("PYSPARK_PYTHON", "JAVA_HOME", "TZ", "SPARK_HOME")}
    assert told == {"PYSPARK_PYTHON": "/e/python", "JAVA_HOME": "/e/java", "TZ": "UTC", "SPARK_HOME": None}
    at_target = bench.order(
        script,
        known=False,
        task_kind=TaskKind.PYSPARK,
        spark_place=SparkPlace(target="old"),
    )
    target = SparkTarget(name="old", kind=TargetKind.STANDALONE, master="spark://h:1", environment="spark35")
    there = prepare(at_target, replace(settings, targets={"old": target}), bench, bench.board.cluster())
    assert there.interpreter == Path("/e/python")
    with pytest.raises(CannotRunHereError, match="no environment site; it has broken, spark35"):
        prepare_in("site")
    with pytest.raises(CannotRunHereError, match="broken of this worker cannot be used: /f/python cannot"):
        prepare_in("broken")
    with pytest.raises(PipelineUnfitError, match=r"needs Spark 4\.1, and environment spark35 has 3\.5\.9"):
        prepare_in("spark35", TaskKind.SPARK_PIPELINE)


def test_order_waits_with_those_that_take_long_while_the_connect_server_is_not_up(bench: Bench) -> None:
    order = bench.order(bench.script("a.sql", ""), task_kind=TaskKind.SQL, spark_mode=SparkMode.CONNECT)
    settings = WorkerSettings(
        id=WorkerId("w1"),
        work_dir=bench.root / "w1",
        data_dir=bench.data,
        connect=StartingServer("sc://spark:1", None),
    )

    assert prepare_if_here(order, settings, bench, bench.board.cluster()) is None


def test_task_in_mode_connect_cannot_run_on_a_worker_without_it(bench: Bench) -> None:
    order = bench.order(bench.script("a.sql", ""), task_kind=TaskKind.SQL, spark_mode=SparkMode.CONNECT)
    settings = WorkerSettings(id=WorkerId("w1"), work_dir=bench.root / "w1", data_dir=bench.data)

    with pytest.raises(CannotRunHereError, match="no Spark Connect"):
        prepare(order, settings, bench, bench.board.cluster())


def test_declarative_pipeline_is_refused_where_spark_connect_is_not_installed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise MissingPackagesError(["grpcio"])

    monkeypatch.setattr("nimbus.worker.preparation.check_packages", missing)
    order = bench.order(bench.script("etl.yml", ""), task_kind=TaskKind.SPARK_PIPELINE, args=("run",))
    settings = WorkerSettings(id=WorkerId("w1"), work_dir=bench.root / "w1", data_dir=bench.data)

    with pytest.raises(MissingPackagesError, match="which also runs declarative pipelines, needs packages"):
        prepare(order, settings, bench, bench.board.cluster())


def test_declarative_pipeline_is_refused_where_the_workers_spark_is_too_old(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nimbus.worker.preparation.version", lambda _name: "4.0.1")
    order = bench.order(bench.script("etl.yml", ""), task_kind=TaskKind.SPARK_PIPELINE, args=("run",))
    settings = WorkerSettings(id=WorkerId("w1"), work_dir=bench.root / "w1", data_dir=bench.data)

    with pytest.raises(CannotRunHereError, match=r"needs Spark 4\.1, and this worker has 4\.0\.1"):
        prepare(order, settings, bench, bench.board.cluster())


@pytest.mark.parametrize(
    ("jar", "refusal"),
    [
        ("spark-core_2.12-3.5.1.jar", r"whose Spark is 3\.5\.1, and PySpark here is "),
        ("other.jar", "whose Spark is none, and PySpark here is "),
        (f"spark-core_2.13-{version('pyspark')}-vendor.jar", None),
    ],
)
def test_spark_task_is_refused_where_spark_home_names_another_spark(
    bench: Bench, tmp_path: Path, jar: str, refusal: str | None
) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / jar).touch()
    settings = WorkerSettings(
        id=WorkerId("w1"),
        work_dir=bench.root / "w1",
        data_dir=bench.data,
        env={"SPARK_HOME": str(tmp_path / "spark")},
    )
    order = bench.order(bench.script("a.py", ""), task_kind=TaskKind.PYSPARK)

    with nullcontext() if refusal is None else pytest.raises(CannotRunHereError, match=refusal):
        prepare(order, settings, bench, bench.board.cluster())
