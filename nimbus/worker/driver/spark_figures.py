"""What the Spark of a task does, as files: progress once a second, and at last its cost. In the driver.

A poll of Spark's status tracker takes some milliseconds. Source: SPARK-FACTS 2f. The costs are in the status
store that Spark's own pages read: each executor, and the last 1,000 stages (`spark.ui.retainedStages`).
Source: `org.apache.spark.status.AppStatusStore` of Spark 3.5 to 4.3.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from nimbus.worker.host.files import write_atomic

_EVERY_S = 1.0
_FIRST_S = 0.1
"""Interval until there is an application, so that even a short one's id is recorded."""


_MAX_STAGES = 1000
"""Stages whose figures may still change. A stream has millions over its life."""
_MAX_QUERIES = 20
_EVENTS_MS = 1000
"""How long to wait for the store to take in the last events."""
_DEADLINE_S = 2.0
"""A figure that is not complete by then is left out. An entry takes a millisecond."""
_PEAK = "executor_peak_bytes"


class StageBook:
    """Adds up stages over the life of a Spark context, because the tracker forgets old ones."""

    def __init__(self) -> None:
        self._stages: dict[int, tuple[int, int, int, int]] = {}
        self._earlier = [0, 0, 0, 0]
        """Sums over the stages that are no longer in `_stages`."""
        self._count = 0
        """Number of these."""
        self._active: set[int] = set()

    def update(self, tracker: Any) -> dict[str, int]:
        """Read the tracker, and return the totals."""
        active = set(tracker.getActiveStageIds())
        for stage in active | self._active:  # ended stages once more, for their last figures
            info = tracker.getStageInfo(stage)
            if info is not None:
                done = info.numCompletedTasks
                self._stages[stage] = (info.numTasks, done, info.numActiveTasks, info.numFailedTasks)
        self._active = active
        while len(self._stages) > _MAX_STAGES:
            oldest = self._stages.pop(next(iter(self._stages)))
            self._earlier = [sum(pair) for pair in zip(self._earlier, oldest)]
            self._count += 1
        total, done, running, failed = (sum(column) for column in zip(self._earlier, *self._stages.values()))
        return {
            "stages": self._count + len(self._stages),
            "stages_active": len(active),
            "tasks_total": total,
            "tasks_done": done,
            "tasks_active": running,
            "tasks_failed": failed,
        }


class ProgressThread(threading.Thread):
    """Writes `progress.json` while the task runs."""

    def __init__(self, place: Path, more: Callable[[], Mapping[str, Any]] = dict) -> None:
        """`more` returns further progress of the task."""
        super().__init__(name="driver-progress", daemon=True)
        self._place, self._more = place, more
        self._leaving = threading.Event()
        self._book = StageBook()
        self._written: dict[str, Any] | None = None
        self._named: tuple[Any, dict[str, str]] | None = None
        """A context and its names, which are read once."""

    def run(self) -> None:
        """Read and write until closed."""
        while not self._leaving.wait(_FIRST_S if self._named is None else _EVERY_S):
            try:
                self._step()
            except Exception:  # noqa: BLE001, S112 - top of the thread
                # A context that is being created lacks attributes, and one that is being stopped raises
                # errors of all kinds. If they matter, the task itself reports them.
                continue

    def _step(self) -> None:
        context = SparkContext._active_spark_context
        if context is None:
            return
        if self._named is None or self._named[0] is not context:
            self._named = context, _names(context)
        figures = {
            **self._named[1],
            **self._book.update(context.statusTracker()),
            **streams(),
            **self._more(),
        }
        if figures != self._written:
            document = {**figures, "at": datetime.now(timezone.utc).isoformat(timespec="seconds")}
            write_atomic(self._place, json.dumps(document).encode())
            self._written = figures

    def close(self) -> None:
        """End the thread; a call that hangs in a dying JVM is abandoned."""
        self._leaving.set()
        self.join(2.0)


def streams() -> dict[str, dict[str, str]]:
    """The last batch of each streaming query of the task's session; empty: it has none."""
    session = SparkSession._instantiatedSession
    queries = [] if session is None else session.streams.active[:_MAX_QUERIES]
    batches = {str(query.name or query.id)[:64]: _batch(query.lastProgress) for query in queries}
    return {"streams": batches} if batches else {}


def _batch(progress: Any) -> str:
    """A `StreamingQueryProgress` in words. None: there was no batch yet. In Spark 3 and 4 a mapping, too."""
    if progress is None:
        return "no batch yet"
    rate = float(progress.get("processedRowsPerSecond") or 0)
    return f"batch {progress['batchId']} at {progress['timestamp'][:19]}Z, {rate:.1f} rows/s"


def _names(context: Any) -> dict[str, str]:
    """The application's names, for users of Spark's own pages."""
    names = {"application": context.applicationId, "ui": context.uiWebUrl}
    return {name: str(value) for name, value in names.items() if value}


class CostBook:
    """Writes the figures of all contexts of a driver to a file."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._figures: dict[str, int] = {}

    def add(self, context: Any) -> None:
        """Add those of a context that is about to stop."""
        if context._jsc is None:  # it has stopped
            return
        with suppress(Exception):  # whatever it is: the figures must not cost the attempt its success
            for name, value in _figures(context):
                known = self._figures.get(name, 0)
                self._figures[name] = max(known, value) if name == _PEAK else known + value
        with suppress(OSError):
            write_atomic(self._place, json.dumps(self._figures).encode())


def _figures(context: Any) -> Iterator[tuple[str, int]]:
    until, spark = time.monotonic() + _DEADLINE_S, context._jsc.sc()
    with suppress(Exception):  # after a second without an end
        spark.listenerBus().waitUntilEmpty(_EVENTS_MS)
    store, jvm = spark.statusStore(), context._gateway.jvm
    executors = list(_each(store.executorList(False), until))
    yield "task_ms", sum(executor.totalDuration() for executor in executors)
    yield "shuffle_read_bytes", sum(executor.totalShuffleRead() for executor in executors)
    yield "shuffle_write_bytes", sum(executor.totalShuffleWrite() for executor in executors)
    if peak := max((_peak(executor) for executor in executors if executor.id() != "driver"), default=0):
        yield _PEAK, peak
    no_quantiles, no_statuses = context._gateway.new_array(jvm.double, 0), jvm.java.util.ArrayList()
    stages = store.stageList(None, False, False, no_quantiles, no_statuses)
    yield "spill_bytes", sum(stage.diskBytesSpilled() for stage in _each(stages, until))


def _each(entries: Any, until: float) -> Iterator[Any]:
    for number in range(entries.size()):
        if time.monotonic() > until:
            raise TimeoutError
        yield entries.apply(number)


def _peak(executor: Any) -> int:
    """The memory of its processes, if Spark measures that (`spark.executor.processTreeMetrics.enabled`)."""
    metrics = executor.peakMemoryMetrics()
    if not metrics.isDefined():
        return 0
    value = metrics.get().getMetricValue
    tree = sum(int(value(f"ProcessTree{kind}RSSMemory")) for kind in ("JVM", "Python", "Other"))
    return tree or int(value("JVMHeapMemory")) + int(value("JVMOffHeapMemory"))
