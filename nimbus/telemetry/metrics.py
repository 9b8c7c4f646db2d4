"""Prometheus metrics of a scheduler. The registry is handed in, so that tests have their own.

Labels have few values: never a run id. Updated from any thread; the client library locks.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nimbus.domain.run import Outcome, Run
from nimbus.domain.schedulers import Role, SchedulerInfo

_LONG_S = (1, 10, 60, 300, 1_800, 7_200, 28_800)
_SHORT_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10)


class ElectionMetrics:
    """Who leads, how often that changed, and what stands in the way of leading."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._leading = Gauge("nimbus_leader", "1 while this scheduler leads, else 0.", registry=registry)
        self._epoch = Gauge("nimbus_epoch", "The last epoch this scheduler led in.", registry=registry)
        self._terms = Counter(
            "nimbus_leaderships_total", "Times this scheduler came to lead.", registry=registry
        )
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

    def leadership_began(self, epoch: int) -> None:
        """Count a term."""
        self._terms.inc()
        self._leading.set(1)
        self._epoch.set(epoch)

    def leadership_ended(self) -> None:
        """Note that this scheduler does not lead any more."""
        self._leading.set(0)

    def abdicated(self, cause: str) -> None:
        """Count an abdication.

        Args:
            cause: A constant, such as `not_ready` or `asked`.
        """
        self._abdications.labels(cause).inc()

    def registered(self, info: SchedulerInfo) -> None:
        """Take over what this scheduler publishes of itself."""
        self._leading.set(info.role is Role.LEADER)
        self._ready.set(info.ready)
        self._missing_files.set(info.missing_count)
        self._missing_bytes.set(info.missing_bytes)


class EngineMetrics:
    """What the leader decides, how long it takes, and how its runs end."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._decisions = Counter(
            "nimbus_decisions_total", "Decisions written.", ("name",), registry=registry
        )
        self._decision_took = Histogram(
            "nimbus_decision_seconds", "From decision to written.", buckets=_SHORT_S, registry=registry
        )
        self._event_waited = Histogram(
            "nimbus_event_queue_seconds",
            "How long an event waited for the leader's loop.",
            buckets=_SHORT_S,
            registry=registry,
        )
        self._live_runs = Gauge("nimbus_live_runs", "Runs that are not final.", registry=registry)
        self._commands = Gauge("nimbus_commands_waiting", "Commands not answered yet.", registry=registry)
        self._attempts = Counter(
            "nimbus_attempts_total", "Attempts that ended.", ("pipeline", "outcome"), registry=registry
        )
        self._run_took = Histogram(
            "nimbus_run_duration_seconds",
            "Wall time from acceptance to the final state.",
            ("pipeline", "state"),
            buckets=_LONG_S,
            registry=registry,
        )

    def decided(self, name: str, took_s: float) -> None:
        """Count a decision.

        Args:
            name: `Decision.name`, a constant.
            took_s: Seconds until it was written.
        """
        self._decisions.labels(name).inc()
        self._decision_took.observe(took_s)

    def event_taken(self, waited_s: float) -> None:
        """Note how long an event stood in the queue."""
        self._event_waited.observe(waited_s)

    def load(self, *, live_runs: int, commands: int) -> None:
        """Note how much there is to do."""
        self._live_runs.set(live_runs)
        self._commands.set(commands)

    def attempt_ended(self, pipeline: str, outcome: Outcome) -> None:
        """Count an attempt."""
        self._attempts.labels(pipeline, outcome.value).inc()

    def run_finished(self, run: Run) -> None:
        """Note a finished run's duration; a run that is not finished is not counted."""
        if run.finished_at is not None:
            took = run.finished_at - run.created_at
            self._run_took.labels(run.pipeline, run.state.value).observe(took.total_seconds())
