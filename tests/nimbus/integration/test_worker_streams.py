"""Real Structured Streaming in a task that is kept running: its progress, one driver for its checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.folder import AttemptFolder
from tests.nimbus.worker_bench import Bench, eventually

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.usefixtures("java_home")]

STREAM = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
written = rows.writeStream.queryName("orders").format("parquet").option("checkpointLocation", sys.argv[1])
written.trigger(processingTime="1 second").start(sys.argv[2]).awaitTermination()
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def _start(bench: Bench, number: int) -> AttemptFolder:
    attempt = f"run1.task.{number}"
    folder = bench.folder(attempt)
    order = bench.order(
        bench.script("stream.py", STREAM),
        attempt=attempt,
        task_kind=TaskKind.PYSPARK,
        args=(str(bench.root / "checkpoint"), str(bench.root / "table")),
        host_lost_after=timedelta(seconds=1),
    )
    folder.create(order)
    bench.launch(folder, bench.startup(stop_grace_s=5, spark_conf={"spark.ui.enabled": "false"}))
    return folder


def _batch(bench: Bench, attempt: str) -> int:
    """The last batch in the progress of the attempt; -1: none yet."""
    words = str(bench.slots(attempt).progress.get("streams", {}).get("orders", ""))
    found = re.fullmatch(r"batch (\d+) at \d{4}-\d\d-\d\dT[\d:]{8}Z, \d+\.\d rows/s", words)
    return -1 if found is None else int(found[1])


def _values(bench: Bench) -> list[int]:
    """The rows of the table, by the log of Spark's sink, which names the files of each batch."""
    names = set()
    for log in (bench.root / "table" / "_spark_metadata").iterdir():
        if log.name[0] != ".":
            names |= {json.loads(line)["path"] for line in log.read_text().splitlines()[1:]}
    tables = (pq.ParquetFile(name.removeprefix("file://")).read(["value"]) for name in names)
    return sorted(value for table in tables for value in table.column("value").to_pylist())


def test_stream_that_is_cut_off_has_ended_before_the_next_driver_and_loses_or_doubles_no_batch(
    bench: Bench,
) -> None:
    first = _start(bench, 1)
    eventually(lambda: _batch(bench, "run1.task.1") >= 3, "its progress", 120)

    bench.board.cut_off(down=True)
    eventually(lambda: first.exit_record() is not None, "it is ended")
    assert bench.driver_tree() == [], "neither driver nor JVM is left"
    assert first.exit_record().outcome is Outcome.LOST  # type: ignore[union-attr]
    bench.board.cut_off(down=False)
    before = len(_values(bench))
    assert before >= 40

    _start(bench, 2)
    eventually(lambda: len(_values(bench)) > before + 60, "the stream goes on", 120)
    bench.board.request_stop("run1.task.2")
    end = bench.await_end("run1.task.2")

    assert end.outcome is Outcome.STOPPED
    assert (values := _values(bench)) == list(range(len(values)))
