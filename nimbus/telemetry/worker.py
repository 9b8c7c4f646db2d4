"""Prometheus metrics of a worker. The registry is handed in: an embedded worker has its scheduler's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nimbus.domain.slots import Holder
from nimbus.domain.task_run import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStanding:
    """How a worker stands at one moment."""

    slots: int
    attempts: Mapping[str, int]
    """That it is not done with, by phase."""
    registered: bool
    draining: bool
    leftover_logs: int
    """Logs of attempts whose runner or executor is gone, which storage has not taken yet."""


class WorkerMetrics:
    """What a worker counts. The worker's thread writes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._launched = Histogram(
            "nimbus_worker_launch_duration_seconds",
            "From reading an order to having started what runs its attempt.",
            ("holder",),
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
            registry=registry,
        )
        self._ended = Counter(
            "nimbus_worker_attempts_ended_total",
            "Attempts of this worker that ended, by outcome.",
            ("outcome",),
            registry=registry,
        )
        for holder in Holder:
            self._launched.labels(holder.value)
        for outcome in Outcome:
            self._ended.labels(outcome.value)

    def watch(self, standing: Callable[[], WorkerStanding]) -> None:
        """Add gauges that are read when somebody scrapes. Once for each registry; must not block."""
        self._registry.register(_StandingCollector(standing))

    def launched(self, holder: Holder, took_s: float) -> None:
        """What runs an attempt was started."""
        self._launched.labels(holder.value).observe(took_s)

    def ended(self, outcome: Outcome) -> None:
        """An attempt ended."""
        self._ended.labels(outcome.value).inc()


class _StandingCollector(Collector):
    def __init__(self, standing: Callable[[], WorkerStanding]) -> None:
        self._standing = standing

    def describe(self) -> Iterator[Metric]:
        """Nothing is asked at registration."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        found = self._standing()
        yield GaugeMetricFamily("nimbus_worker_slots", "Attempts that it runs at once.", found.slots)
        attempts = GaugeMetricFamily(
            "nimbus_worker_attempts", "Attempts that it is not done with, by phase.", labels=("phase",)
        )
        for phase, count in found.attempts.items():
            attempts.add_metric((phase,), count)
        yield attempts
        yield GaugeMetricFamily(
            "nimbus_worker_registered", "1 while its registration stands.", float(found.registered)
        )
        yield GaugeMetricFamily(
            "nimbus_worker_draining", "1 while it asks for no more work.", float(found.draining)
        )
        yield GaugeMetricFamily(
            "nimbus_worker_leftover_logs",
            "Logs of attempts whose runner is gone, which storage has not taken yet.",
            found.leftover_logs,
        )
