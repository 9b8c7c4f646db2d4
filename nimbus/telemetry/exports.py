"""Metrics of traces and lineage that are sent. The registry is handed in, so that tests have their own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


class ExportMetrics:
    """What is sent of runs. `kind`: `traces` or `lineage`. Any thread."""

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
        """Ask `waiting` whenever the gauge is read."""
        self._waiting.labels(kind).set_function(waiting)

    def sent(self, kind: str, count: int) -> None:
        """So many spans or events were accepted."""
        self._sent.labels(kind).inc(count)

    def failed(self, kind: str) -> None:
        """A try failed."""
        self._failed.labels(kind).inc()

    def dropped(self, kind: str) -> None:
        """A finished run is given up."""
        self._dropped.labels(kind).inc()
