"""Metrics of a daemon: of its local store, of its readiness to lead, and of garbage collections.

Updated from any thread, because the client library locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from blobsync import DiskCondition, DiskState, ScrubProgress, SyncProgress
from nimbus.domain.cluster.schedulers import SchedulerInfo


class SyncMetrics(Collector):
    """Metrics of the sync, the scrub and the disk."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        progress: Callable[[], SyncProgress],
        scrub: Callable[[], ScrubProgress],
        disk: Callable[[], DiskState],
    ) -> None:
        self._progress, self._scrub, self._disk = progress, scrub, disk
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Describe nothing, so that registration does not call `collect` before the parts exist."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        yield from self._synced(self._progress())
        yield from self._scrubbed(self._scrub())
        condition = self._disk().condition
        state = GaugeMetricFamily(
            "nimbus_disk_state",
            "1 for the state of the local store's disk: ok, full, read_only, denied, failing.",
            labels=("state",),
        )
        for each in DiskCondition:
            state.add_metric((each.value,), each is condition)
        yield state

    @staticmethod
    def _synced(progress: SyncProgress) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "nimbus_sync_fetched_bytes_total",
            "Bytes fetched from storage, valid or not.",
            progress.fetched_bytes,
        )
        yield CounterMetricFamily(
            "nimbus_sync_fetched_objects_total",
            "Valid objects that were fetched from storage.",
            progress.fetched_objects,
        )
        yield GaugeMetricFamily(
            "nimbus_sync_done_bytes",
            "Bytes, as stored, of the needed objects (packs and large files) that are here or being fetched.",
            progress.done_bytes,
        )
        yield GaugeMetricFamily(
            "nimbus_sync_total_bytes", "Bytes of all needed objects, as stored.", progress.total_bytes
        )

    @staticmethod
    def _scrubbed(scrub: ScrubProgress) -> Iterator[Metric]:
        share = scrub.done_releases / scrub.total_releases if scrub.total_releases else 0.0
        yield GaugeMetricFamily(
            "nimbus_scrub_running",
            "1 while this daemon verifies its store by reading it again. If several daemons share a store, "
            "one of them does it.",
            float(scrub.is_running),
        )
        yield GaugeMetricFamily(
            "nimbus_scrub_progress_ratio",
            "Progress of the current or last round of this verification.",
            share,
        )
        yield CounterMetricFamily(
            "nimbus_scrub_rounds_total", "Completed rounds of this verification.", scrub.finished_rounds
        )
        yield CounterMetricFamily(
            "nimbus_scrub_damaged_objects_total",
            "Objects (packs, large files), manifests and layouts that the rounds found damaged. Not "
            "counted: what a look finds, and damage in trees/.",
            scrub.damaged_objects,
        )
        yield CounterMetricFamily(
            "nimbus_scrub_failed_objects_total",
            "Objects, manifests and layouts that the disk could not check.",
            scrub.failed_objects,
        )
        finished_at = scrub.finished_at
        yield GaugeMetricFamily(
            "nimbus_scrub_finished_timestamp_seconds",
            "When this daemon last completed a round; 0: not since its start.",
            0.0 if finished_at is None else finished_at.timestamp(),
        )


class ReadinessMetrics:
    """Files that this scheduler still needs before it can lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ready = Gauge(
            "nimbus_ready",
            "1 while every file of every required release is here and verified.",
            registry=registry,
        )
        self._missing_files = Gauge(
            "nimbus_missing_files", "Files of required releases that are missing here.", registry=registry
        )
        self._clock_ahead = Gauge(
            "nimbus_clock_ahead_seconds",
            "How far this scheduler's clock is ahead of ZooKeeper's, measured at each of its reports; "
            "negative: behind; 0 for a single scheduler.",
            registry=registry,
        )
        self._missing_bytes = Gauge("nimbus_missing_bytes", "Bytes of the missing files.", registry=registry)

    def reported(self, info: SchedulerInfo) -> None:
        """Set the gauges from this scheduler's registration."""
        self._ready.set(info.ready)
        self._missing_files.set(info.missing_count)
        self._clock_ahead.set(info.clock_ahead_s or 0.0)
        self._missing_bytes.set(info.missing_bytes)


Where = Literal["bucket", "disk", "outputs", "logs", "history"]
Outcome = Literal["done", "postponed", "stopped", "refused", "failed"]


class GarbageMetrics:
    """Counts of garbage collections. Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._runs = Counter(
            "nimbus_gc_runs_total",
            "Collections of garbage. done; postponed: a publish was under way; stopped: leadership ended, "
            "or an object came into use; refused: too little is known, or too much would be deleted; failed.",
            ("where", "outcome"),
            registry=registry,
        )
        self._objects = Counter(
            "nimbus_gc_deleted_objects_total",
            "What collections deleted: objects, files, runs. outputs: those of attempts that no END names "
            "and of purged runs.",
            ("where",),
            registry=registry,
        )
        self._bytes = Counter(
            "nimbus_gc_deleted_bytes_total", "Bytes that collections deleted.", ("where",), registry=registry
        )
        self._last = Gauge(
            "nimbus_gc_last_success_timestamp_seconds",
            "When the last collection was completed; 0: not since the start.",
            ("where",),
            registry=registry,
        )
        self._share = Gauge(
            "nimbus_gc_progress_ratio",
            "Progress of a collection in the bucket within its current step.",
            registry=registry,
        )

        for where, outcome in product(get_args(Where), get_args(Outcome)):  # so the first is an increase
            self._runs.labels(where, outcome)
        for where in get_args(Where):
            for by_where in (self._objects, self._bytes, self._last):
                by_where.labels(where)

    def ended(self, where: Where, outcome: Outcome) -> None:
        """Count the end of a collection."""
        self._runs.labels(where, outcome).inc()
        if outcome in ("done", "postponed"):
            self._last.labels(where).set_to_current_time()
        self._share.set(0)

    def deleted(self, where: Where, count: int, size_bytes: int) -> None:
        """Count deleted objects and bytes."""
        self._objects.labels(where).inc(count)
        self._bytes.labels(where).inc(size_bytes)

    def progress(self, done_count: int, total_count: int) -> None:
        """Set the progress of one step of a bucket collection: listing, reading, or deleting."""
        self._share.set(done_count / total_count if total_count else 0)
