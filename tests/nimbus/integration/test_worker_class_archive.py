"""A class-data archive of the real Spark: made when its worker is idle, used by the next driver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.domain.pipeline import TaskKind
from nimbus.domain.task_run import Outcome
from nimbus.worker.class_archive import FOLDER
from nimbus.worker.worker import Worker
from tests.nimbus import spark_start
from tests.nimbus.worker_bench import Bench, eventually
from tests.thorough import thorough

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java_home"), pytest.mark.timeout(900)]

MAPPED = """
from pathlib import Path
from pyspark.sql import SparkSession
session = SparkSession.builder.getOrCreate()
session.range(10).count()
jvm = session._jvm.java.lang.ProcessHandle.current().pid()
print("mapped:", "class-archives" in Path(f"/proc/{jvm}/maps").read_text())
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def worker(bench: Bench, java_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", spark_start.QUICK_JVM)  # without the archive of the tests
    settings = {"java_home": lambda: java_home, "idle_jvms": 0, "class_archive": True}
    made = bench.worker(settings=settings)
    made.start()
    yield made
    made.close(timedelta(seconds=10))


def _mapped(bench: Bench, attempt: str) -> bool:
    order = bench.order(bench.script("task.py", MAPPED), attempt=attempt, task_kind=TaskKind.PYSPARK)
    bench.board.assign("w1", order)
    folder = bench.folder(attempt)
    eventually(lambda: folder.is_delivered, attempt, 300)
    assert bench.await_end(attempt).outcome is Outcome.SUCCEEDED, folder.log.read_text()
    return "mapped: True\n" in folder.log.read_text()


def test_archive_that_is_there_is_used_and_a_damaged_one_harms_nothing(bench: Bench, worker: Worker) -> None:
    archives = bench.root / "w1" / "class-archives"
    shutil.copytree(spark_start.HOME / FOLDER, archives)
    assert _mapped(bench, "run1.first.1")

    _damage(archives)
    assert not _mapped(bench, "run1.damaged.1")


@thorough
def test_archive_is_made_after_the_first_spark_task_and_used_by_the_next(
    bench: Bench, worker: Worker
) -> None:
    archives = bench.root / "w1" / "class-archives"
    assert not _mapped(bench, "run1.first.1")

    eventually(lambda: list(archives.glob("*.jsa")), "the archive is made", 600)
    assert _mapped(bench, "run1.second.1")
    eventually(lambda: not list(archives.glob("making-*")), "no part is left")

    _damage(archives)
    assert not _mapped(bench, "run1.damaged.1")


def _damage(archives: Path) -> None:
    (archive,) = archives.glob("*.jsa")
    archive.chmod(0o600)
    with archive.open("r+b") as file:  # the size stays
        for place in range(400_000, archive.stat().st_size, 200_000):
            file.seek(place)
            file.write(b"\xff" * 16)
