"""Metrics of the leader's engine."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class EngineMetrics:
    """What the engine counts. The registry is handed in, so tests and embedders keep theirs apart."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Counter(
            "nimbus_decisions_total", "Decisions written, by name.", ("decision",), registry=registry
        )
        self._seconds = Histogram(
            "nimbus_decision_duration_seconds",
            "From a decision to its committed transaction.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=registry,
        )
        self._leading = Gauge("nimbus_leader", "1 while this scheduler leads.", registry=registry)
        self._epoch = Gauge("nimbus_epoch", "Epoch of the current leadership, 0 without.", registry=registry)
        self._fenced = Counter(
            "nimbus_fenced_writes_total", "Writes refused because another scheduler leads.", registry=registry
        )

    def decided(self, name: str, took_s: float) -> None:
        """A decision was written."""
        self._decisions.labels(name).inc()
        self._seconds.observe(took_s)

    def leading(self, epoch: int | None) -> None:
        """Leadership came or went."""
        self._leading.set(0 if epoch is None else 1)
        self._epoch.set(epoch or 0)

    def fenced_out(self) -> None:
        """A write was refused."""
        self._fenced.inc()
