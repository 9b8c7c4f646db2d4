"""Metrics of the engine: its own, those of the whole cluster, and those of the export of traces and lineage.

Only the leader has those of the cluster, so that sums count nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nimbus.domain.attempts.cost import Cost
from nimbus.domain.cluster.schedulers import WantedSlots
from nimbus.domain.ids import PipelineName
from nimbus.domain.runs.run import Run

_COSTS = {
    "cpu_seconds": "Processor time of attempts that ended, on their drivers' hosts.",
    "spark_task_seconds": "Time in which tasks of Spark ran for attempts that ended, over all executors.",
    "spark_shuffle_write_bytes": "Bytes that Spark wrote for shuffles of attempts that ended.",
    "spark_spill_bytes": "Bytes that Spark wrote to disks for attempts that ended, because memory was short.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCounts:
    """Counts of the cluster at one moment."""

    runs: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    ready_tasks: Mapping[str, int] = field(default_factory=dict)
    """Tasks whose needs are met, by what they wait for: a `WaitReason`, or `assignable`."""
    longest_waits_s: Mapping[str, float] = field(default_factory=dict)
    """By the same reasons: for how long the oldest of these tasks has been ready."""
    slots: int = 0
    open_attempts: int = 0
    commands: int = 0
    quarantined: int = 0
    parked: int = 0
    schedule_lag_s: float = 0.0
    last_success: Mapping[PipelineName, datetime] = field(default_factory=dict)
    outbox: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Entries of the outbox by kind and state."""
    wanted: Mapping[WantedSlots, float] = field(default_factory=dict)
    """What workers must be added for, and for how long the oldest of these tasks has been ready."""
    outbox_oldest_s: float = 0.0
    """Age of the oldest entry that is neither accepted nor given up; 0: there is none."""


class ClusterMetrics(Collector):
    """Gauges of the cluster, as last counted by the leader. A scheduler that does not lead has none.

    `leads` returns True when this process certainly leads. It is called at each scrape, and must not block.
    """

    def __init__(self, registry: CollectorRegistry, leads: Callable[[], bool]) -> None:
        self._leads = leads
        self._counts: ClusterCounts | None = None
        registry.register(self)

    def tell(self, counts: ClusterCounts | None) -> None:
        """Set the counts; None: this scheduler does not lead. Engine thread."""
        self._counts = counts

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registration does not call `collect` before the election exists."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        counts = self._counts
        if counts is None or not self._leads():
            return
        yield _labelled("nimbus_runs", "Live runs, by state.", "state", counts.runs)
        yield _labelled("nimbus_tasks", "Tasks of live runs, by state.", "state", counts.tasks)
        yield _labelled(
            "nimbus_ready_tasks",
            "Tasks whose needs are met, by what they wait for, as in `run show`. assignable: assigned next; "
            "not_asked: not evaluated, because beyond the first 100 groups of tasks that wait for the same.",
            "reason",
            counts.ready_tasks,
        )
        yield _labelled(
            "nimbus_task_wait_seconds",
            "How long the oldest of these tasks has been ready; 0: there is none.",
            "reason",
            counts.longest_waits_s,
        )
        yield from _wanted(counts.wanted)
        for name, words, value in (
            ("nimbus_slots", "Slots of all registered workers.", counts.slots),
            ("nimbus_open_attempts", "Attempts that are open.", counts.open_attempts),
            ("nimbus_commands_waiting", "Commands that wait for a decision.", counts.commands),
            ("nimbus_quarantined_pipelines", "Pipelines that cannot start runs.", counts.quarantined),
            (
                "nimbus_parked_keys",
                "Parked keys: the leader could not decide about them.",
                counts.parked,
            ),
        ):
            yield GaugeMetricFamily(name, words, value)
        yield GaugeMetricFamily(
            "nimbus_schedule_lag_seconds",
            "How long the oldest due fire time has waited for its run, or how far the position of a schedule "
            "is ahead of the clock; 0: neither. Without pipelines in quarantine.",
            counts.schedule_lag_s,
        )
        yield _labelled(
            "nimbus_last_success_timestamp_seconds",
            "When the last successful run ended, without backfills. A new leader knows only runs that ended "
            "within runs.keep_finished.",
            "pipeline",
            {name: at.timestamp() for name, at in counts.last_success.items()},
        )
        outbox = GaugeMetricFamily(
            "nimbus_outbox_entries",
            "Entries of the outbox (alert): waiting, sending, not_delivered (given up, kept for 7 days).",
            labels=("kind", "state"),
        )
        for labels, count in counts.outbox.items():
            outbox.add_metric(labels, count)
        yield outbox
        yield GaugeMetricFamily(
            "nimbus_outbox_oldest_seconds",
            "Age of the oldest entry that waits or is being sent; 0: there is none.",
            counts.outbox_oldest_s,
        )


