"""Metrics of the leader's engine."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nimbus.domain.cost import Cost
from nimbus.domain.ids import PipelineName
from nimbus.domain.run import Run
from nimbus.telemetry.cluster import ClusterMetrics, Standing

_COSTS = {
    "cpu_seconds": "Processor time of attempts that ended, on their drivers' hosts.",
    "spark_task_seconds": "Time in which tasks of Spark ran for attempts that ended, over all executors.",
    "spark_shuffle_write_bytes": "Bytes that Spark wrote for shuffles of attempts that ended.",
    "spark_spill_bytes": "Bytes that Spark wrote to disks for attempts that ended, because memory was short.",
}


class EngineMetrics:
    """Metrics of the engine. The registry is an argument, so that tests and embedders have their own.

    Args:
        registry: The registry to join.
        leads: As in `ClusterMetrics`.
    """

    def __init__(self, registry: CollectorRegistry, leads: Callable[[], bool] = lambda: True) -> None:
        self._cluster = ClusterMetrics(registry, leads)
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
        self._takeover = Histogram(
            "nimbus_takeover_seconds",
            "From the election to the first decision with all records read.",
            buckets=(0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
            registry=registry,
        )
        self._attempts = Counter(
            "nimbus_attempts_total", "Attempts that ended.", ("pipeline", "outcome"), registry=registry
        )
        self._cpu, self._spark_time, self._shuffle, self._spill = (
            Counter(f"nimbus_attempt_{name}_total", words, ("pipeline",), registry=registry)
            for name, words in _COSTS.items()
        )
        self._peak = Histogram(
            "nimbus_attempt_peak_memory_bytes",
            "Peak memory of attempts that ended: of the largest process on the driver's host.",
            ("pipeline",),
            buckets=(64 << 20, 256 << 20, 1 << 30, 4 << 30, 16 << 30, 64 << 30),
            registry=registry,
        )
        self._run_took = Histogram(
            "nimbus_run_duration_seconds",
            "Wall time from acceptance to the final state.",
            ("pipeline", "state"),
            buckets=(1, 10, 60, 300, 1_800, 7_200, 28_800),
            registry=registry,
        )
        self._fenced = Counter(
            "nimbus_fenced_writes_total", "Writes refused because another scheduler leads.", registry=registry
        )
        self._skipped = Counter(
            "nimbus_schedule_skipped_fires_total",
            "Fire times of schedules that started no run.",
            ("pipeline",),
            registry=registry,
        )
        self._news_waited = Histogram(
            "nimbus_event_wait_seconds",
            "How long the oldest event of a turn has waited for the engine.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=registry,
        )

    def turned(self, waited_s: float) -> None:
        """Observe how long the oldest event of a turn has waited."""
        self._news_waited.observe(waited_s)

    def stands(self, standing: Standing) -> None:
        """Set the counts of the cluster."""
        self._cluster.tell(standing)

    def took_over(self, took_s: float) -> None:
        """Observe a take-over, which ends when all state is read."""
        self._takeover.observe(took_s)

    def decided(self, name: str, took_s: float) -> None:
        """Count a written decision."""
        self._decisions.labels(name).inc()
        self._seconds.observe(took_s)

    def run_moved(self, before: Run | None, after: Run) -> None:
        """Count the attempts that a decision closed, and the run if it ended."""
        for was, task in after.tasks.changes_since(None if before is None else before.tasks):
            opened = None if was is None else was.open_attempt
            if opened is None:
                continue
            closed = task.attempts[-1]  # a decision that closes an attempt opens none
            if closed.outcome is not None:
                self._attempts.labels(after.pipeline, closed.outcome.value).inc()
            if closed.cost is not None:
                self._count(after.pipeline, closed.cost)
        if after.finished_at is not None and (before is None or before.finished_at is None):
            took = after.finished_at - after.created_at
            self._run_took.labels(after.pipeline, after.state.value).observe(took.total_seconds())

    def _count(self, pipeline: PipelineName, cost: Cost) -> None:
        counted = (
            (self._cpu, cost.cpu_ms, 1000),
            (self._spark_time, cost.task_ms, 1000),
            (self._shuffle, cost.shuffle_write_bytes, 1),
            (self._spill, cost.spill_bytes, 1),
        )
        for counter, used, unit in counted:
            if used:
                counter.labels(pipeline).inc(used / unit)
        if cost.peak_memory_bytes is not None:
            self._peak.labels(pipeline).observe(cost.peak_memory_bytes)

    def fires_skipped(self, pipeline: PipelineName, count: int) -> None:
        """Count skipped fire times of a schedule."""
        self._skipped.labels(pipeline).inc(count)

    def leading(self, leads: bool) -> None:
        """Set whether this scheduler leads."""
        if not leads:
            self._cluster.tell(None)
        self._leading.set(leads)

    def fenced_out(self) -> None:
        """Count a refused write."""
        self._fenced.inc()
