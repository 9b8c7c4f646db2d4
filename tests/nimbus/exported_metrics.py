"""The metrics that daemons export: name, type, labels and help text, as their classes declare them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from blobsync import DiskState, ScrubProgress, SyncProgress
from leader.elector import ElectionStatus, Phase
from leader.metrics import ElectionMetrics
from nimbus.access.gate import AccessGate
from nimbus.adapters.oidc import OidcProvider
from nimbus.api.middleware import HttpMetrics
from nimbus.api.tls import CertificateError, ReloadingTls
from nimbus.telemetry.build import tell_build
from nimbus.telemetry.daemon import GarbageMetrics, ReadinessMetrics, SyncMetrics
from nimbus.telemetry.engine import ClusterCounts, ClusterMetrics, EngineMetrics, ExportMetrics
from nimbus.telemetry.worker import WorkerMetrics, WorkerStanding


@dataclass(frozen=True)
class Exported:
    """One metric, with the name that a query uses: `_total` for a counter, `_info` for an info."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class _Registry(CollectorRegistry):
    """Keeps the collectors in the order of their registration, because an unused metric has no samples."""

    def __init__(self) -> None:
        super().__init__()
        self.registered: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.registered.append(collector)


class _Election:
    def is_leader(self) -> bool:
        return True

    def status(self) -> ElectionStatus:
        return ElectionStatus(Phase.LEADING, proof_age=timedelta(0), time_left=timedelta(0))


def _every_process(registry: CollectorRegistry) -> None:
    tell_build(registry)
    SyncMetrics(registry, progress=SyncProgress, scrub=ScrubProgress, disk=DiskState)
    GarbageMetrics(registry)
    AccessGate(registry=registry)
    with suppress(CertificateError):  # after its metrics are registered
        ReloadingTls(Path("none"), Path("none"), registry)


def _scheduler(registry: CollectorRegistry) -> None:
    EngineMetrics(registry, leads=lambda: False)
    ReadinessMetrics(registry)
    HttpMetrics(registry)
    OidcProvider("", None, Mock(), registry)
    ExportMetrics(registry)


def _election(registry: CollectorRegistry) -> None:
    ElectionMetrics(registry).watch(_Election())


def _cluster(registry: CollectorRegistry) -> None:
    ClusterMetrics(registry, leads=lambda: True).tell(ClusterCounts())


def _worker(registry: CollectorRegistry) -> None:
    counts: dict[str, Any] = {"slots": 1, "attempts": {}, "leftover_logs": 0, "clock_ahead_s": 0.0}
    WorkerMetrics(registry).watch(lambda: WorkerStanding(**counts, registered=True, draining=False))


SECTIONS: dict[str, Callable[[CollectorRegistry], None]] = {
    "Every process": _every_process,
    "Schedulers": _scheduler,
    "Election, of each scheduler": _election,
    "The whole cluster, only at the leader": _cluster,
    "Workers": _worker,
}


def exported(section: str) -> Iterator[Exported]:
    """The metrics of a section, in the order in which its classes declare them."""
    registry = _Registry()
    SECTIONS[section](registry)
    for collector in registry.registered:
        for family in collector.collect():
            labels = tuple(getattr(collector, "_labelnames", getattr(family, "_labelnames", ())))
            name, kind = family.name, family.type
            if kind == "info":
                name, kind, labels = f"{name}_info", "gauge", tuple(family.samples[0].labels)
            yield Exported(f"{name}_total" if kind == "counter" else name, kind, labels, family.documentation)