def _wanted(wanted: Mapping[WantedSlots, float]) -> Iterator[Metric]:
    """Two gauges. Without labels and target there is always a value, which tells none from no answer."""
    labels = ("labels", "target")
    slots = GaugeMetricFamily(
        "nimbus_slots_wanted",
        "Slots that ready tasks lack. Without labels and target there is always a value, so that 0 differs "
        "from no answer.",
        labels=labels,
    )
    waits = GaugeMetricFamily(
        "nimbus_slots_wanted_seconds",
        "How long the oldest task that lacks a slot has been ready.",
        labels=labels,
    )
    rows = {("", ""): (0, 0.0)} | {
        (",".join(want.labels), want.target): (want.slots, waited_s) for want, waited_s in wanted.items()
    }
    for place, (count, waited_s) in rows.items():
        slots.add_metric(place, count)
        waits.add_metric(place, waited_s)
    yield from (slots, waits)


def _labelled(name: str, words: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family


class EngineMetrics:
    """Metrics of the engine. The registry is an argument, so that tests and embedders have their own."""

    def __init__(self, registry: CollectorRegistry, leads: Callable[[], bool] = lambda: True) -> None:
        self._cluster = ClusterMetrics(registry, leads)
        self._decisions = Counter(
            "nimbus_decisions_total", "Decisions written, by name.", ("decision",), registry=registry
        )
        self._seconds = Histogram(
            "nimbus_decision_duration_seconds",
            "From a decision to its committed transaction: mostly ZooKeeper.",
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
            "nimbus_attempts_total",
            "Attempts that ended while this scheduler led.",
            ("pipeline", "outcome"),
            registry=registry,
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
            "From acceptance to the final state of runs that ended while this scheduler led.",
            ("pipeline", "state"),
            buckets=(1, 10, 60, 300, 1_800, 7_200, 28_800),
            registry=registry,
        )
        self._fenced = Counter(
            "nimbus_fenced_writes_total", "Writes refused because another scheduler leads.", registry=registry
        )
        self._skipped = Counter(
            "nimbus_schedule_skipped_fires_total",
            "Fire times that started no run. Their reasons: `nimbus pipeline show`.",
            ("pipeline",),
            registry=registry,
        )
        self._event_wait = Histogram(
            "nimbus_event_wait_seconds",
            "How long the oldest event of a turn of the engine waited for it.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=registry,
        )

    def turned(self, waited_s: float) -> None:
        """Observe how long the oldest event of a turn has waited."""
        self._event_wait.observe(waited_s)

    def stands(self, standing: ClusterCounts) -> None:
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


class ExportMetrics:
    """Counts of the export. `kind`: `traces` or `lineage`. Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sent = Counter(
            "nimbus_telemetry_sent_total",
            "Spans (traces) and events (lineage) that were accepted.",
            ("kind",),
            registry=registry,
        )
        self._failed = Counter(
            "nimbus_telemetry_failed_tries_total",
            "Tries that the collector did not accept.",
            ("kind",),
            registry=registry,
        )
        self._dropped = Counter(
            "nimbus_telemetry_dropped_runs_total",
            "Finished runs that were given up.",
            ("kind",),
            registry=registry,
        )
        self._waiting = Gauge(
            "nimbus_telemetry_waiting_runs",
            "At the leader: runs whose spans or events are not all sent.",
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
