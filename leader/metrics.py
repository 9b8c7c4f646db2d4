"""Prometheus metrics of one participant, in the caller's registry."""

from __future__ import annotations

from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from leader.elector import ElectionStatus
from leader.journal import Entry, Granted, Journal, Judged, LogJournal, Move, Revoked

_MILLISECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5, 10)


class MeasuredElector(Protocol):
    """The methods of `Elector` that the metrics read. Neither does I/O."""

    def is_leader(self) -> bool:
        """See `Elector.is_leader`."""

    def status(self) -> ElectionStatus:
        """See `Elector.status`."""


class ElectionMetrics:
    """A journal that counts entries and passes each one on.

    Without a journal, entries are written as log lines.
    """

    def __init__(self, registry: CollectorRegistry, journal: Journal | None = None) -> None:
        self._next = journal or LogJournal()
        self._registry = registry
        self._moves = Counter(
            "leader_transitions",
            "Changes of state of the election's machines: machine, new state, event.",
            labelnames=("machine", "now", "on"),  # closed sets of class names: a few hundred series at most
            registry=registry,
        )
        self._granted = Counter("leader_granted", "Leaderships that were confirmed.", registry=registry)
        self._revoked = Counter("leader_revoked", "Confirmed leaderships that ended.", registry=registry)
        self._handover = Histogram(
            "leader_confirm_duration_seconds",
            "From gaining the lock to confirmed leadership, including the guard's answer.",
            buckets=_MILLISECONDS,
            registry=registry,
        )
        self._verdicts = Counter(
            "leader_guard_verdicts",
            "Answers of the guard: yes, no.",
            labelnames=("ready",),
            registry=registry,
        )
        self._guard = Histogram(
            "leader_guard_duration_seconds",
            "From the question to the guard's answer.",
            buckets=_MILLISECONDS,
            registry=registry,
        )
        self._epoch = Gauge(
            "leader_epoch",
            "Epoch of the last confirmed leadership here; 0 before the first.",
            registry=registry,
        )

    def watch(self, participant: MeasuredElector) -> None:
        """Add gauges that each scrape reads from `participant`. Call it once for each registry."""
        self._registry.register(_StatusCollector(participant))

    def record(self, entry: Entry) -> None:
        """See `Journal.record`."""
        match entry:
            case Move():
                self._moves.labels(entry.machine, entry.now, entry.on).inc()
            case Granted(epoch, took):
                self._granted.inc()
                self._epoch.set(epoch)
                self._handover.observe(took.total_seconds())
            case Revoked():
                self._revoked.inc()
            case Judged(_, verdict, took):
                self._verdicts.labels("yes" if verdict.ready else "no").inc()
                self._guard.observe(took.total_seconds())
        self._next.record(entry)


_HELP = {
    "leader_is_leader": "1 while the election is certain that this participant leads.",
    "leader_queue_position": "Position in the queue; 0 is the oldest, -1: not in the queue, or not known.",
    "leader_everybody_declines": "1 while no participant leads and every guard refuses.",
    "leader_paused": "1 while an operator forbids a change of the leader; only leader and next in line.",
    "leader_proof_age_seconds": "At the leader: time since the last proof that its latch exists.",
    "leader_time_left_seconds": "At the leader: time until its leadership ends if no further proof arrives.",
}


class _StatusCollector(Collector):
    """Reads the participant at each scrape, so no gauge is older than the scrape."""

    def __init__(self, participant: MeasuredElector) -> None:
        self._participant = participant

    def collect(self) -> list[GaugeMetricFamily]:
        status = self._participant.status()
        values = {
            "leader_is_leader": float(self._participant.is_leader()),
            "leader_queue_position": -1.0 if status.position is None else float(status.position),
            "leader_everybody_declines": float(status.everybody_declines),
            "leader_paused": float(status.paused is not None),
        }
        if status.proof_age is not None:
            values["leader_proof_age_seconds"] = status.proof_age.total_seconds()
        if status.time_left is not None:
            values["leader_time_left_seconds"] = status.time_left.total_seconds()
        return [GaugeMetricFamily(name, _HELP[name], value=value) for name, value in values.items()]
