"""The progress that a driver with Spark reports, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nimbus.worker.driver import spark_figures


class Tracker:
    """One stage runs at a time, with two tasks."""

    stage = 0

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        return [self.stage]

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802 - Spark's name
        done = 2 if stage < self.stage else 1
        return SimpleNamespace(
            numTasks=2, numCompletedTasks=done, numActiveTasks=2 - done, numFailedTasks=stage % 2
        )


def test_stages_of_a_long_stream_are_summed_up_without_being_kept() -> None:
    book, tracker = spark_figures.StageBook(), Tracker()
    for tracker.stage in range(3000):
        told = book.update(tracker)

    assert told == {
        "stages": 3000,
        "stages_active": 1,
        "tasks_total": 6000,
        "tasks_done": 5999,
        "tasks_active": 1,
        "tasks_failed": 1500,
    }
    assert len(book._stages) == 1000


def test_streaming_queries_are_reported_with_their_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"batchId": 14, "timestamp": "2026-03-01T12:00:00.123Z", "processedRowsPerSecond": 120.54}
    queries = [
        SimpleNamespace(name="orders", id="1", lastProgress=batch),
        SimpleNamespace(name=None, id="0a1b", lastProgress={**batch, "processedRowsPerSecond": None}),
        SimpleNamespace(name="new", id="3", lastProgress=None),
    ]
    session = SimpleNamespace(streams=SimpleNamespace(active=queries))
    monkeypatch.setattr(spark_figures.SparkSession, "_instantiatedSession", session)

    assert spark_figures.streams() == {
        "streams": {
            "orders": "batch 14 at 2026-03-01T12:00:00Z, 120.5 rows/s",
            "0a1b": "batch 14 at 2026-03-01T12:00:00Z, 0.0 rows/s",
            "new": "no batch yet",
        }
    }


def test_task_without_streaming_queries_reports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_figures.SparkSession, "_instantiatedSession", None)

    assert spark_figures.streams() == {}
