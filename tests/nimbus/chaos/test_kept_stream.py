"""A query of Structured Streaming that is kept running, on a real stack: killed, drained, replaced, stopped.

Its rows are counted by the log of Spark's sink: whatever happens, each batch is in the table once.
"""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.nimbus.chaos.cluster import Cluster, cluster, number_of, until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.spark,
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("java_home"),
]

NAME = "stream"
UNHURRIED = timedelta(seconds=20)
START_S = 240.0
PIPELINE = """\
schema: 1
name: stream
description: Release {release}.
tasks:
  rows:
    type: pyspark
    script: rows.py
    keep: running
    args: ["{place}"]
    retries: {{delay: 1s, max_delay: 5m}}
    spark: {{conf: {{spark.sql.shuffle.partitions: 1}}}}
"""
ROWS = """\
import sys
from pyspark.sql import SparkSession

place = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 10).option("numPartitions", 1).load()
written = rows.coalesce(1).writeStream.queryName("rows").format("parquet")
written = written.option("checkpointLocation", place + "/checkpoint").trigger(processingTime="1 second")
written.start(place + "/table").awaitTermination()
"""


def _publish(chaos: Cluster, folder: Path, release: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text(PIPELINE.format(release=release, place=folder.parent / "place"))
    (folder / "rows.py").write_text(ROWS)
    chaos.publish(folder)


def _live(chaos: Cluster) -> list[dict[str, Any]]:
    runs = chaos.ask(f"/runs?pipeline={NAME}&limit=50")["runs"]
    return [run for run in runs if run["finished_at"] is None]


def _computing(chaos: Cluster, run: str, number: int) -> dict[str, Any] | None:
    """The open attempt of a run, once its query has completed a batch."""
    (task,) = chaos.run(run)["tasks"]
    last = task["attempts"][-1] if task["attempts"] else None
    if last is None or last["number"] < number or last["outcome"] is not None:
        return None
    batch = (last["progress"] or {}).get("streams", {}).get("rows", "")
    return {**last, "kept": task["kept"]} if batch.startswith("batch ") else None


def _runs_on(chaos: Cluster, run: str, number: int) -> dict[str, Any]:
    return until(f"attempt {number} of {run} to stream", START_S, lambda: _computing(chaos, run, number))


def _values(place: Path) -> list[int]:
    """The rows of the table, by the log of Spark's sink, which names the files of each batch."""
    names = set()
    for log in (place / "table" / "_spark_metadata").iterdir():
        if log.name[0] != ".":
            lines = map(json.loads, log.read_text().splitlines()[1:])
            names |= {line["path"].removeprefix("file://") for line in lines}
    return sorted(v for name in names for v in pq.ParquetFile(name).read(["value"]).column(0).to_pylist())


def test_stream_outlives_a_killed_driver_a_drain_a_new_release_and_a_killed_leader(tmp_path: Path) -> None:
    with cluster(tmp_path / "stack", schedulers=2, workers=2, session=UNHURRIED) as chaos:
        _publish(chaos, tmp_path / "release", 1)
        (run,) = _live(chaos)
        assert (run["cause"], run["keeps_running"]) == ("activation", True)
        first = _runs_on(chaos, run["id"], 1)

        os.kill(first["pid"], signal.SIGKILL)
        second = _runs_on(chaos, run["id"], 2)
        assert second["kept"].startswith(
            "kept running: started again 1 time in the last 24 hours, last after"
        )

        chaos.command(f"/workers/{second['worker']}/cordon", {"reason": "new disk", "drain": True})
        third = _runs_on(chaos, run["id"], 3)
        assert third["worker"] != second["worker"]
        assert chaos.run(run["id"])["tasks"][0]["attempts"][1]["outcome"] == "stopped"

        leader = number_of(chaos.leader())
        _publish(chaos, tmp_path / "release", 2)
        chaos.kill_scheduler(leader)
        until("the old run to end", START_S, lambda: chaos.run(run["id"])["state"] == "stopped")
        (after,) = until("one live run", START_S, lambda: _live(chaos) if len(_live(chaos)) == 1 else None)
        assert after["release"] != run["release"]
        _runs_on(chaos, after["id"], 1)

        chaos.command(f"/runs/{after['id']}/stop", {"reason": "enough"})
        ended = chaos.finished(after["id"], START_S)
        chaos.start_scheduler(leader)
        assert (ended["state"], _live(chaos)) == ("stopped", [])
        old = chaos.run(run["id"])
        assert ended["started_at"] >= old["finished_at"], "the new release waited for the end of the old one"
        assert chaos.left_behind(run["id"]) == chaos.left_behind(after["id"]) == []

    values = _values(tmp_path / "place")
    assert values == list(range(len(values)))
    assert len(values) > 50
