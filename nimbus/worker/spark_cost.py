"""Adds up what Spark did for a task, from the status store that Spark's own pages read. Driver; main thread.

It is read before a context stops. The store has each executor, and the last 1,000 stages
(`spark.ui.retainedStages`). Source: `org.apache.spark.status.AppStatusStore` of Spark 3.5 to 4.3.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from nimbus.worker.files import write_atomic

_EVENTS_MS = 1000
"""How long to wait for the store to take in the last events."""
_DEADLINE_S = 2.0
"""A figure that is not complete by then is left out. An entry takes a millisecond."""
_PEAK = "executor_peak_bytes"


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
    yield "task_ms", sum(one.totalDuration() for one in executors)
    yield "shuffle_read_bytes", sum(one.totalShuffleRead() for one in executors)
    yield "shuffle_write_bytes", sum(one.totalShuffleWrite() for one in executors)
    if peak := max((_peak(one) for one in executors if one.id() != "driver"), default=0):
        yield _PEAK, peak
    no_quantiles, no_statuses = context._gateway.new_array(jvm.double, 0), jvm.java.util.ArrayList()
    stages = store.stageList(None, False, False, no_quantiles, no_statuses)
    yield "spill_bytes", sum(one.diskBytesSpilled() for one in _each(stages, until))


def _each(entries: Any, until: float) -> Iterator[Any]:
    for number in range(entries.size()):
        if time.monotonic() > until:
            raise TimeoutError
        yield entries.apply(number)


def _peak(executor: Any) -> int:
    """The memory of its processes, if Spark measures that (`spark.executor.processTreeMetrics.enabled`)."""
    found = executor.peakMemoryMetrics()
    if not found.isDefined():
        return 0
    value = found.get().getMetricValue
    tree = sum(int(value(f"ProcessTree{kind}RSSMemory")) for kind in ("JVM", "Python", "Other"))
    return tree or int(value("JVMHeapMemory")) + int(value("JVMOffHeapMemory"))
