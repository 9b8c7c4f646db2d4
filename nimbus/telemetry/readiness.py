"""Prometheus metrics of a scheduler's readiness. The registry is an argument, so that tests have their own.

Labels have few values: never a run id. Updated from any thread; the client library locks.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from nimbus.domain.schedulers import SchedulerInfo


class ReadinessMetrics:
    """Files that this scheduler still needs before it can lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ready = Gauge(
            "nimbus_ready", "1 while every needed artifact is here and verified.", registry=registry
        )
        self._missing_files = Gauge("nimbus_missing_files", "Files that are not here yet.", registry=registry)
        self._clock_ahead = Gauge(
            "nimbus_clock_ahead_seconds",
            "How far this scheduler's clock is ahead of ZooKeeper's; negative: behind.",
            registry=registry,
        )
        self._missing_bytes = Gauge("nimbus_missing_bytes", "Size of the missing files.", registry=registry)

    def reported(self, info: SchedulerInfo) -> None:
        """Set the gauges from this scheduler's registration."""
        self._ready.set(info.ready)
        self._missing_files.set(info.missing_count)
        self._clock_ahead.set(info.clock_ahead_s or 0.0)
        self._missing_bytes.set(info.missing_bytes)
