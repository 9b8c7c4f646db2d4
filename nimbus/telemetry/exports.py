"""Metrics of the export of traces and lineage. The registry is an argument, so that tests have their own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class ExportMetrics:
    """Counts of the export. `kind`: `traces` or `lineage`. Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sent = Counter(
            "nimbus_telemetry_sent_total",
            "Spans and events that were accepted.",
            ("kind",),
            registry=registry,
        )
        self._failed = Counter(
            "nimbus_telemetry_failed_tries_total", "Tries that failed.", ("kind",), registry=registry
        )
        self._dropped = Counter(
            "nimbus_telemetry_dropped_runs_total",
            "Finished runs of which not all was accepted in time.",
            ("kind",),
            registry=registry,
        )
        self._waiting = Gauge(
            "nimbus_telemetry_waiting_runs",
            "Runs with something left to send; from the leader.",
            ("kind",),
            registry=registry,
        )

    def watch(self, kind: str, waiting: Callable[[], int]) -> None:
        """Call `waiting` whenever the gauge is read."""
        self._waiting.labels(kind).set_function(waiting)

    def sent(self, kind: str, count: int) -> None:
        """Count accepted spans or events."""
        self._sent.labels(kind).inc(count)

    def failed(self, kind: str) -> None:
        """Count a failed try."""
        self._failed.labels(kind).inc()

    def dropped(self, kind: str) -> None:
        """Count a finished run whose export is given up."""
        self._dropped.labels(kind).inc()
