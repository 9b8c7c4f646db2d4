"""Prometheus metrics of a worker. The registry is an argument: an embedded worker uses its scheduler's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nimbus.domain.attempts.slots import Holder
from nimbus.domain.runs.task_run import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStanding:
    """Counts of a worker at one moment."""

    slots: int
    attempts: Mapping[str, int]
    """Unfinished attempts, by phase."""
    registered: bool
    draining: bool
    leftover_logs: int
    """Logs that are not stored yet, of attempts whose runner or executor has ended."""
    clock_ahead_s: float


class WorkerMetrics:
    """Metrics of a worker. The worker's thread updates them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._launched = Histogram(
            "nimbus_worker_launch_duration_seconds",
            "From the order to the start of what runs its attempt: process, pooled, application. Its count "
            "is the number of started attempts.",
            ("holder",),
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
            registry=registry,
        )
        self._ended = Counter(
            "nimbus_worker_attempts_ended_total",
            "Attempts of this worker that ended, with those that it reports as lost or refused.",
            ("outcome",),
            registry=registry,
        )
        for holder in Holder:
            self._launched.labels(holder.value)
        for outcome in Outcome:
            self._ended.labels(outcome.value)

    def watch(self, standing: Callable[[], WorkerStanding]) -> None:
        """Add gauges that are computed at each scrape. Once for each registry; `standing` must not block."""
        self._registry.register(_StandingCollector(standing))

    def launched(self, holder: Holder, took_s: float) -> None:
        """Observe the time to start the process that runs an attempt."""
        self._launched.labels(holder.value).observe(took_s)

    def ended(self, outcome: Outcome) -> None:
        """Count an ended attempt."""
        self._ended.labels(outcome.value).inc()


class _StandingCollector(Collector):
    def __init__(self, standing: Callable[[], WorkerStanding]) -> None:
        self._standing = standing

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registration does not call `collect`."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        figures = self._standing()
        yield GaugeMetricFamily("nimbus_worker_slots", "Attempts the worker runs at once.", figures.slots)
        attempts = GaugeMetricFamily(
            "nimbus_worker_attempts",
            "Unfinished attempts of the worker: preparing, running, settling.",
            labels=("phase",),
        )
        for phase, count in figures.attempts.items():
            attempts.add_metric((phase,), count)
        yield attempts
        yield GaugeMetricFamily(
            "nimbus_worker_registered", "1 while the worker is registered.", float(figures.registered)
        )
        yield GaugeMetricFamily(
            "nimbus_worker_draining", "1 while the worker accepts no more attempts.", float(figures.draining)
        )
        yield GaugeMetricFamily(
            "nimbus_worker_leftover_logs",
            "Logs that are not in storage yet, of attempts whose runner has ended. If storage accepts none: "
            "also those of the executor's attempts.",
            figures.leftover_logs,
        )
        yield GaugeMetricFamily(
            "nimbus_worker_clock_ahead_seconds",
            "How far the worker's clock is ahead of ZooKeeper's, measured at each heartbeat; negative: "
            "behind.",
            figures.clock_ahead_s,
        )
