"""Prometheus metrics of a scheduler. The registry is handed in, so that tests have their own.

Labels have few values: never a run id. Updated from any thread; the client library locks.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nimbus.domain.run import Outcome, Run
from nimbus.domain.schedulers import SchedulerInfo


class ReadinessMetrics:
    """What stands in the way of this scheduler's leading, and how often it stepped back."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._abdications = Counter(
            "nimbus_abdications_total",
            "Times this scheduler gave the lock back.",
            ("cause",),
            registry=registry,
        )
        self._ready = Gauge(
            "nimbus_ready", "1 while every needed artifact is here and verified.", registry=registry
        )
        self._missing_files = Gauge("nimbus_missing_files", "Files that are not here yet.", registry=registry)
        self._missing_bytes = Gauge("nimbus_missing_bytes", "Their size.", registry=registry)

    def abdicated(self, cause: str) -> None:
        """Count an abdication.

        Args:
            cause: A constant, such as `not_ready` or `asked`.
        """
        self._abdications.labels(cause).inc()

    def reported(self, info: SchedulerInfo) -> None:
        """Take over what this scheduler publishes of itself."""
        self._ready.set(info.ready)
        self._missing_files.set(info.missing_count)
        self._missing_bytes.set(info.missing_bytes)


class RunMetrics:
    """How runs and attempts end, and how long runs take."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "nimbus_attempts_total", "Attempts that ended.", ("pipeline", "outcome"), registry=registry
        )
        self._run_took = Histogram(
            "nimbus_run_duration_seconds",
            "Wall time from acceptance to the final state.",
            ("pipeline", "state"),
            buckets=(1, 10, 60, 300, 1_800, 7_200, 28_800),
            registry=registry,
        )

    def attempt_ended(self, pipeline: str, outcome: Outcome) -> None:
        """Count an attempt."""
        self._attempts.labels(pipeline, outcome.value).inc()

    def run_finished(self, run: Run) -> None:
        """Note a finished run's duration; a run that is not finished is not counted."""
        if run.finished_at is not None:
            took = run.finished_at - run.created_at
            self._run_took.labels(run.pipeline, run.state.value).observe(took.total_seconds())
