"""Prometheus metrics of the whole cluster. Only the leader has them, so that sums count nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nimbus.domain.ids import PipelineName
from nimbus.domain.leader_report import WantedSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Counts of the cluster at one moment."""

    runs: Mapping[str, int] = field(default_factory=dict)
    """Live runs by state."""
    tasks: Mapping[str, int] = field(default_factory=dict)
    """Tasks of these runs, by state."""
    ready_tasks: Mapping[str, int] = field(default_factory=dict)
    """Tasks whose needs are met, by what they wait for: a `WaitReason`, or `assignable`."""
    longest_waits_s: Mapping[str, float] = field(default_factory=dict)
    """By the same reasons: for how long the oldest of these tasks has been ready."""
    slots: int = 0
    """Slots of registered workers."""
    open_attempts: int = 0
    commands: int = 0
    """Commands that wait for a decision."""
    quarantined: int = 0
    """Number of quarantined pipelines."""
    set_aside: int = 0
    """Runs, pipelines and commands whose records cannot be read or decided."""
    schedule_lag_s: float = 0.0
    """Age of the oldest fire time that is due and not handled, or how far a schedule's position is ahead."""
    last_success: Mapping[PipelineName, datetime] = field(default_factory=dict)
    outbox: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Entries of the outbox by kind and state."""
    wanted: Mapping[WantedSlots, float] = field(default_factory=dict)
    """What workers must be added for, and for how long the oldest of these tasks has been ready."""
    outbox_oldest_s: float = 0.0
    """Age of the oldest entry that is neither accepted nor given up; 0: there is none."""


class ClusterMetrics(Collector):
    """Gauges of the cluster, as last counted by the leader. A scheduler that does not lead has none.

    Args:
        registry: The registry to join.
        leads: Returns True when this process certainly leads. Called at each scrape; must not block.
    """

    def __init__(self, registry: CollectorRegistry, leads: Callable[[], bool]) -> None:
        self._leads = leads
        self._standing: Standing | None = None
        registry.register(self)

    def tell(self, standing: Standing | None) -> None:
        """Set the counts; None: this scheduler does not lead. Engine thread."""
        self._standing = standing

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registration does not call `collect` before the election exists."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        found = self._standing
        if found is None or not self._leads():
            return
        yield _labelled("nimbus_runs", "Live runs, by state.", "state", found.runs)
        yield _labelled("nimbus_tasks", "Tasks of live runs, by state.", "state", found.tasks)
        yield _labelled(
            "nimbus_ready_tasks",
            "Tasks whose needs are met, by what they wait for.",
            "reason",
            found.ready_tasks,
        )
        yield _labelled(
            "nimbus_task_wait_seconds",
            "How long the oldest of these tasks has been ready, by what it waits for.",
            "reason",
            found.longest_waits_s,
        )
        yield from _wanted(found.wanted)
        yield GaugeMetricFamily("nimbus_slots", "Slots of all registered workers.", found.slots)
        yield GaugeMetricFamily("nimbus_open_attempts", "Attempts that are open.", found.open_attempts)
        yield GaugeMetricFamily(
            "nimbus_commands_waiting", "Commands that wait for a decision.", found.commands
        )
        yield GaugeMetricFamily(
            "nimbus_quarantined_pipelines", "Pipelines of which nothing starts.", found.quarantined
        )
        yield GaugeMetricFamily(
            "nimbus_set_aside", "Records that cannot be read or decided about.", found.set_aside
        )
        yield GaugeMetricFamily(
            "nimbus_schedule_lag_seconds",
            "How long the oldest due fire time has waited for its run, or how far the position of a schedule "
            "is ahead of the clock; 0: neither.",
            found.schedule_lag_s,
        )
        yield _labelled(
            "nimbus_last_success_timestamp_seconds",
            "When the last run of a pipeline ended that succeeded, without those of backfills.",
            "pipeline",
            {name: at.timestamp() for name, at in found.last_success.items()},
        )
        outbox = GaugeMetricFamily(
            "nimbus_outbox_entries", "Entries of the outbox, by kind and state.", labels=("kind", "state")
        )
        for labels, count in found.outbox.items():
            outbox.add_metric(labels, count)
        yield outbox
        yield GaugeMetricFamily(
            "nimbus_outbox_oldest_seconds",
            "Age of the oldest entry that is neither accepted nor given up; 0: there is none.",
            found.outbox_oldest_s,
        )


def _wanted(wanted: Mapping[WantedSlots, float]) -> Iterator[Metric]:
    """Two gauges. Without labels and target there is always a value, which tells none from no answer."""
    labels = ("labels", "target")
    slots = GaugeMetricFamily("nimbus_slots_wanted", "Slots that ready tasks lack.", labels=labels)
    waits = GaugeMetricFamily(
        "nimbus_slots_wanted_seconds", "How long the oldest of these tasks has been ready.", labels=labels
    )
    rows = {("", ""): (0, 0.0)} | {
        (",".join(one.labels), one.target): (one.slots, waited_s) for one, waited_s in wanted.items()
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
