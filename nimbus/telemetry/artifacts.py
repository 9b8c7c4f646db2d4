"""Metrics of garbage collections. The registry is an argument, so that tests have their own."""

from __future__ import annotations

from itertools import product
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

Where = Literal["bucket", "disk", "outputs", "logs", "history"]
Outcome = Literal["done", "postponed", "stopped", "refused", "failed"]


class GarbageMetrics:
    """Counts of garbage collections. Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = Counter(
            "nimbus_gc_runs_total",
            "Collections, by place and outcome.",
            ("where", "outcome"),
            registry=registry,
        )
        self._objects = Counter(
            "nimbus_gc_deleted_objects_total", "Objects or files deleted.", ("where",), registry=registry
        )
        self._bytes = Counter("nimbus_gc_deleted_bytes_total", "Their size.", ("where",), registry=registry)
        self._last = Gauge(
            "nimbus_gc_last_success_timestamp_seconds",
            "When a collection last ended; 0: not since the start.",
            ("where",),
            registry=registry,
        )
        self._share = Gauge(
            "nimbus_gc_progress_ratio",
            "How much of its current step a collection has done.",
            registry=registry,
        )

        for where, outcome in product(get_args(Where), get_args(Outcome)):  # so the first is an increase
            self._runs.labels(where, outcome)
        for where in get_args(Where):
            for by_where in (self._objects, self._bytes, self._last):
                by_where.labels(where)

    def ended(self, where: Where, outcome: Outcome) -> None:
        """Count the end of a collection."""
        self._runs.labels(where, outcome).inc()
        if outcome in ("done", "postponed"):
            self._last.labels(where).set_to_current_time()
        self._share.set(0)

    def deleted(self, where: Where, count: int, size_bytes: int) -> None:
        """Count deleted objects and bytes."""
        self._objects.labels(where).inc(count)
        self._bytes.labels(where).inc(size_bytes)

    def progress(self, done_count: int, total_count: int) -> None:
        """Set the progress of one step of a bucket collection: listing, reading, or deleting."""
        self._share.set(done_count / total_count if total_count else 0)
